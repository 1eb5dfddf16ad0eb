/*
 * Theory. A frame is checked in one place before anybody looks at its payload, by both ends, and
 * the whole rule is a table: which side may send the type, whether it belongs to a job, whether it
 * is durable (has a number), and how long its payload may be. What a type's payload *means* is its
 * handler's; handlers may rely on the length. The message may lie at any alignment, so it is
 * copied, never cast.
 */
#include "base/frame.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/path.h"

#define ANY WIRE_PAYLOAD_MAX_BYTES

struct frame_rule {
	uint16_t type;
	const char *name;
	uint8_t directions; /* enum frame_direction bits */
	bool is_durable;
	bool has_job;
	size_t min_bytes; /* payload */
	size_t max_bytes;
};

#define BOTH        (FRAME_TO_SHIM | FRAME_FROM_SHIM)
#define FIXED(type) sizeof(type), sizeof(type)

/* clang-format off */
static const struct frame_rule rules[] = {
	/* type, name, directions, durable, job, payload min, max */
	{WIRE_HELLO,     "hello",     BOTH,            false, false, FIXED(struct wire_hello)},
	{WIRE_EXEC,      "exec",      FRAME_TO_SHIM,   false, true,  sizeof(struct wire_exec) + 1, ANY},
	{WIRE_STDIN,     "stdin",     FRAME_TO_SHIM,   false, true,  1, ANY},
	{WIRE_STDIN_EOF, "stdin_eof", FRAME_TO_SHIM,   false, true,  0, 0},
	{WIRE_CANCEL,    "cancel",    FRAME_TO_SHIM,   false, true,  0, 0},
	{WIRE_CREDIT,    "credit",    FRAME_TO_SHIM,   false, false, FIXED(struct wire_credit)},
	{WIRE_PUT,       "put",       FRAME_TO_SHIM,   false, true,  sizeof(struct wire_put) + 2,
								     sizeof(struct wire_put) + EXEC_CWD_BYTES},
	{WIRE_PUT_DATA,  "put_data",  FRAME_TO_SHIM,   false, true,  1, ANY},
	{WIRE_PUT_END,   "put_end",   FRAME_TO_SHIM,   false, true,  0, 0},
	{WIRE_PING,      "ping",      FRAME_TO_SHIM,   false, false, 0, 0},
	{WIRE_SIGNAL,    "signal",    FRAME_TO_SHIM,   false, true,  FIXED(struct wire_signal)},
	{WIRE_RESIZE,    "resize",    FRAME_TO_SHIM,   false, true,  FIXED(struct wire_size)},
	{WIRE_FORGET,    "forget",    FRAME_TO_SHIM,   false, true,  0, 0},
	{WIRE_FILE,      "file",      FRAME_TO_SHIM,   false, true,  sizeof(struct wire_file) + 2,
								     sizeof(struct wire_file) + (size_t)2 * FILE_PATH_BYTES},
	{WIRE_FILE_CREDIT, "file_credit", FRAME_TO_SHIM, false, true, FIXED(struct wire_credit)},
	{WIRE_PAUSE,     "pause",     FRAME_TO_SHIM,   false, false, FIXED(struct wire_pause)},
	{WIRE_STARTED,   "started",   FRAME_FROM_SHIM, false, true,  FIXED(struct wire_started)},
	{WIRE_STDOUT,    "stdout",    FRAME_FROM_SHIM, true,  true,  1, ANY},
	{WIRE_STDERR,    "stderr",    FRAME_FROM_SHIM, true,  true,  1, ANY},
	{WIRE_EXIT,      "exit",      FRAME_FROM_SHIM, true,  true,  FIXED(struct wire_exit)},
	{WIRE_FAILED,    "failed",    FRAME_FROM_SHIM, true,  true,  FIXED(struct wire_failed)},
	{WIRE_PUT_DONE,  "put_done",  FRAME_FROM_SHIM, true,  true,  0, 0},
	{WIRE_STATS,     "stats",     FRAME_FROM_SHIM, false, false, FIXED(struct wire_stats)},
	{WIRE_DENIED,    "denied",    FRAME_FROM_SHIM, false, false, FIXED(struct wire_denied)},
	{WIRE_TAKEN,     "taken",     FRAME_FROM_SHIM, false, true,  FIXED(struct wire_taken)},
	{WIRE_KEPT,      "kept",      FRAME_FROM_SHIM, false, true,  sizeof(struct wire_kept),
								     sizeof(struct wire_kept) + WIRE_NOTE_MAX_BYTES},
	{WIRE_FILE_DATA, "file_data", FRAME_FROM_SHIM, false, true,  1, ANY},
};
/* clang-format on */
_Static_assert(ARRAY_SIZE(rules) ==
		       1 + (WIRE_PAUSE - WIRE_EXEC + 1) + (WIRE_FILE_DATA - WIRE_STARTED + 1),
	       "one rule per frame type");

static const char *const step_names[] = {
	[0] = "?",
	[WIRE_STEP_REQUEST] = "request",
	[WIRE_STEP_BUSY] = "busy",
	[WIRE_STEP_PIPE] = "pipe",
	[WIRE_STEP_FORK] = "fork",
	[WIRE_STEP_IDS] = "ids",
	[WIRE_STEP_CWD] = "cwd",
	[WIRE_STEP_EXEC] = "exec",
	[WIRE_STEP_OPEN] = "open",
	[WIRE_STEP_WRITE] = "write",
	[WIRE_STEP_RENAME] = "rename",
	[WIRE_STEP_SPAWNER_LOST] = "spawner_lost",
	[WIRE_STEP_HELPER_LOST] = "helper_lost",
	[WIRE_STEP_PTY] = "pty",
};
_Static_assert(ARRAY_SIZE(step_names) == WIRE_STEP_MAX_, "one name per step");

static const struct frame_rule *find_rule(uint16_t type)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].type == type)
			return &rules[i];
	return NULL;
}

const char *frame_type_name(uint16_t type)
{
	const struct frame_rule *rule = find_rule(type);

	return rule ? rule->name : "?";
}

const char *frame_step_name(uint32_t step)
{
	return step < ARRAY_SIZE(step_names) ? step_names[step] : "?";
}

bool frame_is_durable(uint16_t type)
{
	const struct frame_rule *rule = find_rule(type);

	return rule && rule->is_durable;
}

int frame_check(const void *message, size_t size, enum frame_direction direction,
		struct wire_header *ret_header, const uint8_t **ret_payload,
		size_t *ret_payload_bytes)
{
	const struct frame_rule *rule;
	struct wire_header header;
	size_t payload_bytes;
	uint32_t known = 0;

	if (size < sizeof(header) || size > WIRE_FRAME_MAX_BYTES)
		return -EBADMSG;
	memcpy(&header, message, sizeof(header));
	if (header.length != size || header.zero != 0)
		return -EBADMSG;
	rule = find_rule(header.type);
	if (!rule || !(rule->directions & direction))
		return -EBADMSG;
	/* What a later shim has beside that is no error. */
	if (header.type == WIRE_HELLO && direction == FRAME_FROM_SHIM)
		known = UINT16_MAX;
	else if (rule->is_durable)
		known = WIRE_AGAIN;
	if ((header.flags & ~known) != 0)
		return -EBADMSG;
	if ((header.job != 0) != rule->has_job || (header.number != 0) != rule->is_durable)
		return -EBADMSG;
	payload_bytes = size - sizeof(header);
	if (payload_bytes < rule->min_bytes || payload_bytes > rule->max_bytes)
		return -EBADMSG;
	*ret_header = header;
	*ret_payload = (const uint8_t *)message + sizeof(header);
	*ret_payload_bytes = payload_bytes;
	return 0;
}

struct wire_header frame_header(uint16_t type, uint32_t job, uint64_t number, size_t payload_bytes)
{
	ASSERT(payload_bytes <= WIRE_PAYLOAD_MAX_BYTES);
	return (struct wire_header){
		.length = (uint32_t)(sizeof(struct wire_header) + payload_bytes),
		.type = type,
		.job = job,
		.number = number,
	};
}

struct wire_hello frame_hello(const uint8_t session[ID_BYTES], uint64_t acked)
{
	struct wire_hello hello = {
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.header_bytes = sizeof(struct wire_header),
		.acked = acked,
	};

	memcpy(hello.session, session, ID_BYTES);
	return hello;
}

int frame_hello_check(const struct wire_hello *hello, const uint8_t session[ID_BYTES])
{
	if (hello->magic != WIRE_MAGIC)
		return -EPROTO;
	if (hello->version != WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (hello->header_bytes != sizeof(struct wire_header) ||
	    memcmp(hello->session, session, ID_BYTES) != 0)
		return -EPROTO;
	return 0;
}

/* Where frame_exec_build writes. */
struct string_writer {
	uint8_t *at;
	size_t left;
};

static int put_string(struct string_writer *writer, const char *text)
{
	size_t bytes = strlen(text) + 1;

	if (bytes > writer->left)
		return -E2BIG;
	memcpy(writer->at, text, bytes);
	writer->at += bytes;
	writer->left -= bytes;
	return 0;
}

static int put_strings(struct string_writer *writer, const char *const *strings, size_t max,
		       uint16_t *ret_n)
{
	size_t n = 0;

	for (; strings && strings[n]; n++) {
		int r;

		if (n == max)
			return -E2BIG;
		r = put_string(writer, strings[n]);
		if (r < 0)
			return r;
	}
	*ret_n = (uint16_t)n;
	return 0;
}

/* Eight parameters: four of them are the strings and the note, which have no other common home.
 * NOLINTNEXTLINE(readability-function-size) */
int frame_exec_build(void *dest, size_t dest_bytes, const struct wire_exec *head, const char *cwd,
		     const char *const *argv, const char *const *env, const void *note,
		     size_t *ret_size)
{
	size_t space = dest_bytes < WIRE_PAYLOAD_MAX_BYTES ? dest_bytes : WIRE_PAYLOAD_MAX_BYTES;
	struct string_writer writer;
	struct wire_exec filled = *head;
	int r;

	if (space < sizeof(filled) || strlen(cwd) >= EXEC_CWD_BYTES)
		return -E2BIG;
	writer.at = (uint8_t *)dest + sizeof(filled);
	writer.left = space - sizeof(filled);
	r = put_string(&writer, cwd);
	if (r < 0)
		return r;
	r = put_strings(&writer, argv, EXEC_MAX_ARGV, &filled.n_argv);
	if (r < 0)
		return r;
	r = put_strings(&writer, env, EXEC_MAX_ENV, &filled.n_env);
	if (r < 0)
		return r;
	filled.strings_bytes = (uint32_t)(space - sizeof(filled) - writer.left);
	if (filled.note_bytes > writer.left)
		return -E2BIG;
	if (filled.note_bytes > 0)
		memcpy(writer.at, note, filled.note_bytes);
	memcpy(dest, &filled, sizeof(filled));
	*ret_size = sizeof(filled) + filled.strings_bytes + filled.note_bytes;
	return 0;
}

static int exec_head_check(const struct wire_exec *head, size_t rest_bytes)
{
	const uint32_t known = WIRE_EXEC_STDIN | WIRE_EXEC_ROOT | WIRE_EXEC_KEEP | WIRE_EXEC_PTY;
	bool has_pty = (head->flags & WIRE_EXEC_PTY) != 0;

	if ((head->flags & ~known) != 0 || head->zero != 0 || head->program >= WIRE_PROGRAM_MAX_ ||
	    head->note_bytes > WIRE_NOTE_MAX_BYTES || head->note_bytes > rest_bytes ||
	    head->strings_bytes != rest_bytes - head->note_bytes)
		return -EBADMSG;
	if (has_pty != (head->size.rows > 0 && head->size.cols > 0))
		return -EBADMSG;
	/* Our other jail tools are for `user`. */
	if ((head->flags & WIRE_EXEC_ROOT) && head->program != WIRE_PROGRAM_ARGV &&
	    head->program != WIRE_PROGRAM_ARCHIVE)
		return -EBADMSG;
	/* A program always gets its own name: argc 0 is a classic hole (CVE-2021-4034). */
	if (head->n_argv == 0 || head->n_argv > EXEC_MAX_ARGV || head->n_env > EXEC_MAX_ENV)
		return -EBADMSG;
	return 0;
}

static int get_strings(struct buf_reader *reader, const char **strings, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		size_t length;
		int r = buf_get_str(reader, &strings[i], &length);

		if (r < 0)
			return r;
	}
	strings[n] = NULL;
	return 0;
}

int frame_exec_parse(const uint8_t *payload, size_t size, struct frame_exec *ret_exec)
{
	struct buf_reader reader = {.data = payload, .size = size};
	struct wire_exec head;
	const char *cwd;
	size_t length;
	int r;

	r = buf_get(&reader, &head, sizeof(head));
	if (r < 0)
		return r;
	r = exec_head_check(&head, size - sizeof(head));
	if (r < 0)
		return r;
	reader.size -= head.note_bytes;
	r = buf_get_str(&reader, &cwd, &length);
	if (r < 0)
		return r;
	if (length == 0 || length >= EXEC_CWD_BYTES)
		return -EBADMSG;
	/* From here on *ret_exec is filled piece by piece: 10 KiB are not copied for the sake of a
	 * failure, whose caller drops the struct as a whole. */
	r = get_strings(&reader, ret_exec->argv, head.n_argv);
	if (r < 0)
		return r;
	r = get_strings(&reader, ret_exec->env, head.n_env);
	if (r < 0)
		return r;
	if (reader.at != reader.size)
		return -EBADMSG;
	for (size_t i = 0; i < head.n_env; i++) {
		const char *equals = strchr(ret_exec->env[i], '=');

		if (!equals || equals == ret_exec->env[i])
			return -EBADMSG;
	}
	ret_exec->head = head;
	ret_exec->cwd = cwd;
	ret_exec->note = payload + reader.size;
	return 0;
}

/* A path of a file operation: "." or components that are no "." and no "..". */
static bool file_path_check(const char *path, size_t bytes)
{
	if (bytes < 2 || bytes > FILE_PATH_BYTES || strnlen(path, bytes) != bytes - 1)
		return false;
	return strcmp(path, ".") == 0 || path_check_relative(path) == 0;
}

static bool file_has_target(const struct wire_file *head)
{
	return head->op == WIRE_FILE_MOVE || head->op == WIRE_FILE_COPY;
}

int frame_file_parse(const uint8_t *payload, size_t size, struct frame_file *ret_file)
{
	const uint32_t known = WIRE_FILE_RECURSIVE | WIRE_FILE_KEEP | WIRE_FILE_LAST;
	struct frame_file file = {0};

	if (size <= sizeof(file.head))
		return -EBADMSG;
	memcpy(&file.head, payload, sizeof(file.head));
	file.path = (const char *)payload + sizeof(file.head);
	if (file.head.op == 0 || file.head.op >= WIRE_FILE_OP_MAX_ ||
	    (file.head.flags & ~known) != 0 || file.head.root >= WIRE_FILE_ROOT_MAX_ ||
	    file.head.to_root >= WIRE_FILE_ROOT_MAX_ ||
	    (size_t)file.head.path_bytes + file.head.to_bytes != size - sizeof(file.head) ||
	    !file_path_check(file.path, file.head.path_bytes) ||
	    file_has_target(&file.head) != (file.head.to_bytes > 0))
		return -EBADMSG;
	if (file.head.to_bytes > 0) {
		file.to = file.path + file.head.path_bytes;
		if (!file_path_check(file.to, file.head.to_bytes))
			return -EBADMSG;
	}
	*ret_file = file;
	return 0;
}
