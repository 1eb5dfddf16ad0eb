/*
 * What server.c, connections.c and request.c share, and nobody else looks into.
 */
#pragma once

#include <microhttpd.h>

#include "base/list.h"
#include "base/slots.h"

#include "supervisor/api/http/request.h"
#include "supervisor/api/http/server.h"

/* Bodies and answers that one server's requests hold in memory, together. */
#define HTTP_HELD_MAX_BYTES ((size_t)256 * 1024 * 1024)

struct http_connection {
	struct list link;              /* server->connections */
	const struct request *request; /* NULL: between two, or its head is not complete */
	usec_t since;                  /* boottime: accepted, or the last request's end */
	int fd;                        /* the library's */
	bool cut;                      /* it ends in the library's next run */
};

struct http_server {
	struct http_server_options options;
	struct MHD_Daemon *daemon;
	sd_event *event;
	sd_event_source *io;
	sd_event_source *timer;
	sd_event_source *again; /* the next turn, at once */
	struct slots requests;
	struct list connections;
	size_t n_connections;
	struct shares shares;
	struct turns turns;
	size_t n_streams;
	size_t n_cut;
	size_t held_bytes;
	bool dirty; /* something was resumed */
	bool quiet; /* nothing new is begun */
	bool stopping;
};

/* In RECEIVING, with an id of its own. NULL: no memory, or too many. */
struct request *request_new(struct http_server *server, struct MHD_Connection *connection);
void request_free(struct request *request);
/* It is known who asks. */
void request_enter(struct request *request);
void request_suspend(struct request *request);
void request_resume(struct request *request);
/* The client left, as the loop or the end of the server says. */
void request_cut(struct request *request);
