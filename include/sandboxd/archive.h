/*
 * sandbox-archive: a workspace of a session as one stream, and back.
 *
 * usage: sandbox-archive create|extract|replace MAX_BYTES MAX_ENTRIES [-x PATTERN]... PATH...
 *
 * `create` writes what is at the absolute PATHs to standard output: tar (pax) in zstd. `extract`
 * reads such a stream, or gzip or plain tar, from standard input and makes what lies at or below
 * the PATHs, in folders where none of it is yet; `replace` removes what is there first, but for
 * what the patterns name. All run inside the session, under its policy, and end standard error with
 * one struct archive_summary. A reader treats every byte of either as hostile.
 */
#pragma once

#include <stdint.h>

#define ARCHIVE_MAGIC          0x41524356u
#define ARCHIVE_NAME_BYTES     256
#define ARCHIVE_PATH_MAX       4095 /* of a name in an archive */
/* Of one file with its holes: those cost nothing to store, but the time to count them. */
#define ARCHIVE_FILE_MAX_BYTES (16ull << 40)

enum archive_error {
	ARCHIVE_E_NONE,
	ARCHIVE_E_SYSTEM,      /* error_number says what */
	ARCHIVE_E_EMPTY,       /* create: nothing is at any of the paths */
	ARCHIVE_E_BYTES,       /* more than MAX_BYTES, or a file beyond ARCHIVE_FILE_MAX_BYTES */
	ARCHIVE_E_ENTRIES,     /* more than MAX_ENTRIES */
	ARCHIVE_E_NAME,        /* too long, absolute, or with a component that is no name */
	ARCHIVE_E_OUTSIDE,     /* extract: below none of the paths */
	ARCHIVE_E_LINK_ON_WAY, /* a folder of the path is a link */
	ARCHIVE_E_TYPE,      /* extract: a device, a fifo, or what else is no file, folder, link */
	ARCHIVE_E_DUPLICATE, /* extract: it is there already */
	ARCHIVE_E_HARD_LINK, /* extract: to what is no file of this archive */
	ARCHIVE_E_FORMAT,    /* extract: the stream is not what it says */
	ARCHIVE_E_MAX_,
};

struct archive_summary {
	uint32_t magic;
	uint32_t error;       /* enum archive_error */
	int32_t error_number; /* positive; 0 where none applies */
	uint32_t n_missing;   /* create: of the paths */
	uint64_t n_entries;
	uint64_t n_bytes;    /* content of files, without holes */
	uint64_t n_left_out; /* create: sockets and the like, what cannot be read, other mounts */
	uint64_t n_changed;  /* create: files that were written to meanwhile */
	char name[ARCHIVE_NAME_BYTES]; /* where it failed, cut; no NUL by promise */
};
_Static_assert(sizeof(struct archive_summary) == 304, "wire");
