/*
 * The HTTP side: two kinds of requests, to one server.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/buf.h"

#include "sandboxd/git.h"

struct http_request {
	enum git_service service;
	char url[GIT_URL_MAX_BYTES + 1]; /* without a slash at its end */
	char username[GIT_USERNAME_MAX_BYTES + 1];
	char password[GIT_PASSWORD_MAX_BYTES + 1];
	char ref[GIT_REF_MAX_BYTES + 1];
	char *ca; /* PEM, or NULL */
	size_t ca_bytes;
};

struct http;

/* All return 0 or an enum git_exit, and have said why on standard error. */

MUST_USE int http_open(const struct http_request *request, struct http **ret_http);
struct http *http_close(struct http *http); /* returns NULL */
/* What the server has; a redirect within the server moves the URL. */
MUST_USE int http_advertisement(struct http *http, struct buf *ret_body);
/* POST what is in `head`, then what comes from rest_fd (-1: nothing) until its end; the answer goes
 * to out_fd. */
MUST_USE int http_exchange(struct http *http, const struct buf *head, int rest_fd, int out_fd);

const char *http_service_name(enum git_service service);
/* One line on standard error. Returns `code`. */
int http_say(int code, const char *text);
