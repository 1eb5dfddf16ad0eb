/*
 * Answers of a remote service: a token is one that a header can have, a page goes on with what a
 * query can have, and what is refused leaves the caller's as it was.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#include "supervisor/provider/remote_json.h"
#include "tests/fuzz/fuzz.h"

#define MARK 0xa5a5a5a5u

static const char *answer;
static size_t answer_size;

static void check_token(void)
{
	char token[REMOTE_TOKEN_BYTES];
	uint32_t seconds = MARK;
	int r = remote_json_token(answer, answer_size, token, &seconds);

	if (r < 0) {
		ASSERT(r == -EBADMSG || r == -ENOMEM);
		ASSERT(seconds == MARK);
		return;
	}
	ASSERT(seconds > 0 && seconds <= 86400);
	ASSERT(memchr(token, '\0', sizeof(token)) && token[0] != '\0');
	for (const char *at = token; *at; at++)
		ASSERT(*at > 0x20 && *at < 0x7f);
}

static void check_state(void)
{
	int state = remote_json_state(answer, answer_size);

	ASSERT(state < 0 || state <= REMOTE_ENDED);
}

static void on_each(void *userdata, const struct id *id, bool is_paused, bool lives)
{
	size_t *n = userdata;

	ASSERT(id && (lives || !is_paused));
	(*n)++;
}

static void check_list(void)
{
	char next[REMOTE_PAGE_BYTES];
	size_t n = 0;
	int r = remote_json_list(answer, answer_size, on_each, &n, next);

	if (r < 0) {
		ASSERT(n == 0);
		return;
	}
	/* An id alone has 36 characters. */
	ASSERT(n <= answer_size / 36);
	ASSERT(memchr(next, '\0', sizeof(next)));
	ASSERT(next[0] == '\0' || str_only(next, strlen(next), "._-"));
}

static void check_stat(void)
{
	static const struct launch_stat nothing;
	struct launch_stat stat;

	memset(&stat, 0xa5, sizeof(stat));
	if (remote_json_stat(answer, answer_size, &stat) < 0)
		ASSERT(memcmp(&stat, &nothing, sizeof(stat)) == 0);
	ASSERT(stat.memory_bytes <= INT64_MAX && stat.memory_peak_bytes <= INT64_MAX &&
	       stat.cpu_us <= INT64_MAX && stat.n_pids <= INT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	answer = (const char *)data;
	answer_size = size;
	check_token();
	check_state();
	check_list();
	check_stat();
	return 0;
}
