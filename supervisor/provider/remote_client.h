/*
 * Requests to a remote service, with its short-lived token: asked for with the credential, renewed
 * before it ends, and asked for again once where a request is refused for it.
 */
#pragma once

#include "base/auto.h"
#include "base/loop.h"
#include "base/name_lookup.h"

#include "supervisor/provider/http.h"

struct remote_client;

struct remote_client_options {
	struct loop *loop;
	const char *url;        /* kept by pointer */
	const char *credential; /* the same */
	struct name_lookup *lookup;
};

/* Its first token is asked for: `ready` is called once, from the loop, with 0 or -errno. The loop
 * ends with -EACCES where the credential is not taken later, and with -ECONNREFUSED where the
 * service has given no answer for a while: the next process begins with what is there then. */
MUST_USE int remote_client_new(const struct remote_client_options *options,
			       void (*ready)(void *userdata, int result), void *userdata,
			       struct remote_client **ret_client);
/* As http_send and http_stream; the authorization is set here. */
MUST_USE int remote_client_send(struct remote_client *client, const struct http_request *request,
				http_done done, void *userdata);
MUST_USE int remote_client_stream(struct remote_client *client, const struct http_request *request,
				  http_streams done, void *userdata);
