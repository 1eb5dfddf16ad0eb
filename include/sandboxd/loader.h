/*
 * What sandbox-loader writes to its standard output: fixed records, in the order END last. It runs
 * inside a session as `user`, so a reader treats every byte as hostile: text is not NUL-terminated
 * by promise.
 *
 * usage: sandbox-loader DIR   (the session folder; only its top level is read)
 */
#pragma once

#include <stdint.h>

#define LOADER_MAGIC      0x4c4f4144u
#define LOADER_NAME_BYTES 144
#define LOADER_TEXT_BYTES 336

enum loader_record_type {
	LOADER_ASSET = 1, /* name: file name of a top-level *.yaml; sorted by name, bytewise */
	LOADER_PROBLEM =
		2,         /* name (empty: of the folder), line, column (from 1; 0 unknown), text */
	LOADER_STORED = 3, /* name: a *.yml: parsed, reported, never an asset */
	LOADER_END = 4,    /* last record; n_documents is the number of parsed documents */
};

struct loader_record {
	uint32_t magic;
	uint32_t type; /* enum loader_record_type */
	uint32_t line;
	uint32_t column;
	uint32_t n_documents; /* in this file; END: in all */
	uint32_t zero[3];
	char name[LOADER_NAME_BYTES]; /* a longer one is cut to all but the last byte */
	char text[LOADER_TEXT_BYTES];
};
_Static_assert(sizeof(struct loader_record) == 512, "wire");
