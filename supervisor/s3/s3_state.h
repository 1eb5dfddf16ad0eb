/*
 * Inside of sandboxd-s3.
 */
#pragma once

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/buf.h"

#include "sandboxd/s3.h"

struct name_lookup;

#define S3_ETAG_BYTES  128
#define S3_QUERY_BYTES 4096

struct s3 {
	const struct s3_request *request;
	struct s3_job job;
	int job_fd;  /* its end: nobody waits any more; -1: nobody is asked */
	int file_fd; /* -1: the job needs none */
	CURL *curl;
	struct curl_slist *addresses; /* of the host, as CURLOPT_RESOLVE has them */
	bool is_cancelled;
	struct s3_report report;
};

/* One request. */
struct s3_call {
	const char *method;
	const char *key;   /* "": the bucket itself */
	const char *query; /* its parameters in the order of their names, encoded; "": none */
	/* What is sent: this text, or so many bytes of the file from there on. */
	const char *text;
	uint64_t offset;
	uint64_t size;
	/* The object goes into the file, at most so many bytes of it; 0: into `answer`. */
	uint64_t max_bytes;

	/* The answer. */
	struct buf answer;
	uint64_t bytes; /* HEAD: of the object; a file: that were written */
	char etag[S3_ETAG_BYTES];
	uint32_t n_stalls;
};

/* http.c. Before any call: the addresses of the host. */
MUST_USE enum s3_status s3_open(struct s3 *s3, struct name_lookup *lookup);
void s3_close(struct s3 *s3);
/* Again and again where that may help. call->answer is the caller's to give back. */
MUST_USE enum s3_status s3_call(struct s3 *s3, struct s3_call *call);
/* Of characters that a URL has as they are, and no way out of a prefix; "" is none. Calls are made
 * of no other key but "". */
bool s3_key_is_plain(const char *key);
/* "&name=value" with the value encoded, or without the & at the beginning of `query`. 0, -ENOBUFS
 * or -ENOMEM. */
MUST_USE int s3_query_add(struct s3 *s3, char query[static S3_QUERY_BYTES], const char *name,
			  const char *value);

/* The actions. */
enum s3_status s3_put(struct s3 *s3);
enum s3_status s3_get(struct s3 *s3);
enum s3_status s3_delete(struct s3 *s3);
enum s3_status s3_list(struct s3 *s3);
/* Of an upload that was begun. */
MUST_USE enum s3_status s3_give_up(struct s3 *s3, const char *key, const char *upload);
