/*
 * The configuration's files. The first byte chooses: texts for the reader, with a NUL between two
 * files; or the bytes of an answer, as a reader that was taken over could write them. Whatever the
 * reader accepts the supervisor has to accept as well.
 */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"

#include "supervisor/config/config_parse.h"
#include "supervisor/config_check.h"
#include "tests/fuzz/fuzz.h"

#define MAX_FILES 4

static size_t split(const char *data, size_t size, struct config_text *texts)
{
	size_t n = 0;

	while (n < MAX_FILES) {
		const char *end = memchr(data, '\0', size);
		size_t length = end ? (size_t)(end - data) : size;

		texts[n++] = (struct config_text){.name = "file", .text = data, .size = length};
		if (!end)
			break;
		data = end + 1;
		size -= length + 1;
	}
	return n;
}

static void read_texts(const char *data, size_t size)
{
	static struct config_answer answer;
	struct config_text texts[MAX_FILES];
	struct config_settings settings = {0};
	struct buf complaints = BUF_NULL(4096);
	struct err err = ERR_NULL;
	int r;

	memset(&answer, 0, sizeof(answer));
	r = config_parse(texts, split(data, size, texts), &answer, &settings, &complaints);
	if (r == 0)
		ASSERT(config_check(&answer, sizeof(answer), &err) == 0);
	else
		ASSERT(r == -EINVAL && complaints.size > 0);
	config_settings_done(&settings);
	buf_done(&complaints);
}

static void check_answer(const uint8_t *data, size_t size)
{
	static struct config_answer answer;
	struct buf complaints = BUF_NULL(4096);
	struct err err = ERR_NULL;
	struct config_text empty = {.text = "", .size = 0};
	uint32_t at = 0;

	/* A right one with some bytes changed: u32 where, then what. */
	if (config_parse(&empty, 1, &answer, NULL, &complaints) == 0 && size > sizeof(at)) {
		memcpy(&at, data, sizeof(at));
		at %= sizeof(answer);
		size -= sizeof(at);
		if (size > sizeof(answer) - at)
			size = sizeof(answer) - at;
		memcpy((uint8_t *)&answer + at, data + sizeof(at), size);
	}
	buf_done(&complaints);
	if (config_check(&answer, sizeof(answer), &err) < 0)
		ASSERT(err.text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] & 1)
		check_answer(data + 1, size - 1);
	else
		read_texts((const char *)data + 1, size - 1);
	return 0;
}
