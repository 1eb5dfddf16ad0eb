/*
 * One HTTP request from its headers to its last byte.
 *
 * A body that is a stream (ROUTE_BODY_STREAM) is not collected: the handler runs when the headers
 * are there and calls request_start_upload, or answers. UPLOADING: pieces go to it as they come;
 * one that does not take all of a piece lets the connection sleep until request_wake_upload.
 *
 * States: RECEIVING (headers were judged, the body is collected), HANDLING (the route's handler
 * runs), WAITING (the handler kept the id; the connection is suspended), ANSWERED (a reply is set:
 * queued, or a stream runs). A suspended connection does not notice that its client left, so its
 * descriptor is watched here while it waits.
 *
 * Whoever answers later keeps the id, never the pointer: the client may have left in the meantime,
 * and then request_get says NULL.
 */
#pragma once

#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"

#include "supervisor/api/http/auth.h"
#include "supervisor/api/http/routes.h"
#include "supervisor/api/http/shares.h"

struct app;
struct http_server;
struct websocket;

enum request_state {
	REQUEST_STATE_RECEIVING,
	REQUEST_STATE_HANDLING,
	REQUEST_STATE_WAITING,
	REQUEST_STATE_UPLOADING,
	REQUEST_STATE_ANSWERED,
	REQUEST_STATE_MAX_,
};

#define REQUEST_ID_BYTES    65
#define REQUEST_MAX_HEADERS 4

/* A body that is made while it is sent. read: bytes put into data; 0: nothing yet (the request
 * sleeps until request_wake); -ENODATA: the end; other: the connection is cut. closed: the request
 * is over, however it ended; nothing follows. */
struct request_stream {
	ssize_t (*read)(void *userdata, char *data, size_t size);
	void (*closed)(void *userdata);
	/* For a WebSocket with messages of its own, else NULL, and then its messages are the lines
	 * of `read`. next: 1 and one message in out; 0: none yet; -ENODATA: the end; other: closed.
	 * message: 0, or -errno: closed. may_take: is the client to be read? */
	int (*next)(void *userdata, struct buf *out, bool *ret_binary);
	int (*message)(void *userdata, bool is_binary, const uint8_t *data, size_t size);
	bool (*may_take)(void *userdata);
};

/* A body that is taken while it comes. take: bytes taken, 0: none now, or -errno: the connection is
 * cut. end: it was all; the answer follows, now or later. closed: as of a stream. */
struct request_upload {
	ssize_t (*take)(void *userdata, const char *data, size_t size);
	void (*end)(void *userdata);
	void (*closed)(void *userdata);
};

struct request {
	uint64_t id;
	struct http_server *server;
	struct MHD_Connection *connection;
	const struct route *route; /* NULL: none */
	enum request_state state;
	bool suspended;
	bool client_left;
	bool may_upgrade; /* GET of HTTP/1.1 */

	char path_id[ROUTE_ID_BYTES];
	char path_cid[ROUTE_ID_BYTES];
	char request_id[REQUEST_ID_BYTES];
	uint32_t peer_uid; /* UINT32_MAX: not known */
	char accept[128];
	char last_event_id[24];
	struct identity identity;
	struct share *share;   /* of its user; NULL: the operator's, or nobody's */
	struct list turn_link; /* share->waiting */
	bool has_turn;
	struct buf body;
	json_t *errors; /* what a parser of the body finds; payload_judge takes it */
	json_t *notes;  /* request_note, or NULL */
	bool audited;
	bool sought;       /* its session was looked for in the store */
	size_t held_bytes; /* charged to the server: body and answer */

	int status; /* of the reply; 0: none yet */
	struct MHD_Response *response;
	const char *extra_name[REQUEST_MAX_HEADERS]; /* constants */
	char extra_value[REQUEST_MAX_HEADERS][64];
	uint32_t n_extra;

	bool opening;                        /* of an upload: nothing of its body was read */
	bool upload_ended;                   /* all of it was read */
	const struct request_upload *upload; /* or NULL */
	void *upload_userdata;
	char *refusal; /* text of an answer in the middle of an upload, or NULL */
	const struct request_stream *stream; /* or NULL */
	void *stream_userdata;
	usec_t stream_read_at;       /* boottime: the last block was asked for */
	struct websocket *websocket; /* or NULL: the stream is the body of the answer */
	sd_event_source *left_source;
	void (*left)(void *userdata); /* request_on_left, or NULL */
	void *left_userdata;
	usec_t began; /* boottime */
	usec_t answered_at;
};

struct app *request_app(const struct request *request);
const struct api_config *request_config(const struct request *request);
/* NULL where the client left. */
struct request *request_get(struct http_server *server, uint64_t id);
/* A query parameter's value as it was sent, or NULL. */
const char *request_query(const struct request *request, const char *name);
/* A further header of the answer; before reply_*. value is cut at 63 characters. */
void request_add_header(struct request *request, const char *name, const char *value);
/* For the audit, beside who asked and for what: names, sizes, sums; no value, no endpoint. Takes
 * the reference; NULL is nothing. */
void request_note(struct request *request, const char *key, json_t *value);
void request_note_id(struct request *request, const char *key, const struct id *id);
/* Called once if the request ends without an answer: its client left. */
void request_on_left(struct request *request, void (*left)(void *userdata), void *userdata);
/* Set by reply_*: takes the response, and wakes the connection where it waits. */
void request_answer(struct request *request, int status, struct MHD_Response *response);
/* Charge memory to the request until its end. False: the server holds too much, or too much of it
 * is its user's. */
MUST_USE bool request_hold(struct request *request, size_t size);
/* The body was taken over by its handler and is bounded there. */
void request_release_body(struct request *request);
/* Is there room for one more stream of this user? If not, the request is answered. For what must
 * not be begun in vain. */
MUST_USE bool request_may_stream(struct request *request);
/* Answer with a stream. `closed` is called in every case, also when this fails. */
void request_start_stream(struct request *request, const char *content_type,
			  const struct request_stream *stream, void *userdata);
/* The same for what has a size and a status of its own. */
struct request_body {
	int status;
	uint64_t size; /* > 0 */
	const char *content_type;
};
void request_start_body(struct request *request, const struct request_body *body,
			const struct request_stream *stream, void *userdata);
/* Take the body as it comes. `closed` is called in every case, also when this fails. */
void request_start_upload(struct request *request, const struct request_upload *upload,
			  void *userdata);
void request_wake_upload(struct request *request); /* it takes more */
/* Nothing more is read of it; the connection may live a little longer. */
void request_end_stream(struct request *request);
void request_wake(struct request *request); /* a stream has more to say, or an end */
