/*
 * The object store of snapshots: what the supervisor and the api worker ask of `sandboxd-s3`, and
 * its answer.
 *
 * The helper alone holds the credential. From the supervisor it gets the configuration, from the
 * api worker, over a socket pair that the supervisor made, one job with one open file. It forms the
 * keys of new objects itself, below the configured prefix and the instance's name, and touches no
 * other key than one below the prefix.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/limits.h"

#define S3_MAGIC            0x53334f31u
#define S3_VERSION          1
#define S3_HOST_BYTES       256
#define S3_NAME_BYTES       64 /* region, bucket, prefix */
#define S3_CREDENTIAL_BYTES 256
#define S3_INSTANCE_BYTES   16
#define S3_KEY_BYTES        256
#define S3_AT_ONCE          4u /* helpers of one service; what is asked beyond that is refused */

/* The supervisor's and its helper's alone. */
struct s3_config {
	char host[S3_HOST_BYTES]; /* name, address or [address], with :port where it has one; "":
				     none */
	char region[S3_NAME_BYTES];
	char bucket[S3_NAME_BYTES];
	char prefix[S3_NAME_BYTES];            /* of all keys; ends in a slash */
	char credentials[S3_CREDENTIAL_BYTES]; /* ACCESS-KEY:SECRET-KEY */
	uint32_t is_plain;                     /* http, on this host's loopback alone */
	uint32_t path_style;                   /* the bucket in the path, else before the host */
};

/* On HELPER_FD_REQUEST, then its end. */
struct s3_request {
	uint32_t magic;
	uint16_t version;
	uint16_t zero;
	char instance[S3_INSTANCE_BYTES];
	struct s3_config config;
};
_Static_assert(sizeof(struct s3_request) <= 4096, "a pipe takes it whole");

/* Beside those of worker.h and secret.h. */
#define S3_FD_JOB 3 /* SOCK_SEQPACKET: its other end is the api worker's */

enum s3_action {
	S3_PUT = 1, /* the file becomes an object; `key` is the last part of its key */
	S3_GET,     /* the object becomes the content of the file, which is empty */
	S3_DELETE,  /* what is not there is as good; no file */
	S3_LIST, /* struct s3_object of each object of the instance into the file, which is empty;
		    and uploads that were begun more than a day ago are given up */
	S3_ACTION_MAX_,
};

enum s3_status {
	S3_DONE,
	S3_E_CONNECT, /* no connection, or none that lasts */
	S3_E_TLS,     /* its certificate is not good */
	S3_E_DENIED,  /* it does not take the credential, or refuses it this */
	S3_E_CLOCK,   /* the clocks of server and host differ */
	S3_E_BUCKET,  /* no such bucket, or in another region */
	S3_E_MISSING, /* no such object */
	S3_E_SIZE,    /* the object is larger than was asked for, or of another size */
	S3_E_SERVER,  /* another error of the server */
	S3_E_FILE,    /* the file cannot be read or written; error_number says why */
	S3_E_KEY,     /* not a key below the prefix */
	S3_STATUS_MAX_,
};

/* One message from the api worker, with the file. */
struct s3_job {
	uint32_t magic;
	uint16_t version;
	uint16_t action;    /* enum s3_action */
	uint64_t bytes;     /* PUT: of the file; GET: of the object */
	uint64_t max_bytes; /* GET where `bytes` is 0, which is: not known */
	char key[S3_KEY_BYTES];
};

/* Its one answer. Only the end of the socket may come instead. */
struct s3_report {
	uint32_t magic;
	uint16_t version;
	uint16_t status;        /* enum s3_status */
	uint32_t http_status;   /* of the server's last answer; 0: none */
	int32_t error_number;   /* S3_E_FILE; positive */
	uint64_t bytes;         /* GET: that were written */
	uint32_t n_given_up;    /* LIST: uploads */
	uint32_t n_retries;     /* requests that were made again */
	char key[S3_KEY_BYTES]; /* PUT: the whole of it */
};

struct s3_object {
	char key[S3_KEY_BYTES];
	uint64_t bytes;
	uint64_t written_at; /* realtime, microseconds */
};
_Static_assert(sizeof(struct s3_object) == 272, "records of a file");
