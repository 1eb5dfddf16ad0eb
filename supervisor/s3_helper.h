/*
 * The helper of the object store: started for one job, which it is told by others, reaped. It has
 * the credential.
 */
#pragma once

#include "base/auto.h"
#include "base/err.h"
#include "base/loop.h"

#include "sandboxd/s3.h"

struct host;
struct s3_helper;

/* Once, from the loop, when it is reaped. */
typedef void (*s3_helper_ended)(void *userdata);

/* What starts it. null_fd: /dev/null. job_fd: S3_FD_JOB. Both stay the caller's. */
struct s3_helper_place {
	struct loop *loop;
	struct host *host;
	int null_fd;
	int job_fd;
};

/* 0 and *ret_helper, valid until `ended` or s3_helper_cancel; or -errno. */
MUST_USE int s3_helper_start(const struct s3_helper_place *place, const struct s3_request *request,
			     s3_helper_ended ended, void *userdata, struct s3_helper **ret_helper,
			     struct err *err);
/* It is ended, and `ended` does not come. Accepts NULL; returns NULL. */
struct s3_helper *s3_helper_cancel(struct s3_helper *helper);
