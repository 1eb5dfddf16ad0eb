#include "policy/confine_worker.h"

#include <errno.h>

#include "base/confine.h"

#include "policy/image.h"

#if defined(__SANITIZE_ADDRESS__)
#define CONFINE_WORKER_FILTER false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CONFINE_WORKER_FILTER false
#endif
#endif
#ifndef CONFINE_WORKER_FILTER
#define CONFINE_WORKER_FILTER true
#endif

static int take_filter(const struct image *image, const char *name, bool apply, struct err *err)
{
	const struct policy_profile *profile = image_find(image, name, NULL);
	const struct sock_filter *filter;
	size_t n;
	int r;

	if (!profile || profile->kind != POLICY_KIND_WORKER)
		return err_fail(err, -ENOENT, "seccomp", "no worker profile %s", name);
	filter = image_filter(image, profile, POLICY_FILTER_WORKER, &n);
	r = apply ? confine_seccomp(filter, n) : 0;
	return r < 0 ? err_fail(err, r, "seccomp", "filter of %s", name) : 0;
}

int confine_worker(int policy_fd, const char *name, bool *ret_applied, struct err *err)
{
	struct image image = IMAGE_NULL;
	int r;

	r = confine_no_new_privs();
	if (r < 0)
		return err_fail(err, r, "no_new_privs", "prctl");
	r = confine_not_dumpable();
	if (r < 0)
		return err_fail(err, r, "dumpable", "prctl");
	r = image_open(policy_fd, &image, err);
	if (r < 0)
		return r;
	r = take_filter(&image, name, CONFINE_WORKER_FILTER, err);
	image_close(&image);
	if (r < 0)
		return r;
	*ret_applied = CONFINE_WORKER_FILTER;
	return 0;
}
