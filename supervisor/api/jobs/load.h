/*
 * Records of sandbox-loader (include/sandboxd/loader.h) from the output of a session's process:
 * hostile bytes, cut anywhere. Text is taken up to its NUL or its end, escaped, and bounded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/limits.h"
#include "sandboxd/loader.h"

#define LOAD_MAX_ASSETS   COMPONENTS_MAX /* the loader lists no more */
#define LOAD_MAX_PROBLEMS 4096
#define LOAD_FILE_BYTES   256 /* of an escaped file name, NUL included */
#define LOAD_TEXT_BYTES   512 /* of an escaped text, NUL included */

struct load_asset {
	char file[LOAD_FILE_BYTES]; /* "demo.yaml" */
};

struct load_problem {
	char file[LOAD_FILE_BYTES]; /* "": of the folder as a whole */
	uint32_t line;              /* 0: unknown */
	uint32_t column;
	char text[LOAD_TEXT_BYTES];
};

struct load_result {
	struct load_asset *asset; /* owned, in the order of the records */
	size_t n_assets;
	struct load_problem *problem; /* owned */
	size_t n_problems;
	uint32_t n_documents;
	bool complete; /* the END record came and nothing after it */
};
#define LOAD_RESULT_NULL ((struct load_result){0})
void load_result_done(struct load_result *result);

/* No assets, and one problem of the folder as a whole: the loader did not say more. The text is
 * ours. 0 or -ENOMEM: nothing was changed. */
MUST_USE int load_result_fail(struct load_result *result, const char *text);

struct load_parser {
	struct load_result result;
	struct loader_record partial;
	size_t partial_bytes;
	bool broken;
};
#define LOAD_PARSER_NULL ((struct load_parser){0})
void load_parser_done(struct load_parser *parser);

/* 0; -EBADMSG: no loader wrote this (magic, type, order, counts, a name that is none); -ENOMEM.
 * After an error every further call returns -EBADMSG. */
MUST_USE int load_parser_feed(struct load_parser *parser, const void *data, size_t size);
/* The loader ended with status 0: -EBADMSG unless END was seen. Gives the result away. */
MUST_USE int load_parser_take(struct load_parser *parser, struct load_result *ret_result);

/* File name without its suffix, as asset keys show it: length of the stem. */
size_t load_stem_length(const char *file);
