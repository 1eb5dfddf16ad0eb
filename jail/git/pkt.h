/*
 * Packet lines of git's protocol (gitprotocol-common(5)). Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#define PKT_HEAD_BYTES 4
#define PKT_MAX_BYTES  65520u

enum pkt_kind {
	PKT_FLUSH,
	PKT_OTHER, /* delimiter, end of a response: no data */
	PKT_DATA,
};

/* The head of a line: its kind, and how many bytes of data follow. False: it is none. */
MUST_USE bool pkt_head(const uint8_t head[PKT_HEAD_BYTES], enum pkt_kind *ret_kind,
		       size_t *ret_size);

/* How many bytes "# service=NAME", its flush included, takes at the beginning of an advertisement;
 * 0: it is not there. */
size_t pkt_service_bytes(const uint8_t *data, size_t size, const char *service);
/* The advertisement is one of protocol version 2. */
bool pkt_is_version_2(const uint8_t *data, size_t size);

/* Is this line of a push about `ref`, does it leave one there, and does it ask for nothing beside?
 * Options of a push (push-options) are words to the server, which may merge or deploy by them. */
bool pkt_updates(const uint8_t *data, size_t size, const char *ref, size_t ref_length);
/* A line that names where the history was cut. */
bool pkt_is_shallow(const uint8_t *data, size_t size);
