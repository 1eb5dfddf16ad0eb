/*
 * The configuration's files as a whole: texts in, struct config_answer out. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/buf.h"

#include "sandboxd/worker.h"

struct config_text {
	const char *name; /* for complaints; NULL: there is one file only */
	const char *text;
	size_t size;
	bool is_readable; /* by others than root */
};

/* One option as a file has it; for people. */
struct config_setting {
	char section[50]; /* the library's own bounds */
	char key[50];
	char value[200]; /* in the file's form */
	unsigned int file;
	unsigned int line;
};
struct config_settings {
	struct config_setting *setting; /* owned */
	size_t n;
};
void config_settings_done(struct config_settings *settings);

/*
 * 0 and *ret_answer, or -EINVAL and one complaint a line in `complaints`: file, line number,
 * section, key, what is wanted; never a value. -ENOMEM. An option of a later file goes before that
 * of an earlier one. ret_settings: what stands in the files, the one in force alone; may be NULL.
 */
MUST_USE int config_parse(const struct config_text *texts, size_t n_texts,
			  struct config_answer *ret_answer, struct config_settings *ret_settings,
			  struct buf *complaints);
