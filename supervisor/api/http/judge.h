/*
 * What is decided by the headers alone, before a byte of the body: framing, route, who asks, what
 * they may, how large the body says it is.
 */
#pragma once

#include "supervisor/api/http/request.h"

struct judge_walk {
	struct request *request;
	struct auth_headers auth;
	uint32_t n_length;
	uint32_t n_encoding;
	uint32_t n_host;
	uint64_t length; /* announced */
	bool bad;        /* framing that no two readers need agree on */
};

/* For MHD_get_connection_values_n; userdata: struct judge_walk. */
enum MHD_Result judge_take_header(void *userdata, enum MHD_ValueKind kind, const char *name,
				  size_t name_bytes, const char *value, size_t value_bytes);
/* An error is answered into the request. */
void judge_headers(struct request *request, const struct judge_walk *walk,
		   const struct route_match *match);
