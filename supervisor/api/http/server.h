/*
 * HTTP on one inherited listening socket: libmicrohttpd in external epoll mode, driven by the
 * worker's one loop. No threads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/auto.h"
#include "base/clock.h"

#include "sandboxd/worker.h"

struct app;
struct http_server;
struct request;

struct http_counters {
	uint64_t n_requests;
	uint64_t n_status[6];   /* by first digit; [0] unused */
	uint64_t n_connections; /* now */
	uint64_t n_streams;     /* now */
};

struct http_server_options {
	struct app *app; /* handed to handlers, not looked at here */
	const struct api_config *config;
	struct http_counters *counters;
	/* The answer is decided, and not sent yet; or the client left without one (status 0). May
	 * come twice. */
	void (*answered)(struct request *request);
	bool is_operator;
	uint32_t max_connections; /* without those that carry a stream */
	uint32_t max_streams;
};

/* listen_fd becomes the server's. */
MUST_USE int http_server_new(sd_event *event, int listen_fd,
			     const struct http_server_options *options,
			     struct http_server **ret_server, const char **ret_reason);
/* Run what replies set off; called at the end of each turn. Cheap where nothing did. */
void http_server_run(struct http_server *server);
void http_server_quiesce(struct http_server *server); /* accept and begin no more */
/* Cut clients that are slower than patience allows; called every few seconds. now: boottime. */
void http_server_sweep(struct http_server *server, usec_t now);
uint32_t http_server_requests(const struct http_server *server);
/* Cuts what is left. Accepts NULL; returns NULL. */
struct http_server *http_server_free(struct http_server *server);
