/*
 * Theory. The values come from sandboxd-helper through a pipe that the supervisor connected, and
 * lie in one mapping of pid 1: locked where RLIMIT_MEMLOCK allows it, in no core dump. Nursery,
 * spawner and runners are forked with it and share its pages; the file helper, which runs under the
 * id of `user`, unmaps it. Beside the processes of ours only the session's commands hold a value.
 *
 * Runs in pid 1 before the nursery is forked, so before any byte of an untrusted program. What the
 * pipe holds was parsed and sealed by our own helper, and is checked all the same.
 */
#include "shim/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/secret.h"
#include "base/str.h"

#include "sandboxd/plan.h"

#define STREAM_MAX_BYTES                                                                           \
	(sizeof(struct secret_stream) + SECRETS_SESSION_BYTES +                                    \
	 SECRETS_SESSION_MAX * (sizeof(struct secret_record) + 2ul * SECRET_NAME_BYTES))

#define LINES_MAX      64
#define LINE_MIN_BYTES 8

/* Of one secret: whole, three forms of base64 and their URL forms, two of hexadecimal, one for
 * URLs; lines. */
#define PATTERNS_MAX (1ul + 6 + 2 + 1 + LINES_MAX)
_Static_assert(PATTERNS_MAX *SECRETS_SESSION_MAX <= MASK_MAX_PATTERNS, "room");

/* Bump allocation in the mapping, whose size was computed before. */
struct arena {
	uint8_t *at;
	uint8_t *end;
};

static void *arena_take(struct arena *arena, size_t size)
{
	uint8_t *taken = arena->at;
	size_t rounded = (size + 7) & ~(size_t)7;

	ASSERT(rounded <= (size_t)(arena->end - taken));
	arena->at += rounded;
	return taken;
}

static void *map_private(size_t size)
{
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	/* Both are a second line: pid 1 cannot be dumped, and most hosts do not swap a session's
	 * memory that is in use. So a limit that is too low is no reason to refuse. */
	(void)mlock(map, size);
	(void)madvise(map, size, MADV_DONTDUMP);
	return map;
}

static void unmap_private(void *map, size_t size)
{
	if (!map)
		return;
	explicit_bzero(map, size);
	(void)munmap(map, size);
}

static void add_pattern(struct secrets *secrets, struct arena *arena, const void *bytes,
			size_t length, const char *text)
{
	if (length < SECRET_VALUE_MIN_BYTES)
		return;
	ASSERT(secrets->n_patterns < SECRETS_SESSION_MAX * PATTERNS_MAX);
	secrets->pattern[secrets->n_patterns++] = (struct mask_pattern){
		.bytes = bytes,
		.length = length,
		.fail = arena_take(arena, length * sizeof(uint32_t)),
		.text = text,
	};
}

static void add_hex(struct secrets *secrets, struct arena *arena, const struct secret_view *view,
		    const char *text)
{
	for (int upper = 0; upper < 2; upper++) {
		char *hex = arena_take(arena, 2 * view->value_length + 1);

		str_hex(hex, view->value, view->value_length);
		for (size_t i = 0; upper && hex[i] != '\0'; i++)
			if (hex[i] >= 'a' && hex[i] <= 'f')
				hex[i] = (char)(hex[i] - 'a' + 'A');
		add_pattern(secrets, arena, hex, 2 * view->value_length, text);
	}
}

/*
 * The value somewhere in a longer text that was encoded: it begins at one of three places of a
 * group, and the characters that also hold bits of its neighbours are left out.
 */
static void add_base64(struct secrets *secrets, struct arena *arena, const struct secret_view *view,
		       const char *text)
{
	static const size_t skipped[3] = {0, 2, 3};

	for (size_t lead = 0; lead < 3; lead++) {
		size_t size = lead + view->value_length;
		size_t length = size * 8 / 6 - skipped[lead];
		uint8_t *plain = arena_take(arena, size);
		char *encoded = arena_take(arena, str_base64_bytes(size));
		char *url;

		memset(plain, 0, lead);
		memcpy(plain + lead, view->value, view->value_length);
		(void)str_base64(encoded, plain, size);
		encoded += skipped[lead];
		add_pattern(secrets, arena, encoded, length, text);
		if (!memchr(encoded, '+', length) && !memchr(encoded, '/', length))
			continue;
		url = arena_take(arena, length);
		memcpy(url, encoded, length);
		for (size_t i = 0; i < length; i++)
			if (url[i] == '+' || url[i] == '/')
				url[i] = (char)(url[i] == '+' ? '-' : '_');
		add_pattern(secrets, arena, url, length, text);
	}
}

/* Percent-encoding as RFC 3986 has it: all but the unreserved characters. */
static void add_url(struct secrets *secrets, struct arena *arena, const struct secret_view *view,
		    const char *text)
{
	static const char digits[] = "0123456789ABCDEF";
	char *url = arena_take(arena, 3 * view->value_length);
	size_t n = 0;

	for (size_t i = 0; i < view->value_length; i++) {
		char c = (char)view->value[i];

		if (str_only(&c, 1, "-._~")) {
			url[n++] = c;
			continue;
		}
		url[n++] = '%';
		url[n++] = digits[view->value[i] >> 4];
		url[n++] = digits[view->value[i] & 15];
	}
	if (n != view->value_length)
		add_pattern(secrets, arena, url, n, text);
}

/* The lines of a key or a document, which programs print one by one, each behind a prefix of
 * theirs. A short one says nothing. */
static void add_lines(struct secrets *secrets, struct arena *arena, const struct secret_view *view,
		      const char *text)
{
	const uint8_t *at = view->value;
	const uint8_t *end = at + view->value_length;
	size_t n = 0;

	while (at < end && n < LINES_MAX) {
		const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));
		size_t length = (size_t)((stop ? stop : end) - at);

		if (length > 0 && at[length - 1] == '\r')
			length--;
		if (length >= LINE_MIN_BYTES && length < view->value_length) {
			uint8_t *line = arena_take(arena, length);

			memcpy(line, at, length);
			add_pattern(secrets, arena, line, length, text);
			n++;
		}
		at = stop ? stop + 1 : end;
	}
}

/* What take_one takes of the arena at most. */
static size_t arena_need(const struct secret_view *view)
{
	size_t text = view->name_length + view->variable_length + 64;
	size_t bytes = view->value_length * 10 + 64 + 16ul * LINES_MAX; /* entry, lines, automata */

	/* Two hexadecimal forms, six of base64 with three copies, one for URLs; automata. */
	if (view->flags & SECRET_RECORD_ENCODINGS)
		bytes += (view->value_length + 8) * (4 + 3 + 8 + 3) + 512 +
			 (view->value_length + 8) * (4 + 8 + 3) * sizeof(uint32_t);
	return text + bytes;
}

static void take_one(struct secrets *secrets, struct arena *arena, const struct secret_view *view)
{
	char *entry = arena_take(arena, view->variable_length + view->value_length + 2);
	char *text = arena_take(arena, view->name_length + 7);
	char *value = entry + view->variable_length + 1;

	memcpy(entry, view->variable, view->variable_length);
	entry[view->variable_length] = '=';
	memcpy(value, view->value, view->value_length);
	value[view->value_length] = '\0';
	IGNORE_RESULT(str_format(text, view->name_length + 7, "***%.*s***", (int)view->name_length,
				 view->name));
	secrets->entry[secrets->n++] = entry;
	add_pattern(secrets, arena, value, view->value_length, text);
	add_lines(secrets, arena, view, text);
	if (!(view->flags & SECRET_RECORD_ENCODINGS))
		return;
	add_hex(secrets, arena, view, text);
	add_base64(secrets, arena, view, text);
	add_url(secrets, arena, view, text);
}

int secrets_take(struct secrets *secrets, const struct secret_view *views, size_t n)
{
	struct arena arena;
	size_t size = n * PATTERNS_MAX * sizeof(struct mask_pattern);
	void *map;

	for (size_t i = 0; i < n; i++)
		size += arena_need(&views[i]);
	map = map_private(size);
	if (!map)
		return -ENOMEM;
	*secrets = (struct secrets){.map = map, .map_bytes = size};
	arena = (struct arena){.at = map, .end = (uint8_t *)map + size};
	secrets->pattern = arena_take(&arena, n * PATTERNS_MAX * sizeof(struct mask_pattern));
	for (size_t i = 0; i < n; i++)
		take_one(secrets, &arena, &views[i]);
	mask_init(&secrets->mask, secrets->pattern, secrets->n_patterns);
	return 0;
}

/* The whole stream into a mapping of its own. */
static int read_stream(uint8_t *data, size_t *ret_size)
{
	size_t size = 0;

	for (;;) {
		ssize_t n = io_read(SHIM_FD_SECRETS, data + size, STREAM_MAX_BYTES + 1 - size);

		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		size += (size_t)n;
		if (size > STREAM_MAX_BYTES)
			return -EFBIG;
	}
	*ret_size = size;
	return 0;
}

int secrets_read(struct secrets *secrets, struct err *err)
{
	struct secret_view views[SECRETS_SESSION_MAX];
	size_t size = 0;
	size_t n = 0;
	void *map;
	int r;

	*secrets = (struct secrets){0};
	if (fcntl(SHIM_FD_SECRETS, F_GETFD) < 0)
		return 0;
	map = map_private(STREAM_MAX_BYTES + 1);
	if (!map)
		return err_fail(err, -ENOMEM, "shim-secrets", "memory");
	r = read_stream(map, &size);
	if (r >= 0)
		r = secret_stream_parse(map, size, views, &n);
	if (r >= 0)
		r = secrets_take(secrets, views, n);
	unmap_private(map, STREAM_MAX_BYTES + 1);
	(void)fd_close(SHIM_FD_SECRETS);
	return r < 0 ? err_fail(err, r, "shim-secrets", "records") : 0;
}

void secrets_forget(struct secrets *secrets)
{
	/* Only unmapped: the pages are shared with the processes that go on using them, and
	 * writing would make a copy first. */
	if (secrets->map)
		(void)munmap(secrets->map, secrets->map_bytes);
	*secrets = (struct secrets){0};
}

static bool has_variable(const struct frame_exec *exec, const char *entry)
{
	size_t length = strcspn(entry, "=") + 1;

	for (size_t i = 0; exec->env[i]; i++)
		if (strncmp(exec->env[i], entry, length) == 0)
			return true;
	return false;
}

void secrets_give(const struct secrets *secrets, struct frame_exec *exec)
{
	size_t n = exec->head.n_env;

	_Static_assert(ARRAY_SIZE(exec->env) > EXEC_MAX_ENV + SECRETS_SESSION_MAX, "room");
	for (size_t i = 0; i < secrets->n; i++) {
		if (has_variable(exec, secrets->entry[i]))
			continue;
		exec->env[n++] = secrets->entry[i];
		exec->env[n] = NULL;
	}
	exec->head.n_env = (uint16_t)n;
}
