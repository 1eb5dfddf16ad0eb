#include "policy/confine_worker.h"

#include <errno.h>

#include "base/confine.h"
#include "base/log.h"

#include "policy/image.h"

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
	r = take_filter(&image, name, !CONFINE_SANITIZED, err);
	image_close(&image);
	if (r < 0)
		return r;
	*ret_applied = !CONFINE_SANITIZED;
	return 0;
}

int confine_reading_worker(int policy_fd, const char *name, const char *path)
{
	struct err err = ERR_NULL;
	bool applied = false;
	int r;

	if (CONFINE_SANITIZED)
		r = 0;
	else
		r = path ? confine_reads_below(path) : confine_no_files();
	if (r < 0)
		(void)err_fail(&err, r, "confine", "files");
	else
		r = confine_worker(policy_fd, name, &applied, &err);
	if (r < 0) {
		log_err(LOG_LEVEL_ERROR, NULL, "cannot confine itself", &err);
		return r;
	}
	if (!applied)
		log_line(LOG_LEVEL_WARNING, NULL,
			 "no seccomp filter and no Landlock domain in a sanitizer build", "");
	return 0;
}

int confine_fileless_worker(int policy_fd, const char *name)
{
	return confine_reading_worker(policy_fd, name, NULL);
}
