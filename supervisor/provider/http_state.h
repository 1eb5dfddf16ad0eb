/*
 * What http.c and http_stream.c share.
 */
#pragma once

#include <curl/curl.h>

#include "base/auto.h"
#include "base/loop.h"

#include "supervisor/provider/http.h"

struct http {
	struct http_options options;
	CURLM *multi;
	struct loop_source *timer;
	struct curl_slist *addresses;
	struct curl_slist *former; /* as long as a request may still look at them */
};

/* A request on its way. It is freed with its end. */
struct http_transfer {
	struct http *http;
	CURL *easy;
	struct curl_slist *headers;
	void (*ended)(struct http_transfer *transfer, CURLcode code, int status);
	/* Inside of libcurl: it does not read its socket any more, or not now. NULL: whatever. */
	void (*reads_no_more)(struct http_transfer *transfer);
};

/* http: set; the rest is made: nothing is sent. 0 or -ENOMEM, and nothing is left. */
MUST_USE int http_transfer_new(struct http_transfer *transfer, const struct http_request *request,
			       const char *const *headers, size_t n_headers);
MUST_USE int http_transfer_begin(struct http_transfer *transfer);
/* It is no longer on its way; `ended` is not called. */
void http_transfer_done(struct http_transfer *transfer);
/* After a change to a transfer from outside of libcurl: goes on with it. It may be freed inside. */
void http_go_on(struct http *http);
