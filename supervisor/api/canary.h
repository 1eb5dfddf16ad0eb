/*
 * The canary: one throw-away session at the start of the worker, in which sandbox-canary tries what
 * must be refused. The service is not ready before it has run, nor where one thing was not refused
 * as it should be. In no list, no quota and no row.
 */
#pragma once

#include "base/auto.h"

struct app;

/* Once, when the worker serves. */
void canary_start(struct app *app);
/* Tries again what could not be launched or ended. */
void canary_tick(struct app *app);
/* Before the connection to the supervisor ends; canary_free after it. */
void canary_stop(struct app *app);
void canary_free(struct app *app);
