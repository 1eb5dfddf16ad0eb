/*
 * Streams of what changes in a folder of a session (action_file_watch).
 */
#pragma once

#include <stdbool.h>

#include "base/clock.h"

struct activity;
struct app;

/* It goes on for as long as its client likes, and is no work of the session. */
bool file_watch_is(const struct activity *activity);

void file_watches_heartbeat(struct app *app, usec_t now);
