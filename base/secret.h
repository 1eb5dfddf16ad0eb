/*
 * Names of secrets and of variables, and the two messages of secret.h that come from outside:
 * requests (from the api worker) and records (from the unsealing helper).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/secret.h"

bool secret_name_valid(const char *name, size_t length);

/* May a caller set this environment variable? No: what the dynamic loader, a shell or libc trusts,
 * and what every command gets from us. The endpoints' names are the api worker's to refuse. */
bool variable_name_allowed(const char *name, size_t length);

/* 0 or -EPROTO: a count, a name or a byte behind one is wrong. */
MUST_USE int secret_request_check(const struct secret_request *request);

struct secret_view {
	const char *name;
	size_t name_length;
	const char *variable;
	size_t variable_length;
	const uint8_t *value;
	size_t value_length;
	uint32_t flags;
};

/* Split a whole stream (header, records, nothing behind) into at most SECRETS_SESSION_MAX views
 * that point into `data`. 0 or -EBADMSG, and the output is untouched. */
MUST_USE int secret_stream_parse(const uint8_t *data, size_t size,
				 struct secret_view ret_views[SECRETS_SESSION_MAX], size_t *ret_n);
