/*
 * Plans and launch messages: the first byte chooses which; the rest is laid over the struct.
 */
#include <string.h>

#include "base/err.h"
#include "base/launch.h"
#include "base/plan.h"

#include "tests/fuzz/fuzz.h"

static void check_plan(const uint8_t *data, size_t size)
{
	struct plan plan = {0};
	struct err err = ERR_NULL;

	memcpy(&plan, data, size < sizeof(plan) ? size : sizeof(plan));
	if (plan_check(&plan, &err) < 0) {
		ASSERT(err.error_number > 0 && err.text[0] != '\0');
		return;
	}
	ASSERT(err.error_number == 0);
	ASSERT(plan.tmpfs_bytes >= PLAN_TMPFS_MIN_BYTES);
	ASSERT(plan.tmpfs_bytes <= plan.memory_bytes / 2);
	ASSERT(plan.flags == 0);
}

static void check_launch(const uint8_t *data, size_t size, int is_answer)
{
	static struct launch_msg msg;

	memset(&msg, 0, sizeof(msg));
	memcpy(&msg, data, size < sizeof(msg) ? size : sizeof(msg));
	if (launch_check(&msg, size, is_answer) < 0)
		return;
	ASSERT(size == sizeof(msg) && (msg.type & 1) == is_answer);
	ASSERT(launch_error_text(msg.error)[0] != '\0');
	err_sanitize(&msg.u.err);
	ASSERT(strlen(msg.u.err.text) < ERR_TEXT_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] & 2)
		check_launch(data + 1, size - 1, data[0] & 1);
	else
		check_plan(data + 1, size - 1);
	return 0;
}
