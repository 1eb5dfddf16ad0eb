/*
 * The parts of service.h, for its own files only: service is what the api worker asks for,
 * service_stream the sandboxes' handles and the streams behind them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"
#include "base/loop.h"

#include "supervisor/peer.h"
#include "supervisor/provider/service.h"

struct pump;

struct service {
	struct loop *loop;
	struct engine *engine;
	const struct image *policy;
	struct peer peer;
	bool is_linked;
	uint32_t link; /* counts them: whose answer it is */
	uint32_t n_requests;
	struct list sandboxes;
	struct list unconnected; /* sandbox->turn: they wait for theirs */
	uint32_t n_connecting;
};

struct sandbox {
	struct list link; /* service->sandboxes */
	struct list turn; /* service->unconnected, or of itself */
	struct service *service;
	struct id id;
	struct pump *pump; /* NULL: its handle has ended, or is none yet */
	uint32_t n_pumps;  /* counts them: whose stream it is */
	struct loop_source *retry;
	usec_t give_up_at; /* no other stream is looked for later, after n_tries for one */
	uint32_t n_tries;
	bool is_paused;
	bool is_starting;
	struct list kills; /* struct request: they wait for the end of the start */
};

/* A request that waits for the engine. */
struct request {
	struct list waiting; /* sandbox->kills */
	struct service *service;
	uint32_t link;
	uint32_t serial;
	uint16_t type;
	struct id id;
	uint32_t n_pumps;
	int handle_fd; /* to go with the answer; -1: none */
};

/* NULL: no memory. handle_fd is -1. */
struct request *request_new(struct service *service, const struct id *id);
struct request *request_free(struct request *request); /* NULL */

/* service_stream.c */

struct sandbox *sandbox_find(struct service *service, const struct id *id); /* or NULL */
/* The one that is there, or a new one; NULL: no memory. */
struct sandbox *sandbox_get(struct service *service, const struct id *id);
/* Its handle ends; the entry stays while it is being started. */
void sandbox_forget(struct service *service, const struct id *id);
/* A pump that is not connected yet. *ret_fd: the other end of its handle. 0 or -errno. */
MUST_USE int sandbox_open_handle(struct sandbox *sandbox, int *ret_fd);
/* The stream of the pump that it was asked for, or nobody's any more (-ECANCELED). fd, or an -errno
 * in its place, is ours. 0 or -errno: its handle has ended. */
MUST_USE int sandbox_take_stream(struct service *service, const struct id *id, uint32_t n_pumps,
				 int fd);
/* One is looked for, from now on for so long. */
void sandbox_want_stream(struct sandbox *sandbox);
