/*
 * Who did what: one JSON line for each request that changes something or was refused for who asked
 * (400 identity, 401, 403, 404), and for each session or tree that ends. Names, sizes and sums;
 * never a value. The line is written before the answer goes out. A task that came through a queue
 * has the queue in place of a user: nobody knows who put it there.
 */
#pragma once

#include "supervisor/api/session/session.h"

struct app;
struct request;

void audit_start(struct app *app);
/* Answered, or its client left without an answer. */
void audit_request(struct request *request);
/* The session, or only its process tree, ends; the tree comes again at the next use. */
void audit_session_end(struct app *app, const struct session *session, bool only_tree);
/* A task that came through the queue begins, or is ended there. */
void audit_queued(struct app *app, const char *action, const struct id *session,
		  const struct id *task);
/* Every few seconds: to the disk; and where lines were lost, whether they are taken again. */
void audit_tick(struct app *app);
void audit_stop(struct app *app);
