/*
 * sandbox-template, started and waited for.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/template_jail.h"

#define JAIL_WORDS_MAX 6

/* Whose the files are that it makes or finds, where it does not say otherwise. */
enum jail_owners {
	JAIL_OWNERS_ANY,   /* plain ones where the folder can be mapped, else the block's */
	JAIL_OWNERS_BLOCK, /* the block's, though it could be mapped */
	JAIL_OWNERS_PLAIN, /* plain, though nothing can be mapped: it has these ids of the host, and
			      there no capability. For `remove` alone, which reads no image */
};

struct jail {
	const char *word[JAIL_WORDS_MAX + 1]; /* its arguments; NULL ends them */
	int tree_fd;                          /* the folder that it is given; becomes its root's */
	int source_fd;                        /* a folder or a stream; -1: none */
	int signal_fd;                        /* readable: it is to end at once */
	enum jail_owners owners;
	/* Set: whose the files are that it makes (struct template_record). */
	uint32_t id_base;
};

/*
 * Runs as root in the host's namespaces. 0: *ret_report came, whatever it says; its enum is one and
 * its name is printable and ends. -EINTR: a signal came. -errno with err: it could not be started,
 * or ended without a word.
 */
MUST_USE int jail_run(struct jail *jail, struct template_report *ret_report, struct err *err);
