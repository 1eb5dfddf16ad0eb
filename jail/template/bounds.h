/*
 * How much an image may be, how much it was so far, and why it ended.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/template_jail.h"

struct bounds {
	uint64_t max_bytes;
	uint64_t max_inodes;
	uint64_t n_entries;
	uint64_t n_xattr_bytes; /* as many as of files, and none is given back */
	struct template_report report;
};

/* Note why and where it ends, unless that is known already. -1, always. */
int bounds_fail(struct bounds *bounds, enum template_error error, int error_number,
		const char *name);
/* The same of a negative errno of a call. */
int bounds_fail_errno(struct bounds *bounds, int r, const char *name);
/* One more entry of the source; one more inode; so many more bytes. 0 or -1. */
MUST_USE int bounds_count_entry(struct bounds *bounds, const char *name);
MUST_USE int bounds_count_inode(struct bounds *bounds, const char *name);
MUST_USE int bounds_count_bytes(struct bounds *bounds, uint64_t n, const char *name);
MUST_USE int bounds_count_xattr(struct bounds *bounds, uint64_t n, const char *name);
/* One inode less, of so many bytes. */
void bounds_forget(struct bounds *bounds, uint64_t n_bytes);
/* How many bytes a source may have: names and attributes take some, too. */
uint64_t bounds_source_bytes(const struct bounds *bounds);
