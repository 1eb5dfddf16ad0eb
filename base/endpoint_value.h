/*
 * The value of an endpoint, read: which hosts and ports a client that is given it will dial. One
 * strict reading, so that every client reads the same; what two of them could read differently is
 * refused, never repaired. Apart from the rest of base: it needs uriparser, and no privileged
 * program links it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

enum endpoint_form {
	ENDPOINT_FORM_URL,       /* http:// or https:// */
	ENDPOINT_FORM_WAREHOUSE, /* a path, file:///path or s3://bucket/prefix */
	ENDPOINT_FORM_BROKERS,   /* host:port[,host:port...] */
};

#define ENDPOINT_TARGETS_MAX  16
#define ENDPOINT_HOST_BYTES   254
#define ENDPOINT_BUCKET_BYTES 64

enum endpoint_host_kind {
	ENDPOINT_HOST_NAME, /* lower case, without a trailing dot */
	ENDPOINT_HOST_IPV4,
	ENDPOINT_HOST_IPV6, /* without brackets */
};

struct endpoint_target {
	char host[ENDPOINT_HOST_BYTES];
	uint16_t port;
	uint16_t at;     /* where the host stands in the value, with its brackets */
	uint16_t length; /* there */
	uint8_t kind;    /* enum endpoint_host_kind */
};

struct endpoint_value {
	size_t n_targets; /* 0: nothing is dialled: an empty value, a path, a bucket */
	struct endpoint_target target[ENDPOINT_TARGETS_MAX];
	bool tls;
	char bucket[ENDPOINT_BUCKET_BYTES]; /* of s3://, or "" */
	size_t prefix_at;                   /* in the value: what follows the bucket and a slash */
};

/* Whether the host and its name are in the one form that is taken. False: it is not. */
MUST_USE bool endpoint_host_read(const char *text, size_t length, struct endpoint_target *target);
/* NULL, or a constant text that says what is wrong and does not quote the value. The empty value is
 * taken: it means no endpoint. */
MUST_USE const char *endpoint_value_read(enum endpoint_form form, const char *value, size_t length,
					 struct endpoint_value *ret_value);
