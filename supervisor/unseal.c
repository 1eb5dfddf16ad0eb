/*
 * Theory. One helper a launch, without a network. Four files are opened per launch, by name below
 * two directories that only root writes: the store is replaced by rename, so an older descriptor
 * would show an older store.
 *
 * The report is heard while it runs. The helper may write records as long as the shim does not read
 * them, so it is reaped whenever it ends, long after `done`.
 */
#include "supervisor/unseal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/io.h"

#include "supervisor/helper_run.h"

#define TIMEOUT (10 * USEC_PER_SEC)

struct unseal {
	struct list link; /* unsealer->running */
	struct helper_run run;
	int records_fd;
	struct loop_source *report_source;
	unseal_done done; /* NULL: told, or cancelled */
	void *userdata;
};

/* The helper's ends, beside those of each run. */
enum unseal_end {
	END_RECORDS,
	END_STORE,
	END_KEY,
	END_HOST_KEY,
	END_GENERATION,
	END_MAX_,
};

int unsealer_open(struct unsealer *unsealer, int state_fd)
{
	unsealer->state_fd = state_fd;
	/* Without it the host has no such key, and no store can ask for it. */
	unsealer->host_key_fd =
		open(SECRET_HOST_KEY_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	list_init(&unsealer->running);
	unsealer->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return unsealer->null_fd < 0 ? -errno : 0;
}

static void release(struct unseal *unseal)
{
	list_remove(&unseal->link);
	unseal->report_source = loop_remove(unseal->report_source);
	helper_run_done(&unseal->run);
	unseal->records_fd = fd_close(unseal->records_fd);
	free(unseal);
}

void unsealer_close(struct unsealer *unsealer)
{
	if (!unsealer->running.next)
		return; /* never opened */
	LIST_FOR_EACH_SAFE (link, following, &unsealer->running) {
		struct unseal *unseal = LIST_ENTRY(link, struct unseal, link);

		unseal->report_source = loop_remove(unseal->report_source);
		helper_run_end(&unseal->run);
		release(unseal);
	}
	unsealer->null_fd = fd_close(unsealer->null_fd);
	unsealer->host_key_fd = fd_close(unsealer->host_key_fd);
}

/* Tell once. What the shim will read is not ours any more. */
static void tell(struct unseal *unseal, const struct secret_report *report)
{
	unseal_done done = unseal->done;

	unseal->done = NULL;
	unseal->report_source = loop_remove(unseal->report_source);
	if (done)
		done(unseal->userdata, report, unseal->records_fd);
	unseal->records_fd = fd_close(unseal->records_fd);
}

static int on_report(void *userdata, uint32_t events)
{
	struct unseal *unseal = userdata;
	struct secret_report report;
	ssize_t n = io_read(unseal->run.report_fd, &report, sizeof(report));

	(void)events;
	if (n == -EAGAIN)
		return 0;
	if (n != (ssize_t)sizeof(report) || report.magic != SECRET_MAGIC ||
	    report.version != SECRET_VERSION || report.status >= SECRET_E_MAX_ ||
	    report.index >= SECRETS_SESSION_MAX || report.zero != 0)
		tell(unseal, NULL);
	else
		tell(unseal, &report);
	return 0;
}

static void on_ended(void *userdata)
{
	struct unseal *unseal = userdata;

	if (unseal->done)
		(void)on_report(unseal, 0); /* its word may lie in the pipe */
	if (unseal->done)
		tell(unseal, NULL);
	release(unseal);
}

/* `secrets` below the state directory: root's alone, or it is not used. */
static int open_secrets(const struct unsealer *unsealer)
{
	AUTO_CLOSE int fd = openat(unsealer->state_fd, "secrets",
				   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != 0 || (st.st_mode & 077) != 0)
		return -EPERM;
	return TAKE_FD(fd);
}

/* What is not there reads as empty: the helper knows whether it is needed. */
static int open_or_empty(const struct unsealer *unsealer, int dir_fd, const char *name, int *ret_fd)
{
	int fd = dir_fd < 0 ? -1 : openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && (dir_fd < 0 || errno == ENOENT))
		fd = fcntl(unsealer->null_fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int open_files(const struct unsealer *unsealer, int ends[END_MAX_])
{
	AUTO_CLOSE int dir_fd = open_secrets(unsealer);
	int r;

	if (dir_fd < 0)
		return dir_fd;
	/* Before the store: one that is replaced in between is newer than this says, not older. */
	r = open_or_empty(unsealer, dir_fd, "generation", &ends[END_GENERATION]);
	if (r < 0)
		return r;
	r = open_or_empty(unsealer, dir_fd, "store", &ends[END_STORE]);
	if (r >= 0)
		r = open_or_empty(unsealer, dir_fd, "key", &ends[END_KEY]);
	if (r >= 0)
		r = open_or_empty(unsealer, unsealer->host_key_fd, SECRET_HOST_KEY_FILE,
				  &ends[END_HOST_KEY]);
	return r;
}

static int open_records(struct unseal *unseal, int ends[END_MAX_])
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	unseal->records_fd = fds[0];
	ends[END_RECORDS] = fds[1];
	return 0;
}

static int run(const struct unsealer *unsealer, struct unseal *unseal,
	       const struct secret_request *request, const int ends[END_MAX_], struct err *err)
{
	static const int places[END_MAX_] = {
		[END_RECORDS] = HELPER_FD_RECORDS,
		[END_STORE] = HELPER_FD_STORE,
		[END_KEY] = HELPER_FD_KEY,
		[END_HOST_KEY] = HELPER_FD_HOST_KEY,
		[END_GENERATION] = HELPER_FD_GENERATION,
	};
	struct helper_start start = {
		.loop = unsealer->loop,
		.host = unsealer->host,
		.mode = "unseal",
		.not_started = "the helper for secrets was not started",
		.request = request,
		.request_bytes = sizeof(*request),
		.worker = {.no_network = true,
			   .fds = {{unsealer->null_fd, STDERR_FILENO}},
			   .n_fds = 1},
		.timeout = TIMEOUT,
		.ended = on_ended,
		.userdata = unseal,
	};
	int r;

	_Static_assert(sizeof(*request) <= HELPER_REQUEST_MAX_BYTES, "a pipe takes it whole");
	for (size_t i = 0; i < END_MAX_; i++)
		start.worker.fds[start.worker.n_fds++] =
			(struct worker_spawn_fd){ends[i], places[i]};
	r = helper_run_start(&unseal->run, &start, err);
	if (r < 0)
		return r;
	r = loop_add(unsealer->loop, unseal->run.report_fd, EPOLLIN, on_report, unseal,
		     &unseal->report_source);
	if (r < 0) {
		helper_run_end(&unseal->run);
		return err_fail(err, r, "unseal", "watch");
	}
	return 0;
}

static int start(const struct unsealer *unsealer, struct unseal *unseal,
		 const struct secret_request *request, struct err *err)
{
	int ends[END_MAX_];
	int r;

	for (size_t i = 0; i < END_MAX_; i++)
		ends[i] = -1;
	r = open_files(unsealer, ends);
	if (r < 0 && r != -ENOENT)
		(void)err_fail(err, r, "unseal", "open the store");
	if (r == -ENOENT)
		r = UNSEAL_E_NONE;
	if (r == 0) {
		r = open_records(unseal, ends);
		if (r < 0)
			(void)err_fail(err, r, "unseal", "pipe");
	}
	if (r == 0)
		r = run(unsealer, unseal, request, ends, err);
	for (size_t i = 0; i < END_MAX_; i++)
		ends[i] = fd_close(ends[i]);
	return r;
}

int unseal_start(struct unsealer *unsealer, const struct secret_request *request, unseal_done done,
		 void *userdata, struct unseal **ret_unseal, struct err *err)
{
	struct unseal *unseal = calloc(1, sizeof(*unseal));
	int r;

	if (!unseal)
		return err_fail(err, -ENOMEM, "unseal", "memory");
	list_init(&unseal->link);
	unseal->run = HELPER_RUN_NULL;
	unseal->records_fd = -1;
	r = start(unsealer, unseal, request, err);
	if (r != 0) {
		release(unseal);
		return r;
	}
	unseal->done = done;
	unseal->userdata = userdata;
	list_append(&unsealer->running, &unseal->link);
	*ret_unseal = unseal;
	return 0;
}

struct unseal *unseal_cancel(struct unseal *unseal)
{
	if (!unseal)
		return NULL;
	unseal->done = NULL;
	helper_run_kill(&unseal->run);
	return NULL;
}
