/*
 * Theory. A request waits where there is no token, or none that is good for a while; one answer to
 * the question for a token lets all go on. A refused request (401) drops the token that it had, if
 * that is still ours, and waits like this once more; a second refusal is its result.
 *
 * No more than so many requests are on their way at once, and as many connections are kept; the
 * others wait for their answers. Who has thousands to delete does not open a connection for each,
 * which libcurl then would keep. Streams do not wait: they are as many as there are sandboxes.
 *
 * The host's name is looked up at the start and every minute from then on: what a service far away
 * is reached by changes, and libcurl would look it up with a thread.
 */
#include "supervisor/provider/remote_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/list.h"
#include "base/log.h"
#include "base/num.h"
#include "base/str.h"

#include "sandboxd/provider.h"
#include "supervisor/provider/remote_json.h"

#define TOKEN_TIMEOUT (10 * USEC_PER_SEC)
#define LOOKUP_EVERY  USEC_PER_MINUTE
#define AWAY_AFTER    (20 * USEC_PER_SEC) /* less than streams are looked for: service_stream.c */

#define MAX_ADDRESSES    8u
#define MAX_ON_THE_WAY   32u /* requests with an answer that ends */
#define MAX_HEADER_BYTES (REMOTE_TOKEN_BYTES + 32)

#define HTTP_OK           200
#define HTTP_UNAUTHORIZED 401
#define HTTP_FORBIDDEN    403

struct remote_client {
	struct remote_client_options options;
	struct http *http;
	char token[REMOTE_TOKEN_BYTES]; /* "": none */
	usec_t token_until;
	uint32_t n_tokens; /* counts them: which one a request had */
	bool is_asking;
	uint32_t n_on_the_way;
	struct list waiting;
	struct loop_source *waker; /* they may go on */
	usec_t away_since;         /* 0: the last that was heard was an answer */
	usec_t failed_at;          /* the last time that none was heard */
	void (*ready)(void *userdata, int result);
	void *userdata;
	/* host, without brackets; "" where it is an address */
	char host[CONFIG_ORIGINS_BYTES];
	uint32_t port;
	bool is_found;
	struct loop_source *lookup_source;
	struct loop_source *lookup_timer;
};

struct call {
	struct list link; /* client->waiting */
	struct remote_client *client;
	struct http_request request; /* without texts of others, which are these */
	char *path;
	char *body;
	uint32_t n_tokens;
	bool is_again;
	http_done done;
	http_streams streams; /* instead */
	void *userdata;
};

static struct call *call_free(struct call *call)
{
	free(call->path);
	free(call->body);
	free(call);
	return NULL;
}

static void finish(struct call *call, int status, const char *body, size_t size, int fd)
{
	if (call->streams)
		call->streams(call->userdata, status, fd);
	else
		call->done(call->userdata, status, body, size);
	(void)call_free(call);
}

/* Where it stays away this process ends: the next one is no user of what was, and finds again what
 * lives once the service is back. */
static void note_answer(struct remote_client *client, int status)
{
	usec_t now = clock_boottime();

	if (status > 0) {
		client->away_since = 0;
		return;
	}
	/* One an hour is no time that it is away. */
	if (client->away_since == 0 || now - client->failed_at >= AWAY_AFTER)
		client->away_since = now;
	client->failed_at = now;
	if (now - client->away_since < AWAY_AFTER)
		return;
	log_line(LOG_LEVEL_ERROR, NULL, "the remote service does not answer", "errno=%d", -status);
	loop_quit(client->options.loop, -ECONNREFUSED);
}

static void submit(struct call *call)
{
	list_append(&call->client->waiting, &call->link);
	loop_deferred_set(call->client->waker, 1);
}

/* Whether it goes on with another token. */
static bool is_asked_again(struct call *call, int status)
{
	struct remote_client *client = call->client;

	note_answer(client, status);
	if (status != HTTP_UNAUTHORIZED || call->is_again)
		return false;
	call->is_again = true;
	if (call->n_tokens == client->n_tokens)
		client->token[0] = '\0';
	submit(call);
	return true;
}

static void on_answer(void *userdata, int status, const char *body, size_t size)
{
	struct remote_client *client = ((struct call *)userdata)->client;

	client->n_on_the_way--;
	if (!list_empty(&client->waiting))
		loop_deferred_set(client->waker, 1);
	if (!is_asked_again(userdata, status))
		finish(userdata, status, body, size, -1);
}

static void on_stream(void *userdata, int status, int fd)
{
	if (!is_asked_again(userdata, status))
		finish(userdata, status, NULL, 0, fd);
}

static void send_now(struct call *call)
{
	struct remote_client *client = call->client;
	char header[MAX_HEADER_BYTES];
	int r = str_format(header, sizeof(header), "Authorization: Bearer %s", client->token);

	call->n_tokens = client->n_tokens;
	call->request.authorization = header;
	if (r == 0)
		r = call->streams ? http_stream(client->http, &call->request, on_stream, call)
				  : http_send(client->http, &call->request, on_answer, call);
	explicit_bzero(header, sizeof(header));
	call->request.authorization = NULL;
	if (r < 0)
		finish(call, r, NULL, 0, -1);
	else if (!call->streams)
		client->n_on_the_way++;
}

/* Those that wait go on, as many as may, or end with that. What comes meanwhile waits for the next
 * turn. */
static void release(struct remote_client *client, int result)
{
	uint32_t n = client->n_on_the_way;
	struct list calls;

	list_init(&calls);
	LIST_FOR_EACH_SAFE (link, following, &client->waiting) {
		if (result == 0 && !LIST_ENTRY(link, struct call, link)->streams &&
		    n++ >= MAX_ON_THE_WAY)
			continue;
		list_remove(link);
		list_append(&calls, link);
	}
	LIST_FOR_EACH_SAFE (link, following, &calls) {
		struct call *call = LIST_ENTRY(link, struct call, link);

		list_remove(link);
		if (result < 0)
			finish(call, result, NULL, 0, -1);
		else
			send_now(call);
	}
	/* None was sent, so that no answer lets the others go on. */
	if (client->n_on_the_way == 0 && !list_empty(&client->waiting))
		loop_deferred_set(client->waker, 1);
}

/* --- tokens ---------------------------------------------------------------------------------- */

static void get_ready(struct remote_client *client, int result)
{
	void (*ready)(void *userdata, int result) = client->ready;

	client->ready = NULL;
	if (ready)
		ready(client->userdata, result);
}

static void on_token(void *userdata, int status, const char *body, size_t size)
{
	struct remote_client *client = userdata;
	bool is_refused = status == HTTP_UNAUTHORIZED || status == HTTP_FORBIDDEN;
	uint32_t seconds = 0;
	int r = status < 0 ? status : -EACCES;

	note_answer(client, status);
	if (status == HTTP_OK)
		r = remote_json_token(body, size, client->token, &seconds);
	if (r == 0) {
		client->n_tokens++;
		client->token_until =
			clock_add(clock_boottime(), (usec_t)seconds * USEC_PER_SEC * 3 / 4);
	} else {
		log_line(LOG_LEVEL_ERROR, NULL, "the remote service gives no token",
			 "status=%d errno=%d", status < 0 ? 0 : status, -r);
		/* The next process reads the file as it is then. */
		if (is_refused)
			loop_quit(client->options.loop, -EACCES);
	}
	client->is_asking = false;
	get_ready(client, r);
	release(client, r);
}

static int ask_token(struct remote_client *client)
{
	char header[PROVIDER_CREDENTIAL_BYTES + 32];
	int r = str_format(header, sizeof(header), "Authorization: Bearer %s",
			   client->options.credential);

	if (r == 0)
		r = http_send(client->http,
			      &(struct http_request){.method = "POST",
						     .path = "/token",
						     .authorization = header,
						     .timeout = TOKEN_TIMEOUT,
						     .max_bytes = (size_t)2 * REMOTE_TOKEN_BYTES},
			      on_token, client);
	explicit_bzero(header, sizeof(header));
	client->is_asking = r == 0;
	return r;
}

static int on_waker(void *userdata, uint32_t events)
{
	struct remote_client *client = userdata;
	int r;

	(void)events;
	loop_deferred_set(client->waker, 0);
	if (client->is_asking || !client->is_found ||
	    (!client->ready && list_empty(&client->waiting)))
		return 0;
	if (client->token[0] != '\0' && clock_boottime() < client->token_until) {
		release(client, 0);
		return 0;
	}
	r = ask_token(client);
	if (r < 0) {
		get_ready(client, r);
		release(client, r);
	}
	return 0;
}

/* --- its addresses --------------------------------------------------------------------------- */

struct addresses {
	char text[1024];
	size_t used;
};

static void add_text(struct addresses *addresses, const char *text)
{
	size_t left = sizeof(addresses->text) - addresses->used;

	/* What does not fit is one of many. */
	if (str_copy(addresses->text + addresses->used, left, text) == 0)
		addresses->used += strlen(text);
}

static const void *address_of(const struct ares_addrinfo_node *node)
{
	const void *at = node->ai_addr; /* a cast would be a pun to the compiler */

	if (node->ai_family == AF_INET)
		return &((const struct sockaddr_in *)at)->sin_addr;
	return &((const struct sockaddr_in6 *)at)->sin6_addr;
}

static uint32_t format_addresses(const struct remote_client *client,
				 const struct ares_addrinfo *info, struct addresses *ret_addresses)
{
	char text[INET6_ADDRSTRLEN + CONFIG_ORIGINS_BYTES];
	uint32_t n = 0;

	if (str_format(text, sizeof(text), "%s:%u:", client->host, client->port) < 0)
		return 0;
	add_text(ret_addresses, text);
	for (const struct ares_addrinfo_node *at = info->nodes; at && n < MAX_ADDRESSES;
	     at = at->ai_next) {
		if (!inet_ntop(at->ai_family, address_of(at), text, sizeof(text)))
			continue;
		add_text(ret_addresses, n++ > 0 ? "," : "");
		add_text(ret_addresses, text);
	}
	return n;
}

/* One that is not found keeps the addresses that it had. */
static void on_addresses(void *userdata, int status, int timeouts, struct ares_addrinfo *info)
{
	struct remote_client *client = userdata;
	struct addresses addresses = {.used = 0};
	uint32_t n = 0;

	(void)timeouts;
	if (status == ARES_SUCCESS && info)
		n = format_addresses(client, info, &addresses);
	if (info)
		ares_freeaddrinfo(info);
	loop_timer_set(client->lookup_timer, clock_add(clock_boottime(), LOOKUP_EVERY));
	if (n > 0 && http_set_addresses(client->http, addresses.text) == 0)
		client->is_found = true;
	if (client->is_found) {
		loop_deferred_set(client->waker, 1);
		return;
	}
	log_line(LOG_LEVEL_ERROR, NULL, "the remote service's name is not found", NULL);
	get_ready(client, -EHOSTUNREACH);
}

static int on_lookup(void *userdata, uint32_t events)
{
	struct remote_client *client = userdata;

	(void)events;
	name_lookup_process(client->options.lookup);
	return 0;
}

static int on_lookup_timer(void *userdata, uint32_t events)
{
	struct remote_client *client = userdata;

	(void)events;
	name_lookup_ask(client->options.lookup, client->host, on_addresses, client);
	/* Its sockets and its timer are set now. */
	name_lookup_process(client->options.lookup);
	return 0;
}

/* Of a checked URL: what is to be looked up, "" where it is an address. */
static int split_url(struct remote_client *client)
{
	const char *url = client->options.url;
	const char *place = strstr(url, "://") + 3;
	size_t length = strcspn(place, "/");
	const char *port = memrchr(place, ':', length);
	char digits[8] = "443";
	int r = 0;

	if (port && memchr(port, ']', length - (size_t)(port - place)))
		port = NULL;
	if (port)
		r = str_copy_n(digits, sizeof(digits), port + 1,
			       length - (size_t)(port - place) - 1);
	else if (str_has_prefix(url, "http:"))
		r = str_copy(digits, sizeof(digits), "80");
	if (r == 0)
		r = num_parse_u32(digits, 1, UINT16_MAX, &client->port);
	if (r == 0)
		r = str_copy_n(client->host, sizeof(client->host), place,
			       port ? (size_t)(port - place) : length);
	if (r == 0 &&
	    (client->host[0] == '[' || strspn(client->host, "0123456789.") == strlen(client->host)))
		client->host[0] = '\0';
	return r;
}

/* --- requests -------------------------------------------------------------------------------- */

static int begin(struct remote_client *client, const struct http_request *request, http_done done,
		 http_streams streams, void *userdata)
{
	struct call *call = calloc(1, sizeof(*call));

	if (!call)
		return -ENOMEM;
	*call = (struct call){
		.client = client,
		.request = *request,
		.done = done,
		.streams = streams,
		.userdata = userdata,
	};
	call->request.path = call->path = strdup(request->path);
	call->request.body = call->body = request->body ? strdup(request->body) : NULL;
	if (!call->path || (request->body && !call->body)) {
		(void)call_free(call);
		return -ENOMEM;
	}
	submit(call);
	return 0;
}

int remote_client_send(struct remote_client *client, const struct http_request *request,
		       http_done done, void *userdata)
{
	return begin(client, request, done, NULL, userdata);
}

int remote_client_stream(struct remote_client *client, const struct http_request *request,
			 http_streams done, void *userdata)
{
	return begin(client, request, NULL, done, userdata);
}

static int open_client(struct remote_client *client)
{
	const struct remote_client_options *options = &client->options;
	int fd = name_lookup_fd(options->lookup);
	int r = split_url(client);

	if (r == 0)
		r = http_new(&(struct http_options){.loop = options->loop, .url = options->url},
			     &client->http);
	if (r == 0)
		r = loop_add_deferred(options->loop, on_waker, client, &client->waker);
	if (r == 0)
		r = loop_add(options->loop, fd, EPOLLIN, on_lookup, client, &client->lookup_source);
	if (r == 0)
		r = loop_add_timer(options->loop, USEC_NEVER, on_lookup_timer, client,
				   &client->lookup_timer);
	return r;
}

int remote_client_new(const struct remote_client_options *options,
		      void (*ready)(void *userdata, int result), void *userdata,
		      struct remote_client **ret_client)
{
	struct remote_client *client = calloc(1, sizeof(*client));
	int r;

	if (!client)
		return -ENOMEM;
	client->options = *options;
	client->ready = ready;
	client->userdata = userdata;
	list_init(&client->waiting);
	r = open_client(client);
	if (r < 0) {
		/* The process ends; its parts with it. */
		free(client);
		return r;
	}
	client->is_found = client->host[0] == '\0';
	if (!client->is_found)
		loop_timer_set(client->lookup_timer, clock_boottime());
	*ret_client = client;
	return 0;
}
