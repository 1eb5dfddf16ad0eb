/*
 * What happens to a session as a whole: it is made, gets and loses its processes, ends. The newest
 * are kept with their numbers, in this worker only; a stream shows them and what follows.
 */
#pragma once

#include <jansson.h>

#include "base/clock.h"

struct app;
struct live;
struct session;

/* type: a constant of sandboxd-api(7). more: an object whose members it has too, or NULL; takes the
 * reference. */
void events_note(struct session *session, const char *type, json_t *more);
/* The last one: its streams end. */
void events_end(struct session *session, const char *type, json_t *more);

void events_heartbeat(struct app *app, usec_t now);
void events_done(struct live *live); /* streams that are left are cut */
