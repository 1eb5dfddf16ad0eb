/*
 * Check messages of include/sandboxd/launch.h, and the texts of its error numbers.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

#include "sandboxd/launch.h"

/*
 * A request (even type) or an answer/event (odd type) of exactly sizeof(struct launch_msg): magic,
 * version and zero fields right; a session is named where the request is about one and null where
 * it is not; LAUNCH_START names the plan's session; HELLO's own three fields agree. Payloads beyond
 * that are the handler's. 0 or -EPROTO.
 */
MUST_USE int launch_check(const struct launch_msg *msg, size_t size, int is_answer);
/* A message with its fixed fields and all other bytes zero; type may be a request's plus one.
 * session NULL: none. */
struct launch_msg launch_message(enum launch_type type, uint32_t serial,
				 const uint8_t session[ID_BYTES]);
/* One lower-case sentence without a dot, for an API answer: never NULL. */
const char *launch_error_text(uint32_t error);
