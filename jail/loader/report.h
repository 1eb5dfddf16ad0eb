/*
 * The records that the loader writes (include/sandboxd/loader.h).
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/buf.h"

#include "sandboxd/loader.h"

/* Problems of one file; a broken file has no more to say after that many. */
#define REPORT_FILE_MAX_PROBLEMS 16

struct report {
	struct buf records;  /* written out at the end of each file */
	const char *name;    /* of the current file */
	uint32_t n_problems; /* of the current file */
};

/* A problem of the current file. line and column from 1; 0: unknown. text: one line. 0 or -ENOMEM.
 */
MUST_USE int report_problem(struct report *report, uint64_t line, uint64_t column,
			    const char *format, ...) PRINTF_LIKE(4, 5);
/* LOADER_ASSET, LOADER_STORED or, with name NULL, LOADER_END. 0 or -ENOMEM. */
MUST_USE int report_record(struct report *report, uint32_t type, const char *name,
			   uint32_t n_documents);
/* Write what was collected to fd and forget it. 0 or -errno. */
MUST_USE int report_flush(struct report *report, int fd);
