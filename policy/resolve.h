/*
 * What the statements of one filter mean together: one entry for each system call number. Sets are
 * opened, names become x86-64 numbers, and whatever is said twice or against itself is an error.
 *
 * resolve_verdict() walks this table; it is the meaning of a policy, against which the exported BPF
 * is compared (equiv.c). It shares nothing with libseccomp but the numbers of names.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"

#include "policy/profile.h"

#define RESOLVE_MAX_NUMBER  1024 /* x86-64 numbers in use end below 500 */
#define RESOLVE_MAX_MATCHES 128

struct resolve_call {
	bool present;     /* said something about; else the filter's default holds */
	bool conditional; /* has matches; `verdict` is theirs, `otherwise` that of the rest */
	bool has_otherwise;
	struct profile_verdict verdict;
	struct profile_verdict otherwise;
	uint32_t first_arg; /* that all matches look at first */
	struct line_where where;
	/* The programs that a command's filter allows it for; "" where nobody said so. */
	char needed_by[PROFILE_PROGRAMS_BYTES];
	struct line_where need_where;
};

struct resolve_match {
	int number;
	size_t n_conditions;
	struct profile_condition condition[PROFILE_MAX_CONDITIONS];
};

struct resolve_filter {
	struct profile_verdict otherwise;
	struct resolve_call call[RESOLVE_MAX_NUMBER];
	struct resolve_match match[RESOLVE_MAX_MATCHES];
	size_t n_matches;
};

/* Told the name of each set that is used; may be NULL. */
typedef void (*resolve_used)(void *userdata, const char *set);

/* 0; -EINVAL with file:line in err (unknown call, said twice, match without else, ...); -ENOMEM. */
MUST_USE int resolve_filter_new(const struct profile_filter *filter,
				const struct profile_source *source, resolve_used used,
				struct resolve_filter **ret_filter, struct err *err);
struct resolve_filter *resolve_filter_free(struct resolve_filter *filter);
DEFINE_AUTO(struct resolve_filter *, resolve_filter_free);

/* Members of a set as numbers: bit n of `member`. 0 or -EINVAL, -ENOMEM. */
MUST_USE int resolve_set(const char *name, const struct profile_source *source,
			 bool member[RESOLVE_MAX_NUMBER], struct err *err);

/* The verdict for a call: arch is an AUDIT_ARCH_ value, nr as the kernel hands it to a filter. */
struct profile_verdict resolve_verdict(const struct resolve_filter *filter, uint32_t arch,
				       uint32_t nr, const uint64_t args[6]);

/* x86-64 name of a number, or NULL. The text is valid until the next call. */
const char *resolve_name(int number, char text[PROFILE_CALL_BYTES]);
