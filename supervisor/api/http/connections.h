/*
 * The connections of one server: how many there may be, and how long each may take for what it
 * says. A client that is slow on purpose is cut, sooner where others wait for a place.
 */
#pragma once

#include "base/clock.h"

#include "supervisor/api/http/server_state.h"

/* NULL: there was no memory for it. */
struct http_connection *connection_of(struct MHD_Connection *connection);
/* The library's notice of one that came or went; userdata: the server. */
void connections_notify(void *userdata, struct MHD_Connection *connection, void **socket_context,
			enum MHD_ConnectionNotificationCode code);
/* Those that the limit is about. */
size_t connections_counted(const struct http_server *server);
/* Cut those whose time is over. now: boottime. */
void connections_sweep(struct http_server *server, usec_t now);
