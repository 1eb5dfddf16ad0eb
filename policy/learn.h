/*
 * What system calls a program makes, as policy text. Test builds of the compiler only: while a
 * program is watched it may do what its caller may, so this is a tool for whoever writes a profile,
 * and nothing that a service would start.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/auto.h"
#include "base/err.h"

#include "policy/resolve.h"

#define LEARN_MAX_VALUES 128

/* Distinct values of the argument that a profile has to look at. */
struct learn_values {
	uint32_t value[LEARN_MAX_VALUES];
	size_t n;
	bool overflow; /* there were more */
};

struct learn {
	/* In: what no profile may allow (EPERM), and what it says is not there (ENOSYS). */
	bool refused[RESOLVE_MAX_NUMBER];
	bool absent[RESOLVE_MAX_NUMBER];
	/* Out */
	bool called[RESOLVE_MAX_NUMBER];
	struct learn_values socket, socketpair, ioctl, fcntl, prctl;
	uint32_t n_foreign; /* calls by another ABI, which kill in a session */
	int wait_status;
};

/* Run argv until it and all its descendants have ended; its standard output goes to standard error.
 * 0 or -errno; that the program itself fails is in wait_status. */
MUST_USE int learn_run(struct learn *learn, char *const argv[], struct err *err);

/* Note one call. True: it goes on; false: *ret_error is its answer. */
MUST_USE bool learn_note(struct learn *learn, uint32_t arch, uint32_t number,
			 const uint64_t args[6], int *ret_error);

/* A worker profile of what was called, whose rules fit any filter. 0; -E2BIG: more values of one
 * argument than a rule should list. */
MUST_USE int learn_print(const struct learn *learn, FILE *file);
