/*
 * What one session was refused: records for whoever asks why something failed. Pure.
 *
 * Bounded. The same refusal of the same program is one record with a count; where there is no room
 * the oldest record of the kind with the most records goes, so that a flood of one kind hides no
 * other. A program's name, which a caller chose, is escaped and cut before it is kept; the
 * other texts are ours.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"

enum denial_kind {
	DENIAL_SYSCALL,
	DENIAL_FILE,
	DENIAL_NETWORK,
	DENIAL_MEMORY,
	DENIAL_PIDS,
	DENIAL_DISK,
	DENIAL_TIME,
	DENIAL_OUTPUT,
	DENIAL_KIND_MAX_,
};
const char *denial_kind_text(enum denial_kind kind);

#define DENIALS_MAX         128
#define DENIAL_TEXT_BYTES   112
#define DENIAL_ADVICE_BYTES 192
#define DENIAL_COMM_BYTES   65 /* 16 bytes, each of them escaped */

/* Texts are ours, but for comm: a word of a caller. */
struct denial_report {
	enum denial_kind kind;
	uint32_t count;     /* how often; 0: nothing is noted */
	int32_t pid;        /* in the session; 0: not known */
	const char *comm;   /* NULL: not known */
	const char *what;   /* "system call ptrace" */
	const char *rule;   /* what refused it: a limit, a filter */
	const char *source; /* who saw it */
	const char *advice; /* what an operator could change */
};

struct denial {
	usec_t time; /* realtime, of the last one */
	enum denial_kind kind;
	uint32_t count;
	int32_t pid;
	uint32_t told_job;            /* the last job (wire number) that was told of it */
	char comm[DENIAL_COMM_BYTES]; /* escaped; "": not known */
	char what[DENIAL_TEXT_BYTES];
	char rule[DENIAL_TEXT_BYTES];
	char source[DENIAL_TEXT_BYTES];
	char advice[DENIAL_ADVICE_BYTES];
};

struct denials {
	struct denial *record; /* owned; the one that was refused last is the last */
	size_t n;
	size_t n_allocated;
	uint64_t n_dropped; /* records that made room */
	uint64_t n_of[DENIAL_KIND_MAX_];
	/* Counters of the session's tree (struct launch_stat), as far as they are noted. */
	uint32_t oom_kills_seen;
	uint32_t forks_refused_seen;
};
#define DENIALS_NULL ((struct denials){0})

void denials_done(struct denials *denials);
/* Note it. NULL: count 0, or no memory (it is counted all the same). Valid until the next one. */
struct denial *denials_add(struct denials *denials, const struct denial_report *report, usec_t now);
/* True once for each job and thing that was refused, whichever program asked for it. */
bool denials_first_of_job(struct denials *denials, struct denial *denial, uint32_t job);
/* {kind: count, ...}, records from the oldest to the newest. New references or NULL. */
json_t *denial_describe(const struct denial *denial);
json_t *denials_describe(const struct denials *denials, const char *session);
