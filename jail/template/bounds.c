#include "jail/template/bounds.h"

#include <errno.h>
#include <string.h>

/* Layers say the same names again; each costs time. */
#define ENTRIES_AN_INODE 4
/* Header, long name, padding. */
#define BYTES_AN_ENTRY   4096

int bounds_fail(struct bounds *bounds, enum template_error error, int error_number,
		const char *name)
{
	struct template_report *report = &bounds->report;

	if (report->error != TEMPLATE_E_NONE)
		return -1;
	report->error = error;
	report->error_number = error_number;
	if (name)
		memcpy(report->name, name, strnlen(name, sizeof(report->name)));
	return -1;
}

int bounds_fail_errno(struct bounds *bounds, int r, const char *name)
{
	/* A name that is no folder, where there must be one. */
	if (r == -ENOTDIR || r == -ELOOP)
		return bounds_fail(bounds, TEMPLATE_E_LINK_ON_WAY, -r, name);
	if (r == -ENAMETOOLONG)
		return bounds_fail(bounds, TEMPLATE_E_NAME, -r, name);
	return bounds_fail(bounds, TEMPLATE_E_SYSTEM, -r, name);
}

int bounds_count_entry(struct bounds *bounds, const char *name)
{
	if (bounds->n_entries / ENTRIES_AN_INODE >= bounds->max_inodes)
		return bounds_fail(bounds, TEMPLATE_E_INODES, 0, name);
	bounds->n_entries++;
	return 0;
}

int bounds_count_inode(struct bounds *bounds, const char *name)
{
	if (bounds->report.n_inodes >= bounds->max_inodes)
		return bounds_fail(bounds, TEMPLATE_E_INODES, 0, name);
	bounds->report.n_inodes++;
	return 0;
}

int bounds_count_bytes(struct bounds *bounds, uint64_t n, const char *name)
{
	if (n > bounds->max_bytes - bounds->report.n_bytes)
		return bounds_fail(bounds, TEMPLATE_E_BYTES, 0, name);
	bounds->report.n_bytes += n;
	return 0;
}

int bounds_count_xattr(struct bounds *bounds, uint64_t n, const char *name)
{
	if (n > bounds->max_bytes - bounds->n_xattr_bytes)
		return bounds_fail(bounds, TEMPLATE_E_BYTES, 0, name);
	bounds->n_xattr_bytes += n;
	return 0;
}

void bounds_forget(struct bounds *bounds, uint64_t n_bytes)
{
	struct template_report *report = &bounds->report;

	report->n_inodes -= report->n_inodes > 0;
	report->n_bytes -= n_bytes < report->n_bytes ? n_bytes : report->n_bytes;
}

uint64_t bounds_source_bytes(const struct bounds *bounds)
{
	uint64_t overhead;
	uint64_t sum;

	if (__builtin_mul_overflow(bounds->max_inodes, BYTES_AN_ENTRY, &overhead) ||
	    __builtin_add_overflow(bounds->max_bytes, overhead, &sum))
		return UINT64_MAX;
	return sum;
}
