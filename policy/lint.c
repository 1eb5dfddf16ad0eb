#include "policy/lint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/str.h"

void lint_sets_add(struct lint_sets *sets, const char *name)
{
	/* A name that does not fit is no file name of a set either: resolve refused it. */
	if (!lint_sets_has(sets, name) && sets->n < LINT_MAX_SETS &&
	    str_copy(sets->name[sets->n], sizeof(sets->name[0]), name) == 0)
		sets->n++;
}

bool lint_sets_has(const struct lint_sets *sets, const char *name)
{
	for (size_t i = 0; i < sets->n; i++) {
		if (str_equal(sets->name[i], name))
			return true;
	}
	return false;
}

static bool may_allow(const struct resolve_call *call)
{
	return call->present && (call->verdict.action == PROFILE_ALLOW ||
				 (call->conditional && call->otherwise.action == PROFILE_ALLOW));
}

static int fail_call(const struct profile *profile, enum policy_filter which,
		     const struct resolve_call *call, int number, const char *why, struct err *err)
{
	char name[PROFILE_CALL_BYTES];
	const char *text = resolve_name(number, name);

	if (call->present)
		return line_fail(&call->where, err, "%s (%s): %s", text ? text : "?",
				 profile_filter_name(which), why);
	return line_fail(&profile->filter[which].where, err, "%s: %s", text ? text : "?", why);
}

int lint_filter(const struct profile *profile, enum policy_filter which,
		const struct resolve_filter *filter, const bool shared[RESOLVE_MAX_NUMBER],
		struct err *err)
{
	static const int argument_calls[] = {SYS_clone, SYS_socket, SYS_socketpair, SYS_ioctl,
					     SYS_fcntl, SYS_prctl,  SYS_mmap};
	const struct resolve_call *clone3 = &filter->call[SYS_clone3];
	struct profile_verdict said = clone3->present ? clone3->verdict : filter->otherwise;

	for (int i = 0; i < RESOLVE_MAX_NUMBER; i++) {
		if (shared[i] && may_allow(&filter->call[i]))
			return fail_call(profile, which, &filter->call[i], i,
					 "allowed, but shared between sessions", err);
	}
	if (clone3->conditional || said.action != PROFILE_ERRNO || said.error_number != ENOSYS)
		return fail_call(profile, which, clone3, SYS_clone3, "must say errno ENOSYS", err);
	for (size_t i = 0; i < ARRAY_SIZE(argument_calls); i++) {
		const struct resolve_call *call = &filter->call[argument_calls[i]];

		if (may_allow(call) && !call->conditional)
			return fail_call(profile, which, call, argument_calls[i],
					 "allowed without argument rules", err);
	}
	return 0;
}

int lint_needs(const struct profile *profile, enum policy_filter which,
	       const struct resolve_filter *filter, const bool sensitive[RESOLVE_MAX_NUMBER],
	       struct err *err)
{
	bool commands = which == POLICY_FILTER_COMMAND;

	for (int i = 0; i < RESOLVE_MAX_NUMBER; i++) {
		const struct resolve_call *call = &filter->call[i];
		bool granted = commands && sensitive[i] && may_allow(call);
		bool needed = call->needed_by[0] != '\0';

		if (granted && !needed)
			return fail_call(profile, which, call, i,
					 "allowed, but no program is said to need it", err);
		if (needed && !granted)
			return line_fail(&call->need_where, err,
					 "%s does not allow the need of %s, or it needs no words",
					 profile_filter_name(which), call->needed_by);
	}
	return 0;
}

static DIR *close_directory(DIR *directory)
{
	(void)closedir(directory);
	return NULL;
}
DEFINE_AUTO(DIR *, close_directory);

int lint_unused_sets(int dir_fd, const struct lint_sets *used, struct err *err)
{
	AUTO_CLOSE int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO(close_directory) DIR *directory = NULL;
	const struct dirent *entry;

	if (fd < 0)
		return err_fail(err, -errno, "lint", "open of the sets");
	directory = fdopendir(fd);
	if (!directory)
		return err_fail(err, -errno, "lint", "fdopendir");
	(void)TAKE_FD(fd);
	for (;;) {
		char name[PROFILE_CALL_BYTES];
		size_t length;

		errno = 0;
		entry = readdir(directory); /* NOLINT(concurrency-mt-unsafe): one thread */
		if (!entry)
			return errno == 0 ? 0 : err_fail(err, -errno, "lint", "readdir");
		length = strlen(entry->d_name);
		if (!str_has_suffix(entry->d_name, ".set"))
			continue;
		if (str_copy_n(name, sizeof(name), entry->d_name, length - 4) < 0 ||
		    (!lint_sets_has(used, name) && !str_equal(name, LINT_SHARED_SET) &&
		     !str_equal(name, LINT_SENSITIVE_SET)))
			return err_fail(err, -EINVAL, "lint", "%.48s: no profile uses this set",
					entry->d_name);
	}
}
