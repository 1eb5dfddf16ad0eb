/*
 * sandboxd-s3: one job about one object of the object store, then it exits. Started by the
 * supervisor, with its own id, an empty root and a filter. It alone has the credential; whoever
 * asks, the api worker, has the other end of its socket and names an object below the prefix.
 */
#include <errno.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/io.h"
#include "base/name_lookup.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "policy/confine_worker.h"
#include "sandboxd/secret.h"
#include "sandboxd/worker.h"
#include "supervisor/s3/s3_state.h"

#define MEMORY_BYTES      (256ul * 1024 * 1024)
#define LOOKUP_TIMEOUT_MS 1500

/* Of the worker's root: whom the host trusts, and the hosts file. */
#define FACTS "/etc"

/* It is in the api worker's group, and fails alone. A sanitizer reserves more than that. */
static int limit_memory(void)
{
	const struct rlimit limit = {.rlim_cur = MEMORY_BYTES, .rlim_max = MEMORY_BYTES};

	return CONFINE_SANITIZED ? 0 : setrlimit(RLIMIT_AS, &limit);
}

/* Below the prefix, and no way out of it. */
static bool key_is_ours(const struct s3 *s3)
{
	const char *key = s3->job.key;

	if (s3->job.action == S3_LIST)
		return key[0] == '\0';
	if (!s3_key_is_plain(key))
		return false;
	return s3->job.action == S3_PUT || str_has_prefix(key, s3->request->config.prefix);
}

static bool job_is_known(const struct s3_job *job, int file_fd)
{
	return job->magic == S3_MAGIC && job->version == S3_VERSION && job->action > 0 &&
	       job->action < S3_ACTION_MAX_ && memchr(job->key, '\0', sizeof(job->key)) &&
	       (file_fd >= 0) == (job->action != S3_DELETE);
}

static enum s3_status work(struct s3 *s3, struct name_lookup *lookup)
{
	static enum s3_status (*const actions[S3_ACTION_MAX_])(struct s3 * s3) = {
		[S3_PUT] = s3_put,
		[S3_GET] = s3_get,
		[S3_DELETE] = s3_delete,
		[S3_LIST] = s3_list,
	};
	enum s3_status status;

	if (!key_is_ours(s3))
		return S3_E_KEY;
	status = s3_open(s3, lookup);
	return status == S3_DONE ? actions[s3->job.action](s3) : status;
}

static int run(struct name_lookup *lookup)
{
	struct s3_request request;
	struct s3 s3 = {.request = &request, .job_fd = S3_FD_JOB, .file_fd = -1};
	int r = io_read_exact(HELPER_FD_REQUEST, &request, sizeof(request));

	if (r < 0 || request.magic != S3_MAGIC || request.version != S3_VERSION)
		return EXIT_FAILURE;
	if (sockmsg_recv(s3.job_fd, &s3.job, sizeof(s3.job), &s3.file_fd, 1) !=
		    (ssize_t)sizeof(s3.job) ||
	    !job_is_known(&s3.job, s3.file_fd))
		return EXIT_FAILURE;
	s3.report.status = (uint16_t)work(&s3, lookup);
	s3.report.magic = S3_MAGIC;
	s3.report.version = S3_VERSION;
	r = sockmsg_send(s3.job_fd, &s3.report, sizeof(s3.report), NULL, 0);
	s3_close(&s3);
	explicit_bzero(&request, sizeof(request));
	s3.file_fd = fd_close(s3.file_fd);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(void)
{
	struct name_lookup *lookup = NULL;
	int code;

	/* Before the filter: they look for their configuration and source of randomness. */
	if (limit_memory() < 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR || sodium_init() < 0 ||
	    curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
	    name_lookup_new(LOOKUP_TIMEOUT_MS, &lookup) < 0 ||
	    confine_reading_worker(WORKER_FD_POLICY, "worker-s3", FACTS) < 0)
		return EXIT_FAILURE;
	code = run(lookup);
	(void)name_lookup_free(lookup);
	curl_global_cleanup();
	return code;
}
