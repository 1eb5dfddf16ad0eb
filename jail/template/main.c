/*
 * sandbox-template: see include/sandboxd/template_jail.h. Static; exec'd by descriptor.
 */
#include <errno.h>
#include <langinfo.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/num.h"
#include "base/str.h"

#include "jail/template/trash.h"
#include "jail/template/unpack.h"
#include "policy/confine_worker.h"

#define USAGE                                                                                      \
	"usage: sandbox-template unpack MAX_BYTES MAX_INODES PLATFORM REF\n"                       \
	"       sandbox-template remove\n"

/* The library asks nl_langinfo(3) in which character set names are, by this name: bytes that are
 * said to be UTF-8 need no conversion. */
char *template_codeset(nl_item item);
char *template_codeset(nl_item item)
{
	static char codeset[] = "UTF-8";

	(void)item;
	return codeset;
}

static int run_unpack(struct unpack *unpack, char *const argv[])
{
	if (num_parse_u64(argv[0], 0, UINT64_MAX, &unpack->bounds.max_bytes) < 0 ||
	    num_parse_u64(argv[1], 0, UINT64_MAX, &unpack->bounds.max_inodes) < 0 ||
	    oci_platform_parse(argv[2], &unpack->platform) < 0)
		return -EINVAL;
	unpack->ref = argv[3];
	return unpack_run(unpack);
}

static int run_remove(struct bounds *bounds)
{
	struct trash trash = TRASH_NULL;
	int r = trash_adopt(&trash, TEMPLATE_FD_TREE);

	if (r == 0)
		r = trash_empty(&trash);
	trash_done(&trash);
	return r < 0 ? bounds_fail_errno(bounds, r, NULL) : 0;
}

/* Nobody reads what it would log: its standard error is no terminal of root's. */
static int confine(struct bounds *bounds)
{
	struct err err = ERR_NULL;
	bool applied = false;
	int r = confine_worker(TEMPLATE_FD_POLICY, "worker-template", &applied, &err);

	return r < 0 ? bounds_fail_errno(bounds, r, err.step) : 0;
}

int main(int argc, char *argv[])
{
	struct unpack unpack = {
		.tree_fd = TEMPLATE_FD_TREE,
		.source_fd = TEMPLATE_FD_SOURCE,
		.bounds.report.magic = TEMPLATE_REPORT_MAGIC,
	};
	int r = confine(&unpack.bounds);

	if (r == 0 && doc_seed() < 0)
		r = bounds_fail_errno(&unpack.bounds, -EIO, NULL);
	if (r < 0)
		goto report;
	r = -EINVAL;
	if (argc == 6 && str_equal(argv[1], "unpack"))
		r = run_unpack(&unpack, argv + 2);
	else if (argc == 2 && str_equal(argv[1], "remove"))
		r = run_remove(&unpack.bounds);
	if (r == -EINVAL) {
		(void)fputs(USAGE, stderr);
		return 2;
	}
report:
	if (io_write_all(TEMPLATE_FD_REPORT, &unpack.bounds.report, sizeof(unpack.bounds.report)) <
	    0)
		return 1;
	return r < 0 ? 1 : 0;
}
