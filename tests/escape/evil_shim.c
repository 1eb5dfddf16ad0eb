/*
 * A shim that was taken over: it starts as the real one, says that it is ready, and then speaks to
 * the api worker as its mode says. The mode is the session id's first byte, so that a few sessions
 * see them all. E9: the worker must live, bounded, and the other sessions must not notice.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sandboxd/limits.h"
#include "sandboxd/plan.h"
#include "sandboxd/wire.h"

enum mode {
	MODE_SILENT,       /* no HELLO */
	MODE_WRONG_HELLO,  /* another magic */
	MODE_HELLO_TWICE,  /* the second after work has begun */
	MODE_NOISE,        /* random bytes of random length */
	MODE_TYPES,        /* every type with every job, well framed */
	MODE_FLOOD,        /* output of the job without end or regard for credit */
	MODE_NUMBERS,      /* numbers that repeat, jump and wrap */
	MODE_ENDS,         /* ends before the start, twice, with impossible values */
	MODE_LENGTHS,      /* header and message disagree; empty messages */
	MODE_DESCRIPTORS,  /* each message with descriptors */
	MODE_DEAF,         /* takes nothing, says nothing after HELLO */
	MODE_ERR,          /* instead of ready a struct err without any NUL */
	MODE_HALF,         /* half a struct err, then nothing */
	MODE_EXIT,         /* ready, and gone */
	MODE_CLOSE,        /* accepts and closes, over and over */
	MODE_ACKED_FUTURE, /* HELLO says that everything was sent */
	MODE_PLAUSIBLE,    /* what a shim may say, of its jobs, in any order */
	MODE_MAX_,
};

static uint64_t seed = 88172645463325252ull;

static uint64_t next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint8_t message[WIRE_FRAME_MAX_BYTES + 4096];
static uint64_t number;

static void tell_flagged(int fd, uint16_t type, uint32_t job, uint64_t frame_number, uint16_t flags,
			 const void *data, size_t size)
{
	struct wire_header header = {
		.length = (uint32_t)(sizeof(header) + size),
		.type = type,
		.flags = flags,
		.job = job,
		.number = frame_number,
	};

	memcpy(message, &header, sizeof(header));
	if (size > 0)
		memcpy(message + sizeof(header), data, size);
	(void)!send(fd, message, sizeof(header) + size, MSG_NOSIGNAL);
}

static void tell(int fd, uint16_t type, uint32_t job, uint64_t frame_number, const void *data,
		 size_t size)
{
	tell_flagged(fd, type, job, frame_number, 0, data, size);
}

static void hello(int fd, const struct shim_params *params, uint32_t magic, uint64_t acked)
{
	struct wire_hello mine = {
		.magic = magic,
		.version = WIRE_VERSION,
		.header_bytes = sizeof(struct wire_header),
		.acked = acked,
	};

	memcpy(mine.session, params->session, ID_BYTES);
	tell(fd, WIRE_HELLO, 0, 0, &mine, sizeof(mine));
}

static void noise(int fd, int n)
{
	for (int i = 0; i < n; i++) {
		size_t size = next() % (i % 10 == 0 ? sizeof(message) : 200);
		for (size_t j = 0; j < size; j++)
			message[j] = (uint8_t)next();
		(void)!send(fd, message, size, MSG_NOSIGNAL);
	}
}

static void with_descriptors(int fd)
{
	char control[CMSG_SPACE(64 * sizeof(int))] = {0};
	struct iovec vector = {.iov_base = message, .iov_len = sizeof(struct wire_header)};
	struct msghdr header = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *part = CMSG_FIRSTHDR(&header);

	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(64 * sizeof(int));
	for (size_t i = 0; i < 64; i++)
		memcpy(CMSG_DATA(part) + i * sizeof(int), &fd, sizeof(fd));
	for (int i = 0; i < 50; i++)
		(void)!sendmsg(fd, &header, MSG_NOSIGNAL);
}

static void ends(int fd, uint32_t job)
{
	const struct wire_exit end = {
		.code = -999,
		.signal = 1 << 30,
		.flags = UINT32_MAX,
		.user_us = UINT64_MAX,
		.max_rss_kib = UINT64_MAX,
		.dropped_bytes = UINT64_MAX,
	};
	const struct wire_failed failed = {.step = UINT32_MAX, .error_number = INT32_MIN};
	const struct wire_started started = {.pid = -1};

	tell(fd, WIRE_EXIT, job, ++number, &end, sizeof(end));
	tell(fd, WIRE_STARTED, job, 0, &started, sizeof(started));
	tell(fd, WIRE_FAILED, job, ++number, &failed, sizeof(failed));
	tell(fd, WIRE_EXIT, job, ++number, &end, sizeof(end));
	tell(fd, WIRE_PUT_DONE, job, ++number, NULL, 0);
	tell(fd, WIRE_EXIT, job + 1, ++number, &end, sizeof(end));
}

static void numbers(int fd, uint32_t job)
{
	const uint64_t strange[] = {1, 1, 0, 3, 2, UINT64_MAX, UINT64_MAX - 1, 1ull << 63, 4};

	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++)
		tell(fd, WIRE_STDOUT, job, strange[i], "x", 1);
}

static void types(int fd, uint32_t job)
{
	static const uint8_t zeros[256];

	for (uint16_t type = 0; type < 128; type++) {
		for (uint32_t other = 0; other < 3; other++)
			tell(fd, type, other == 2 ? job : other, type >= 64 ? ++number : 0, zeros,
			     next() % sizeof(zeros));
	}
}

static void lengths(int fd, uint32_t job)
{
	struct wire_header header = {.length = 24, .type = WIRE_STDOUT, .job = job};

	for (uint32_t i = 0; i < 64; i++) {
		header.length = i == 0 ? UINT32_MAX : i * 7;
		header.number = ++number;
		(void)!send(fd, &header, i % 2 == 0 ? sizeof(header) : i % sizeof(header),
			    MSG_NOSIGNAL);
	}
	(void)!send(fd, &header, 0, MSG_NOSIGNAL);
}

static void flood(int fd, uint32_t job)
{
	static uint8_t data[WIRE_PAYLOAD_MAX_BYTES];

	for (int i = 0; i < 4000; i++)
		tell(fd, i % 2 ? WIRE_STDERR : WIRE_STDOUT, job, ++number, data, sizeof(data));
}

/* Jobs that were asked for, and the note of the last command. */
static uint32_t jobs[8];
static uint8_t note[WIRE_NOTE_MAX_BYTES];
static size_t note_bytes;

static void remember(const struct wire_header *header, size_t size)
{
	struct wire_exec exec;

	jobs[next() % (sizeof(jobs) / sizeof(jobs[0]))] = header->job;
	if (header->type != WIRE_EXEC || size < sizeof(*header) + sizeof(exec))
		return;
	memcpy(&exec, message + sizeof(*header), sizeof(exec));
	if (exec.note_bytes > sizeof(note) || exec.note_bytes > size)
		return;
	note_bytes = exec.note_bytes;
	memcpy(note, message + size - note_bytes, note_bytes);
}

/* Frames that pass every check of form: their types, their lengths, most of their numbers. */
static void plausible(int fd, unsigned int n)
{
	static const struct {
		uint16_t type;
		uint16_t min;
		uint16_t max;
		bool is_durable;
	} rows[] = {
		{WIRE_STARTED,   sizeof(struct wire_started), sizeof(struct wire_started), false},
		{WIRE_STDOUT,    1,                           9000,                        true },
		{WIRE_STDERR,    1,                           60,                          true },
		{WIRE_EXIT,      sizeof(struct wire_exit),    sizeof(struct wire_exit),    true },
		{WIRE_FAILED,    sizeof(struct wire_failed),  sizeof(struct wire_failed),  true },
		{WIRE_PUT_DONE,  0,                           0,                           true },
		{WIRE_STATS,     sizeof(struct wire_stats),   sizeof(struct wire_stats),   false},
		{WIRE_DENIED,    sizeof(struct wire_denied),  sizeof(struct wire_denied),  false},
		{WIRE_TAKEN,     sizeof(struct wire_taken),   sizeof(struct wire_taken),   false},
		{WIRE_FILE_DATA, 1,                           400,                         false},
	};
	static uint8_t data[9000];

	for (unsigned int i = 0; i < n; i++) {
		size_t row = next() % (sizeof(rows) / sizeof(rows[0]));
		size_t size = rows[row].min + next() % ((size_t)rows[row].max - rows[row].min + 1);
		bool has_job = rows[row].type != WIRE_STATS && rows[row].type != WIRE_DENIED;
		uint32_t job = jobs[next() % (sizeof(jobs) / sizeof(jobs[0]))];

		/* Small numbers, as they are most often. */
		for (size_t j = 0; j < size; j++)
			data[j] = next() % 4 ? 0 : (uint8_t)next();
		tell(fd, rows[row].type, has_job ? job : 0, rows[row].is_durable ? ++number : 0,
		     data, size);
	}
}

/* To a worker that finds this session running: it had kept commands. */
static void plausible_again(int fd)
{
	const struct wire_stats stats = {.n_jobs = (uint32_t)(next() % 3),
					 .frames_held = next() % 8};
	uint8_t block[sizeof(struct wire_kept) + sizeof(note)];

	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
		struct wire_kept kept = {.pid = (int32_t)(next() % 9),
					 .dropped = next() % 5,
					 .stdin_sent = next() % 100,
					 .stdin_taken = next() % 200};

		memcpy(block, &kept, sizeof(kept));
		memcpy(block + sizeof(kept), note, note_bytes);
		block[sizeof(kept) + next() % ID_BYTES] ^= (uint8_t)next();
		tell(fd, WIRE_KEPT, jobs[i], 0, block, sizeof(kept) + note_bytes);
	}
	for (unsigned int i = 0; i < 20; i++)
		tell_flagged(fd, next() % 8 ? WIRE_STDOUT : WIRE_EXIT, jobs[next() % 8],
			     1 + next() % (number + 1), WIRE_AGAIN, block,
			     i % 4 ? sizeof(struct wire_exit) : 1 + next() % 60);
	tell(fd, WIRE_STATS, 0, 0, &stats, sizeof(stats));
	plausible(fd, 10);
}

static void job_came(int fd, enum mode mode, const struct shim_params *params, uint32_t job)
{
	switch ((int)mode) {
	case MODE_HELLO_TWICE:
		hello(fd, params, WIRE_MAGIC, 0);
		break;
	case MODE_NOISE:
		noise(fd, 300);
		break;
	case MODE_TYPES:
		types(fd, job);
		break;
	case MODE_FLOOD:
		flood(fd, job);
		break;
	case MODE_NUMBERS:
		numbers(fd, job);
		break;
	case MODE_ENDS:
		ends(fd, job);
		break;
	case MODE_LENGTHS:
		lengths(fd, job);
		break;
	case MODE_DESCRIPTORS:
		with_descriptors(fd);
		break;
	default:
		break;
	}
}

static void serve(int fd, enum mode mode, const struct shim_params *params)
{
	struct wire_header header;

	if (mode == MODE_CLOSE)
		return;
	if (mode == MODE_SILENT || mode == MODE_DEAF) {
		if (mode == MODE_DEAF)
			hello(fd, params, WIRE_MAGIC, 0);
		(void)sleep(600);
	}
	hello(fd, params, mode == MODE_WRONG_HELLO ? 1 : WIRE_MAGIC,
	      mode == MODE_ACKED_FUTURE ? UINT64_MAX : number);
	if (mode == MODE_PLAUSIBLE && jobs[0] != 0)
		plausible_again(fd);
	for (;;) {
		ssize_t n = recv(fd, message, sizeof(message), 0);
		if (n <= 0)
			return;
		if (n < (ssize_t)sizeof(header))
			continue;
		memcpy(&header, message, sizeof(header));
		if (mode == MODE_PLAUSIBLE && header.job != 0) {
			remember(&header, (size_t)n);
			plausible(fd, (unsigned int)(next() % 6));
		}
		if (header.type == WIRE_EXEC || header.type == WIRE_PUT_END)
			job_came(fd, mode, params, header.job);
	}
}

int main(void)
{
	static uint8_t block[4096];
	struct shim_params params;

	if (read(SHIM_FD_PARAMS, &params, sizeof(params)) != (ssize_t)sizeof(params))
		return 1;
	enum mode mode = (enum mode)(params.session[0] % MODE_MAX_);
	seed ^= params.session[1];
	memset(block, 'A', sizeof(block));
	if (mode == MODE_ERR)
		(void)!write(SHIM_FD_READY, block, sizeof(block));
	if (mode == MODE_HALF)
		(void)!write(SHIM_FD_READY, block, 5);
	if (mode != MODE_ERR && mode != MODE_HALF)
		(void)!write(SHIM_FD_READY, "R", 1);
	(void)close(SHIM_FD_READY);
	if (mode == MODE_EXIT)
		return 0;
	for (;;) {
		int fd = accept4(SHIM_FD_LISTEN, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			return 2;
		serve(fd, mode, &params);
		(void)close(fd);
	}
}
