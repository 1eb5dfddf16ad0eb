/*
 * What becomes of sandboxes that nobody uses: they are suspended, and resumed by their next use;
 * frozen ones give their memory back when they are durable and it is their time.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/clock.h"

struct app;
struct buf;
struct live;

/* Looked at in each tick. */
void idle_tick(struct app *app);
/* Somebody uses it. */
void idle_touch(struct live *live);
/* Whether the next use of a suspended one resumes it. */
bool idle_resumes(const struct app *app);
MUST_USE int idle_append_metrics(struct buf *text, const struct app *app);
/* How long a suspended one is kept. */
usec_t idle_keep(const struct app *app);
