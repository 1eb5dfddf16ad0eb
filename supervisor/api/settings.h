/*
 * The configuration while the worker runs. It is one struct that is overwritten between two events,
 * so everybody who reads it through app->config sees the new one at once.
 */
#pragma once

#include "supervisor/api/app.h"

/* To what keeps something of its own of the configuration. */
void settings_spread(struct app *app);
/* LAUNCH_EVENT_CONFIG. fd becomes ours. A configuration that is not valid changes nothing. */
void settings_take(struct app *app, const struct launch_config *state, int fd);
