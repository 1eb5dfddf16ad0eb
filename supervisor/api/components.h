/*
 * Components on their way into a session and its row.
 */
#pragma once

#include "supervisor/api/app.h"

/* Why shim_link_exec or _put said no (commands.c). */
void reply_link_error(struct request *request, const struct session *session, int error);
/* The tree ended first: with its session, or it is there again at the next use (commands.c). */
void reply_tree_lost(struct request *request, const struct session *session);
/* A write of this file is under way, and not from this connection of Airbyte. */
bool component_is_coming(const struct session *session, const char *file, const char *origin);
/* At the end, once the store is closed: what it never took. */
void components_drop(struct app *app);
