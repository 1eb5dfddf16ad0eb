/*
 * A policy profile as text, read into statements. Nothing is looked up here but names of constants:
 * what the statements mean together is resolve.c's matter. The language is described, with one
 * example for each statement, in sandbox-policy(5).
 *
 * Pure: files come through a callback, so that the parser is tested and fuzzed on bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"

#include "policy/limit.h"
#include "policy/line.h"
#include "policy/set.h"
#include "sandboxd/policy_image.h"

#define PROFILE_CALL_BYTES     SET_NAME_BYTES
#define PROFILE_MAX_CONDITIONS 3
#define PROFILE_PROGRAMS_BYTES 64
#define PROFILE_MAX_STATEMENTS 2048
#define PROFILE_FILE_MAX_BYTES ((size_t)256 * 1024)

enum profile_action {
	PROFILE_ALLOW,
	PROFILE_ERRNO,
	PROFILE_KILL, /* the whole process */
	PROFILE_ACTION_MAX_,
};

struct profile_verdict {
	enum profile_action action;
	int error_number; /* positive; PROFILE_ERRNO only */
};

/* (low 32 bits of the argument & mask) == value */
struct profile_condition {
	uint32_t arg;
	uint32_t mask;
	uint32_t value;
};

enum profile_type {
	PROFILE_VERDICT, /* allow read @io / errno EPERM mount / kill ...: one call or set each */
	PROFILE_MATCH,   /* socket: arg0 == AF_UNIX allow */
	PROFILE_ELSE,    /* socket: else errno EAFNOSUPPORT */
	PROFILE_NEED,    /* need node java: mprotect: one call each, no verdict */
};

struct profile_statement {
	struct line_where where;
	enum profile_type type;
	struct profile_verdict verdict;
	char call[PROFILE_CALL_BYTES]; /* name, or @set */
	int number; /* `name=number`, for calls that the library does not know yet; else -1 */
	size_t n_conditions; /* MATCH: all must hold */
	struct profile_condition condition[PROFILE_MAX_CONDITIONS];
	char programs[PROFILE_PROGRAMS_BYTES]; /* NEED: names, a space between */
};

struct profile_filter {
	bool present;
	struct line_where where;
	bool has_otherwise;
	struct profile_verdict otherwise; /* `default`: the verdict of every call not named */
	struct profile_statement *statement;
	size_t n_statements;
	size_t n_allocated;
};

struct profile {
	char name[POLICY_NAME_BYTES];
	struct line_where where;
	uint32_t kind; /* enum policy_kind; 0 until it is read */
	uint32_t proc; /* enum policy_proc; 0 until it is read */
	uint32_t root; /* enum policy_root; 0 until it is read */
	struct limit_set limits;
	struct profile_filter filter[POLICY_FILTER_MAX_];
};

/* A file of the policy by its name (`io.set`, `command.rules`): 0 and a buffer that the caller
 * frees, or -errno with err. */
typedef int (*profile_read)(void *userdata, const char *name, char **ret_data, size_t *ret_size,
			    struct err *err);

struct profile_source {
	profile_read read;
	void *userdata;
};

/* Parse one profile. 0, -EINVAL with file:line in err, or -ENOMEM. The caller frees it. */
MUST_USE int profile_parse(const char *file, const char *data, size_t size,
			   const struct profile_source *source, struct profile **ret_profile,
			   struct err *err);
struct profile *profile_free(struct profile *profile);
DEFINE_AUTO(struct profile *, profile_free);

/* Text of a verdict: "allow", "kill", "EPERM". */
const char *profile_verdict_text(struct profile_verdict verdict);
bool profile_verdict_equal(struct profile_verdict a, struct profile_verdict b);
const char *profile_filter_name(enum policy_filter filter);
