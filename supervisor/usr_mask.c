/*
 * Runs as root, at start, on a clone of the /usr mount that shows no mount below it. A whiteout is
 * a character device 0:0 in the upper of two overlay layers: the kernel then shows neither the name
 * nor what is behind it. Files that appear in /usr later are not covered; they come under nosuid,
 * nodev mounts, and a new socket there is a defect of the host that `doctor` reports at the next
 * start (C2, B12).
 */
#include "supervisor/usr_mask.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "supervisor/dirwalk.h"

/* Local software, sources, modules and debug symbols tell about the host and help nobody inside. */
static const char *const hidden[] = {"local", "src", "lib/modules", "lib/debug"};

struct scan {
	int mask_fd;
	struct usr_mask found;
};

/* mkdir -p of the directory part, then the whiteout. */
static int cover(int mask_fd, const char *path)
{
	char partial[DIRWALK_PATH_BYTES];

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		int r = str_copy_n(partial, sizeof(partial), path, (size_t)(slash - path));
		if (r < 0)
			return r;
		if (mkdirat(mask_fd, partial, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	if (mknodat(mask_fd, path, S_IFCHR, makedev(0, 0)) < 0 && errno != EEXIST)
		return -errno;
	return 0;
}

static bool is_hidden(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++) {
		if (str_equal(path, hidden[i]))
			return true;
	}
	return false;
}

/* The counter of the kind of entry that must be covered; NULL: it may be seen. */
static uint32_t *classify(struct usr_mask *found, mode_t mode)
{
	if (S_ISSOCK(mode) || S_ISFIFO(mode))
		return &found->n_sockets;
	if (S_ISCHR(mode) || S_ISBLK(mode))
		return &found->n_devices;
	if (S_ISREG(mode) && (mode & (S_ISUID | S_ISGID)))
		return &found->n_setuid;
	if (S_ISREG(mode) && !(mode & S_IROTH))
		return &found->n_private;
	if (S_ISDIR(mode) && (mode & (S_IROTH | S_IXOTH)) != (S_IROTH | S_IXOTH))
		return &found->n_private;
	return NULL;
}

static int visit(void *userdata, const struct dirwalk_entry *entry)
{
	struct scan *scan = userdata;
	struct statx st;
	char path[DIRWALK_PATH_BYTES];

	scan->found.n_entries++;
	if (entry->type == DT_LNK)
		return 0;
	if (statx(entry->dir_fd, entry->name, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC,
		  STATX_TYPE | STATX_MODE, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	uint32_t *counter = classify(&scan->found, st.stx_mode);
	if (!counter && !S_ISDIR(st.stx_mode))
		return 0;
	int r = dirwalk_join(path, entry->path, entry->name);
	if (r < 0)
		return r;
	if (counter || is_hidden(path)) {
		if (counter)
			(*counter)++;
		return cover(scan->mask_fd, path);
	}
	return 1;
}

int usr_mask_build(int usr_fd, int mask_fd, struct usr_mask *ret_mask, struct err *err)
{
	struct scan scan = {.mask_fd = mask_fd};
	/* The folders of the mask are what a session sees of /usr: readable under any umask. */
	mode_t old_mask = umask(022);

	int r = dirwalk(usr_fd, visit, &scan);
	(void)umask(old_mask);
	if (r < 0)
		return err_fail(err, r, "usr-mask", "look through /usr");
	*ret_mask = scan.found;
	return 0;
}

/* Without copies sessions have the host's files. */
static int build(int usr_fd, int mask_fd, int copies_fd, struct usr_mask *ret_mask)
{
	int r = usr_mask_build(usr_fd, mask_fd, ret_mask, NULL);

	if (r == 0 && usr_copies_build(usr_fd, copies_fd, &ret_mask->copies, NULL) < 0)
		ret_mask->copies.n = 0;
	return r;
}

int usr_mask_begin(int usr_fd, int mask_fd, int copies_fd, struct usr_mask_job *ret_job,
		   struct err *err)
{
	int pid_fd = -1;
	struct clone_args args = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pid_fd};
	struct usr_mask *result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (result == MAP_FAILED)
		return err_fail(err, -errno, "usr-mask", "map the result");
	/* A copy of a process with one thread, so it may allocate; it execs nothing. */
	pid_t pid = kernel_clone3(&args);
	if (pid == 0)
		_exit(-build(usr_fd, mask_fd, copies_fd, result));
	if (pid < 0) {
		int r = -errno;
		(void)munmap(result, sizeof(*result));
		return err_fail(err, r, "usr-mask", "clone3");
	}
	*ret_job = (struct usr_mask_job){
		.pid_fd = pid_fd,
		.result = result,
		.begun_at = clock_boottime(),
	};
	return 0;
}

int usr_mask_end(struct usr_mask_job *job, struct usr_mask *ret_mask, struct err *err)
{
	siginfo_t info = {0};
	int r = 0;

	while (waitid(P_PIDFD, (id_t)job->pid_fd, &info, WEXITED | __WALL) < 0) {
		if (errno == EINTR)
			continue;
		r = -errno;
		break;
	}
	if (r == 0 && info.si_code != CLD_EXITED)
		r = -ECHILD;
	if (r == 0)
		r = -info.si_status;
	if (r == 0)
		*ret_mask = *job->result;
	(void)munmap(job->result, sizeof(*job->result));
	job->result = NULL;
	job->pid_fd = fd_close(job->pid_fd);
	if (r < 0)
		return err_fail(err, r, "usr-mask", "look through /usr");
	return 0;
}

void usr_mask_cancel(struct usr_mask_job *job)
{
	struct usr_mask mask;

	if (job->pid_fd < 0)
		return;
	(void)kernel_pidfd_send_signal(job->pid_fd, SIGKILL);
	(void)!usr_mask_end(job, &mask, NULL);
}
