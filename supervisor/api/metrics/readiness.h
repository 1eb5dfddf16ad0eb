/*
 * What must work before sessions can be made: one row per part, set by whoever knows. Pure.
 */
#pragma once

#include <stdbool.h>

enum readiness_part {
	READINESS_SERVICE,    /* neither starting nor stopping */
	READINESS_SUPERVISOR, /* it answers */
	READINESS_STORE,
	READINESS_EGRESS,   /* its workers are up */
	READINESS_CONFIG,   /* the last reload was taken */
	READINESS_AUDIT,    /* lines are written */
	READINESS_CANARY,   /* it has run, and was refused everything */
	READINESS_REDIS,    /* the platform's server takes frames, or none is configured */
	READINESS_PROVIDER, /* its engine answers, if one is configured */
	READINESS_CELERY,   /* the broker and where results go answer, if there are any */
	READINESS_MAX_,
};

#define READINESS_TEXT_BYTES 128

struct readiness {
	struct {
		bool bad; /* all zero: ready */
		char text[READINESS_TEXT_BYTES];
	} part[READINESS_MAX_];
};

/* text: why not; for operators, so nothing of a tenant. Ignored (may be NULL) where ok. */
void readiness_set(struct readiness *readiness, enum readiness_part part, bool ok,
		   const char *text);
/* The first part that is not ready, or READINESS_MAX_. */
enum readiness_part readiness_first(const struct readiness *readiness);
const char *readiness_name(enum readiness_part part);
