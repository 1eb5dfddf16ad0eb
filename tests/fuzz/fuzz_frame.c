/*
 * Frames: input is a direction byte and a message. What passes frame_check is within its bounds;
 * what passes frame_exec_parse points into the payload and builds to the same bytes again.
 */
#include <string.h>

#include "base/err.h"
#include "base/frame.h"

#include "tests/fuzz/fuzz.h"

static void check_exec(const uint8_t *payload, size_t size)
{
	static struct frame_exec exec;
	static uint8_t again[WIRE_PAYLOAD_MAX_BYTES];
	size_t again_size = 0;
	int r;

	r = frame_exec_parse(payload, size, &exec);
	if (r < 0)
		return;
	ASSERT((const uint8_t *)exec.cwd > payload && (const uint8_t *)exec.cwd < payload + size);
	ASSERT(!exec.argv[exec.head.n_argv] && !exec.env[exec.head.n_env]);
	r = frame_exec_build(again, sizeof(again), &exec.head, exec.cwd, exec.argv, exec.env,
			     exec.note, &again_size);
	ASSERT(r == 0 && again_size == size && memcmp(again, payload, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_header header;
	const uint8_t *payload;
	size_t payload_bytes;
	enum frame_direction direction;

	if (size < 1)
		return 0;
	direction = data[0] & 1 ? FRAME_TO_SHIM : FRAME_FROM_SHIM;
	if (frame_check(data + 1, size - 1, direction, &header, &payload, &payload_bytes) < 0)
		return 0;
	ASSERT(payload + payload_bytes == data + size);
	ASSERT(frame_type_name(header.type)[0] != '?');
	ASSERT((header.number != 0) == frame_is_durable(header.type));
	if (header.type == WIRE_EXEC)
		check_exec(payload, payload_bytes);
	if (header.type == WIRE_HELLO) {
		struct wire_hello hello;

		memcpy(&hello, payload, sizeof(hello));
		if (frame_hello_check(&hello, hello.session) == 0)
			ASSERT(hello.magic == WIRE_MAGIC);
	}
	return 0;
}
