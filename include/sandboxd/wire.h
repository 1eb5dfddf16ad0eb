/*
 * Frames on the socket between the api worker and a session's shim.
 *
 * SOCK_SEQPACKET: one frame is one message, read whole or not at all. Integers are in host order:
 * both ends are on one host and of one release or its neighbour, and HELLO carries the version.
 *
 * Theory. Frames from the shim that carry output or an end of a job are *durable*: each has a
 * number, counted per session from 1. The api worker commits them (or, for a foreground command,
 * hands them to its client) and then sends CREDIT with the highest number that it will not ask for
 * again. The shim keeps what is not yet acknowledged in one ring of SHIM_RING_BYTES per running
 * job; when the ring is full it stops reading the command's pipes, so the kernel blocks the
 * command. After a new connection HELLO carries `acked`, and the shim sends everything above it
 * again, in order. A number is never reused.
 *
 * What a command with WIRE_EXEC_KEEP said stays in its ring also when it is acknowledged, until
 * room is needed, and its end until WIRE_FORGET: a new connection hears of it by WIRE_KEPT and then
 * gets it all again, under the old numbers. Frames that were acknowledged before have WIRE_AGAIN
 * and are not counted.
 *
 * File operations (WIRE_FILE) live as long as their connection: their bytes are not durable, only
 * their end is. Either side has at most WIRE_FILE_WINDOW_BYTES on the way that the other has not
 * taken: those to a file are answered by WIRE_TAKEN, those from one by WIRE_FILE_CREDIT. Where the
 * connection ends they are cancelled, and a file that was not whole is as if it never was.
 *
 * Everything a shim says is hostile input to the api worker.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/limits.h"

#define WIRE_MAGIC   0x53425831u /* "SBX1" */
#define WIRE_VERSION 3

struct wire_header {
	uint32_t length; /* header and payload, in bytes; equals the size of the message */
	uint16_t type;   /* enum wire_type */
	uint16_t flags;  /* enum wire_header_flags */
	uint32_t job;    /* chosen by the api worker, never 0 for a frame of a job */
	uint32_t zero;
	uint64_t number; /* durable frames of the shim; else 0 */
};
_Static_assert(sizeof(struct wire_header) == 24, "the header is part of the wire");

enum wire_header_flags {
	WIRE_AGAIN = 1, /* output or end of a kept command that was acknowledged before */
};

/* The flags of a shim's HELLO: what it has that the first one of this version had not. */
enum wire_features {
	WIRE_FEATURE_ARCHIVE = 1, /* WIRE_PROGRAM_ARCHIVE */
	WIRE_FEATURE_GIT = 2,     /* WIRE_PROGRAM_GIT */
	WIRE_FEATURE_PAUSE = 4,   /* WIRE_PAUSE */
	WIRE_FEATURE_WATCH = 16,  /* WIRE_FILE_WATCH */
	WIRE_FEATURE_SPACE = 32,  /* WIRE_FILE_SPACE */
	/* No command of `root` was begun in this tree so far: programs and libraries of a root
	 * that can be written to are as they were. */
	WIRE_FEATURE_UNTOUCHED = 64,
};
#define WIRE_FEATURES                                                                              \
	(WIRE_FEATURE_ARCHIVE | WIRE_FEATURE_GIT | WIRE_FEATURE_PAUSE | WIRE_FEATURE_WATCH |       \
	 WIRE_FEATURE_SPACE) /* of this release's, always */

enum wire_type {
	WIRE_HELLO = 1, /* both ways, first message of a connection: struct wire_hello */

	/* api worker to shim */
	WIRE_EXEC = 16, /* struct wire_exec and its strings */
	WIRE_STDIN,     /* bytes */
	WIRE_STDIN_EOF, /* empty */
	WIRE_CANCEL,    /* empty; the job's process tree gets TERM, after the grace KILL */
	WIRE_CREDIT,    /* struct wire_credit; header.job 0 */
	WIRE_PUT,       /* struct wire_put: a file follows in WIRE_PUT_DATA frames */
	WIRE_PUT_DATA,  /* bytes */
	WIRE_PUT_END,   /* empty */
	WIRE_PING,      /* empty; answered by WIRE_STATS */
	WIRE_SIGNAL,    /* struct wire_signal; to a command that runs */
	WIRE_RESIZE,    /* struct wire_size; of its terminal */
	WIRE_FORGET,    /* empty; a kept command that has ended is not asked for again */
	/* struct wire_file and its paths. For WIRE_FILE_PUT the bytes follow as after WIRE_PUT */
	WIRE_FILE,
	WIRE_FILE_CREDIT, /* struct wire_credit: bytes of WIRE_FILE_DATA that were taken, in all */
	/* struct wire_pause; header.job 0. All of the session is about to be frozen, or was thawed:
	 * the time in between counts for no timeout of its jobs. WIRE_FEATURE_PAUSE */
	WIRE_PAUSE,

	/* shim to api worker */
	/* struct wire_started; on a new connection once more for each command that runs */
	WIRE_STARTED = 64,
	WIRE_STDOUT, /* bytes; durable */
	WIRE_STDERR, /* bytes; durable */
	WIRE_EXIT,   /* struct wire_exit; durable; the last frame of its command */
	WIRE_FAILED, /* struct wire_failed; durable; the last frame of its job: it did not start or
			finish */
	WIRE_PUT_DONE, /* empty; durable; the file is in place, or the file operation done */
	WIRE_STATS,    /* struct wire_stats */
	WIRE_DENIED,   /* struct wire_denied: the command filter refused calls; at a bounded rate */
	WIRE_TAKEN, /* struct wire_taken: standard input went on; at most one waits per command */
	/* struct wire_kept and the note: first on a new connection, once per kept command; STARTED
	 * follows only where it has not started yet */
	WIRE_KEPT,
	WIRE_FILE_DATA, /* what a file operation found: struct wire_file_entry, and what follows it
			   by the operation. Bytes of a stream: a frame may end anywhere */
};

struct wire_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t header_bytes; /* sizeof(struct wire_header) */
	uint8_t session[ID_BYTES];
	uint64_t acked; /* api worker: highest number committed. shim: highest number sent so far */
};
_Static_assert(sizeof(struct wire_hello) == 32, "wire");

enum wire_program {
	WIRE_PROGRAM_ARGV = 0,   /* argv[0], searched in PATH of the given environment */
	WIRE_PROGRAM_LOADER = 1, /* the jail tool sandbox-loader, by its sealed descriptor */
	WIRE_PROGRAM_GIT = 2,    /* the jail tool sandbox-git (git.h), the same way */
	/* The jail tool sandbox-archive (archive.h), the same way; also with WIRE_EXEC_ROOT. What
	 * it says is not masked. */
	WIRE_PROGRAM_ARCHIVE = 3,
	WIRE_PROGRAM_MAX_,
};

enum wire_exec_flags {
	WIRE_EXEC_STDIN = 1, /* WIRE_STDIN frames follow; without it stdin is /dev/null */
	WIRE_EXEC_ROOT = 2,  /* as uid 0 of the session; only where the profile has root commands */
	WIRE_EXEC_KEEP = 4,  /* output and end are kept for another connection, until WIRE_FORGET */
	WIRE_EXEC_PTY = 8,   /* on a terminal of `size`, which is all three of its descriptors and
				takes WIRE_STDIN; its output is WIRE_STDOUT */
};

struct wire_size {
	uint16_t rows;
	uint16_t cols;
};

/* Followed by cwd, argv and env, each string with its NUL, in this order; `env` entries are
 * NAME=VALUE. Then the note, which means nothing to the shim. */
struct wire_exec {
	uint32_t flags;   /* enum wire_exec_flags */
	uint16_t program; /* enum wire_program */
	uint16_t n_argv;
	uint16_t n_env;
	uint16_t note_bytes; /* at most WIRE_NOTE_MAX_BYTES */
	uint32_t
		timeout_ms; /* 0: none; then TERM, after grace_ms KILL, to the whole process tree */
	uint32_t grace_ms;
	uint32_t strings_bytes;
	uint64_t output_rate_bytes; /* a second, stdout and stderr together; 0: unlimited */
	uint64_t output_max_bytes;  /* what is beyond is read and dropped, and the exit says
				       truncated; 0: unlimited */
	struct wire_size size;      /* WIRE_EXEC_PTY */
	uint32_t zero;
};
_Static_assert(sizeof(struct wire_exec) == 48, "wire");

enum wire_signal_scope {
	WIRE_SIGNAL_GROUP, /* the process group that the command began with */
	WIRE_SIGNAL_LEADER,
	WIRE_SIGNAL_TREE, /* every descendant */
	WIRE_SIGNAL_MAX_,
};

struct wire_signal {
	uint32_t number; /* 1..64 */
	uint32_t scope;  /* enum wire_signal_scope */
};

struct wire_credit {
	uint64_t acked;
};

/* A regular file below /session, replaced atomically (temporary name, rename), owned by `user`. */
struct wire_put {
	uint32_t mode;       /* permission bits */
	uint32_t path_bytes; /* NUL included; relative to /session; follows this struct */
	uint64_t size_bytes; /* announced; a different number of data bytes fails the job */
};

struct wire_pause {
	uint32_t is_paused;
	uint32_t zero;
};
_Static_assert(sizeof(struct wire_pause) == 8, "wire");

enum wire_file_op {
	/* All but LIST, REMOVE and GET answer with one entry: what is there then. */
	WIRE_FILE_STAT = 1, /* a link itself */
	WIRE_FILE_LIST, /* an entry and its names for each; one without a name: there are more */
	WIRE_FILE_GET,  /* its entry, then the bytes */
	WIRE_FILE_PUT,
	WIRE_FILE_MKDIR, /* and the folders on the way; one that is there is as good */
	WIRE_FILE_REMOVE,
	WIRE_FILE_MOVE,
	WIRE_FILE_COPY,
	WIRE_FILE_CHMOD, /* not of a link */
	WIRE_FILE_WATCH, /* a folder: struct wire_file_event for each change, until it is cancelled
			    or the folder is gone */
	WIRE_FILE_SPACE, /* struct wire_file_space of root, then of to_root; the path is "." */
	WIRE_FILE_OP_MAX_,
};

enum wire_file_root {
	WIRE_FILE_SESSION,
	WIRE_FILE_TMP,
	WIRE_FILE_ROOT_MAX_,
};

enum wire_file_flags {
	WIRE_FILE_RECURSIVE = 1, /* REMOVE, COPY, WATCH: a folder with all in it */
	WIRE_FILE_KEEP = 2,      /* PUT, MOVE, COPY: what is at the target is not replaced */
	WIRE_FILE_LAST = 4,      /* GET: the last `size` bytes */
};

/* Followed by the path and, for MOVE and COPY, the target's, each with its NUL: relative to their
 * roots, "." for the root itself. Links on the way count where they stay below the root. */
struct wire_file {
	uint16_t op;    /* enum wire_file_op */
	uint16_t flags; /* enum wire_file_flags */
	uint16_t root;  /* enum wire_file_root */
	uint16_t to_root;
	uint16_t path_bytes; /* NUL included */
	uint16_t to_bytes;   /* 0: none */
	uint32_t mode;       /* PUT, MKDIR, CHMOD: permission bits */
	uint64_t offset;     /* GET */
	uint64_t size;       /* GET: bytes at most. LIST: entries at most */
};
_Static_assert(sizeof(struct wire_file) == 32, "wire");

/* Followed by the name and the target of a link, without NUL. */
struct wire_file_entry {
	uint64_t size;
	int64_t mtime_ns; /* since 1970 */
	uint64_t inode;
	uint32_t mode; /* with the type; 0: no entry, but there are more */
	uint32_t uid;  /* in the session */
	uint32_t gid;
	uint16_t name_bytes; /* LIST */
	uint16_t target_bytes;
};
_Static_assert(sizeof(struct wire_file_entry) == 40, "wire");

struct wire_file_space {
	uint64_t size_bytes;
	uint64_t used_bytes;
	uint64_t max_inodes;
	uint64_t used_inodes;
};
_Static_assert(sizeof(struct wire_file_space) == 32, "wire");

enum wire_file_event_kind {
	WIRE_EVENT_READY = 1, /* the first: what changes from now on is told */
	WIRE_EVENT_CREATED,   /* also what came from elsewhere; in a new folder maybe twice */
	WIRE_EVENT_MODIFIED,
	WIRE_EVENT_CLOSED,   /* one who could write to it is done */
	WIRE_EVENT_CHANGED,  /* mode, owner, times */
	WIRE_EVENT_MOVED,    /* with its former path */
	WIRE_EVENT_REMOVED,  /* also what went elsewhere */
	WIRE_EVENT_OVERFLOW, /* some were lost, or not all folders are watched */
	WIRE_EVENT_GONE,     /* the last: the folder itself was removed or moved */
	WIRE_EVENT_MAX_,
};

/* Followed by the path below the watched folder and the former one, without NUL; "" is the folder
 * itself. */
struct wire_file_event {
	uint16_t kind;      /* enum wire_file_event_kind */
	uint16_t is_folder; /* 0 or 1 */
	uint16_t path_bytes;
	uint16_t from_bytes;
};
_Static_assert(sizeof(struct wire_file_event) == 8, "wire");

struct wire_started {
	int32_t pid; /* in the session's PID namespace */
};

enum wire_exit_flags {
	WIRE_EXIT_TIMED_OUT = 1,
	WIRE_EXIT_TRUNCATED = 2,
	WIRE_EXIT_CANCELLED = 4,
};

struct wire_exit {
	int32_t code;   /* 0..255, or -1 when a signal ended it */
	int32_t signal; /* or 0 */
	uint32_t flags; /* enum wire_exit_flags */
	uint32_t zero;
	uint64_t user_us;
	uint64_t system_us;
	uint64_t max_rss_kib;
	uint64_t dropped_bytes; /* output beyond output_max_bytes */
};
_Static_assert(sizeof(struct wire_exit) == 48, "wire");

/* Steps at which a job can fail; names in base/frame.c. */
enum wire_step {
	WIRE_STEP_REQUEST = 1, /* the frame itself is wrong */
	WIRE_STEP_BUSY,        /* SHIM_MAX_JOBS reached */
	WIRE_STEP_PIPE,
	WIRE_STEP_FORK,
	WIRE_STEP_IDS,
	WIRE_STEP_CWD,
	WIRE_STEP_EXEC,
	WIRE_STEP_OPEN,
	WIRE_STEP_WRITE,
	WIRE_STEP_RENAME,
	WIRE_STEP_SPAWNER_LOST,
	WIRE_STEP_HELPER_LOST,
	WIRE_STEP_PTY,
	WIRE_STEP_MAX_,
};

struct wire_failed {
	uint32_t step;        /* enum wire_step */
	int32_t error_number; /* errno, positive; 0 where none applies */
};

struct wire_denied {
	int32_t number; /* of the system call */
	int32_t pid;    /* the last one that called, in the session's PID namespace */
	uint32_t count;
	uint32_t zero;
};
_Static_assert(sizeof(struct wire_denied) == 16, "wire");

struct wire_taken {
	uint64_t taken;     /* bytes of WIRE_STDIN since the start that do not wait any more */
	uint32_t is_closed; /* 1: nobody reads it any more; what comes is dropped */
	uint32_t zero;
};
_Static_assert(sizeof(struct wire_taken) == 16, "wire");

enum wire_kept_flags {
	WIRE_KEPT_RUNS = 1,
	WIRE_KEPT_STDIN = 2, /* it takes more input */
};

struct wire_kept {
	int32_t pid;         /* 0: not started */
	uint32_t flags;      /* enum wire_kept_flags */
	uint64_t dropped;    /* highest number whose frame made room for later ones; 0: none did */
	uint64_t stdin_sent; /* bytes of WIRE_STDIN that came */
	uint64_t stdin_taken;
};
_Static_assert(sizeof(struct wire_kept) == 32, "wire");

struct wire_stats {
	uint32_t n_jobs;
	uint32_t n_orphans_reaped;
	uint64_t frames_held;
	uint64_t bytes_held;
};
