/*
 * HTTP/1.1 over the service's Unix socket, by libcurl's multi interface so that a signal ends a
 * transfer at once. Everything in an answer may come from a session: callers escape before they
 * print.
 */
#pragma once

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/buf.h"

#include "ctl/options.h"
#include "sandboxd/limits.h"

#define CLIENT_REPLY_MAX_BYTES ((size_t)64 * 1024 * 1024)
#define CLIENT_LINE_MAX_BYTES  ((size_t)1024 * 1024)

struct client {
	CURLM *multi;
	struct curl_slist *headers; /* identity */
	char socket_path[108];
	int signal_fd;
	int signal;                  /* the signal that ended a transfer; 0: none */
	char sandbox[ID_TEXT_BYTES]; /* that the last request was about; "": none */
};

struct client_reply {
	long status;     /* HTTP status; 0: no answer */
	struct buf text; /* body; empty where a stream's callback took it */
	json_t *doc;     /* parsed body, or NULL */
};
#define CLIENT_REPLY_NULL ((struct client_reply){.text = BUF_NULL(CLIENT_REPLY_MAX_BYTES)})
void client_reply_done(struct client_reply *reply);
#define AUTO_REPLY __attribute__((cleanup(client_reply_done)))

/* One line of a streamed answer, without its newline. A negative return ends the transfer and is
 * passed up; -ESHUTDOWN does so without a message. */
typedef int (*client_line)(void *userdata, const char *line, size_t length);

struct client_request {
	const char *method;
	const char *path; /* already escaped */
	const char *accept;
	json_t *body;     /* borrowed; NULL: none */
	client_line line; /* NULL: the body is collected and parsed */
	/* Bytes of the body, 0 at its end or -errno; NULL: `body`. fill_bytes: how many, or -1. */
	ssize_t (*fill)(void *userdata, char *data, size_t size);
	long long fill_bytes;
	int (*bytes)(void *userdata, const void *data, size_t size); /* as line, for an answer as it
									is */
	void *userdata;
	long idle_ms;      /* end a stream that was silent that long; 0: never */
	bool answer_first; /* a signal does not end it, it is noted: what this makes must be known
			    */
};

/* 0, or -ENOMEM, -ENAMETOOLONG (socket path). INT, TERM and HUP are blocked from here on. */
MUST_USE int client_open(struct client *client, const struct options *options);
void client_close(struct client *client);

/* 0 with a status in reply; -ECONNREFUSED: nobody answers on the socket; -EACCES: it is not for
 * this user; -EINTR: a signal came
 * (client->signal); -EPIPE: the answer was cut; -ETIMEDOUT: idle_ms passed; -errno. */
MUST_USE int client_perform(struct client *client, const struct client_request *request,
			    struct client_reply *reply);

/* Take a signal that came: client->signal. */
bool client_signal_came(struct client *client);

/* Wait that long, or until a signal (client->signal) or a change of the terminal's size. */
void client_wait(struct client *client, int ms);

/* Path of one object: prefix + "/" + escaped id + suffix. 0 or -ENAMETOOLONG. */
MUST_USE int client_path(char *path, size_t path_bytes, const char *prefix, const char *id,
			 const char *suffix);

/* Report what went wrong (r from client_perform, or an answer's status) on standard error and give
 * the exit status that stands for it. EXIT_OK for r == 0 and a 2xx answer. */
int client_result(const struct client *client, int r, const struct client_reply *reply);

/* Both at once. EXIT_OK and the reply of a 2xx answer, or the exit status. */
int client_ask(struct client *client, const struct client_request *request,
	       struct client_reply *reply);

/* One object of the API: prefix + "/" + id + suffix (NULL: none). */
struct client_object {
	const char *prefix;
	const char *id;
	const char *suffix;
};
/* The same about one object. body is borrowed; NULL: none. */
int client_ask_about(struct client *client, const char *method, const struct client_object *object,
		     json_t *body, struct client_reply *reply);
