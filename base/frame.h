/*
 * Check and build the frames of include/sandboxd/wire.h. No allocation.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/secret.h"
#include "sandboxd/wire.h"

enum frame_direction {
	FRAME_TO_SHIM = 1,
	FRAME_FROM_SHIM = 2
};

/* Names for logs and answers; "?" for an unknown one. */
const char *frame_type_name(uint16_t type);
const char *frame_step_name(uint32_t step);
bool frame_is_durable(uint16_t type);

/*
 * Check one whole message: header fields, length equal to `size`, type known in this direction, job
 * zero or not as the type asks, payload size exact or within the type's bounds, number zero unless
 * durable. *ret_payload points into message. 0 or -EBADMSG.
 */
MUST_USE int frame_check(const void *message, size_t size, enum frame_direction direction,
			 struct wire_header *ret_header, const uint8_t **ret_payload,
			 size_t *ret_payload_bytes);

/* flags and zero are 0; payload_bytes <= WIRE_PAYLOAD_MAX_BYTES. job and number as the type asks.
 */
struct wire_header frame_header(uint16_t type, uint32_t job, uint64_t number, size_t payload_bytes);
struct wire_hello frame_hello(const uint8_t session[ID_BYTES], uint64_t acked);
/* Magic, version, header size and session agree: 0, -EPROTO (not ours), -EPROTONOSUPPORT (version).
 */
MUST_USE int frame_hello_check(const struct wire_hello *hello, const uint8_t session[ID_BYTES]);

/* A WIRE_EXEC payload in `dest`. head gives flags, program and limits; its counts are computed.
 * Strings are copied with their NUL; argv and env end with NULL (env may be NULL); env entries are
 * NAME=VALUE. note: head->note_bytes of them.
 * -E2BIG: does not fit in WIRE_PAYLOAD_MAX_BYTES or the counts are over EXEC_MAX_*. */
MUST_USE int frame_exec_build(void *dest, size_t dest_bytes, const struct wire_exec *head,
			      const char *cwd, const char *const *argv, const char *const *env,
			      const void *note, size_t *ret_size);
/* Split a WIRE_EXEC payload in place: pointers into it, NULL-terminated arrays of EXEC_MAX_* + 1
 * (10 KiB: not for a small stack). -EBADMSG: counts or strings_bytes do not fit the bytes, an
 * unknown flag or program, a size without a terminal or none with one, no argv[0], an empty cwd, an
 * env entry without a name or `=`; *ret_exec then holds nothing of use. That a path exists or a
 * program may run is not looked at. */
struct frame_exec {
	struct wire_exec head;
	const char *cwd;
	const uint8_t *note; /* head.note_bytes of them */
	const char *argv[EXEC_MAX_ARGV + 1];
	const char *env[EXEC_MAX_ENV + SECRETS_SESSION_MAX + 1]; /* the shim adds secrets */
};
MUST_USE int frame_exec_parse(const uint8_t *payload, size_t size, struct frame_exec *ret_exec);

/* Split a WIRE_FILE payload in place: pointers into it, with their NUL. -EBADMSG: an unknown
 * operation, flag or root, a path that could lead up, one too many or one too few. */
struct frame_file {
	struct wire_file head;
	const char *path;
	const char *to; /* NULL: none */
};
MUST_USE int frame_file_parse(const uint8_t *payload, size_t size, struct frame_file *ret_file);
