#include "client.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/io.h"
#include "base/json.h"
#include "base/str.h"

#include "sandboxd/api.h"

/* Until then a session may have to be started again. */
#define EXPECT_TIMEOUT_MS 20000L

struct transfer {
	const struct client_request *request;
	struct client_reply *reply;
	CURL *easy;
	struct buf partial; /* a line that is not complete yet */
	int result;         /* what the callback answered */
	usec_t last_byte;
};

static const char *socket_name(const struct options *options)
{
	/* The operator's own socket takes no identity and only uid 0. */
	return geteuid() == 0 && !options->user && !options->workspace && !options->project &&
			       !options->scopes
		       ? "operator.sock"
		       : "control.sock";
}

static int add_header(struct client *client, const char *name, const char *value)
{
	char line[1200];
	struct curl_slist *list;
	int r;

	if (!value)
		return 0;
	r = str_format(line, sizeof(line), "%s: %s", name, value);
	if (r < 0)
		return r;
	list = curl_slist_append(client->headers, line);
	if (!list)
		return -ENOMEM;
	client->headers = list;
	return 0;
}

/* What ends a line would begin a header of its own. */
static bool fits_header(const char *value)
{
	for (; value && *value; value++)
		if ((unsigned char)*value < ' ' || *value == 0x7f)
			return false;
	return true;
}

static int add_identity(struct client *client, const struct options *options)
{
	const struct {
		const char *name;
		const char *value;
	} headers[] = {
		{"X-Sandbox-User",      options->user     },
		{"X-Sandbox-Workspace", options->workspace},
		{"X-Sandbox-Project",   options->project  },
		{"X-Sandbox-Scopes",    options->scopes   },
 /* Without this curl would wait for "100 Continue" before larger bodies. */
		{"Expect",              ""                },
	};

	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		int r;

		if (!fits_header(headers[i].value)) {
			(void)fprintf(stderr, "sandboxctl: control characters cannot be in %s\n",
				      headers[i].name);
			return -EINVAL;
		}
		r = add_header(client, headers[i].name, headers[i].value);
		if (r < 0)
			return r;
	}
	return 0;
}

static int watch_signals(struct client *client)
{
	sigset_t mask;

	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGINT);
	(void)sigaddset(&mask, SIGTERM);
	(void)sigaddset(&mask, SIGHUP);
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	if (sigprocmask(SIG_BLOCK, &mask, NULL) < 0)
		return -errno;
	client->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return client->signal_fd < 0 ? -errno : 0;
}

int client_open(struct client *client, const struct options *options)
{
	int r;

	*client = (struct client){.signal_fd = -1};
	if (options->socket_path)
		r = str_copy(client->socket_path, sizeof(client->socket_path),
			     options->socket_path);
	else
		r = str_format(client->socket_path, sizeof(client->socket_path), "%s/%s",
			       options->runtime_dir ? options->runtime_dir : "/run/sandboxd",
			       socket_name(options));
	if (r < 0) {
		(void)fprintf(stderr, "sandboxctl: the socket's path is longer than 107 bytes\n");
		return r;
	}
	if (curl_global_init(CURL_GLOBAL_NOTHING) != CURLE_OK)
		return -ENOMEM;
	client->multi = curl_multi_init();
	if (!client->multi)
		return -ENOMEM;
	r = add_identity(client, options);
	if (r < 0)
		return r;
	return watch_signals(client);
}

void client_close(struct client *client)
{
	curl_slist_free_all(client->headers);
	client->headers = NULL;
	if (client->multi)
		(void)curl_multi_cleanup(client->multi);
	client->multi = NULL;
	client->signal_fd = fd_close(client->signal_fd);
	curl_global_cleanup();
}

void client_reply_done(struct client_reply *reply)
{
	buf_done(&reply->text);
	json_decref(reply->doc);
	reply->doc = NULL;
}

static int take_lines(struct transfer *transfer)
{
	struct buf *partial = &transfer->partial;
	const uint8_t *newline;

	while (partial->size > 0 && (newline = memchr(partial->data, '\n', partial->size))) {
		size_t length = (size_t)(newline - partial->data);
		int r = transfer->request->line(transfer->request->userdata,
						(const char *)partial->data, length);

		buf_consume(partial, length + 1);
		if (r)
			return r;
	}
	return 0;
}

/* libcurl's write callback: anything but `n` ends the transfer. */
static size_t on_body(char *data, size_t size, size_t n, void *userdata)
{
	struct transfer *transfer = userdata;
	long status = 0;
	int r;

	(void)size; /* always 1 */
	transfer->last_byte = clock_boottime();
	(void)curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
	if (transfer->request->bytes && status < 300) {
		r = transfer->request->bytes(transfer->request->userdata, data, n);
	} else if (!transfer->request->line || status >= 300) {
		r = buf_append(&transfer->reply->text, data, n);
	} else {
		r = buf_append(&transfer->partial, data, n);
		if (r == 0)
			r = take_lines(transfer);
	}
	transfer->result = r;
	return r ? 0 : n;
}

/* libcurl's read callback. */
static size_t on_fill(char *data, size_t size, size_t n, void *userdata)
{
	struct transfer *transfer = userdata;
	ssize_t got = transfer->request->fill(transfer->request->userdata, data, size * n);

	transfer->last_byte = clock_boottime();
	if (got < 0)
		transfer->result = (int)got;
	return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

static void set_up_fill(struct transfer *transfer)
{
	CURL *easy = transfer->easy;

	(void)curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, EXPECT_TIMEOUT_MS);
	(void)curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_fill);
	(void)curl_easy_setopt(easy, CURLOPT_READDATA, transfer);
	(void)curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 256L * 1024);
	(void)curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE,
			       (curl_off_t)transfer->request->fill_bytes);
}

static int easy_set_up(struct client *client, struct transfer *transfer, char *body,
		       struct curl_slist **ret_headers)
{
	const struct client_request *request = transfer->request;
	CURL *easy = transfer->easy;
	struct curl_slist *headers = NULL;
	char url[3 * 4096 + 128];
	char line[128];
	int r;

	r = str_format(url, sizeof(url), "http://sandboxd%s", request->path);
	if (r < 0)
		return r;
	for (const struct curl_slist *i = client->headers; i; i = i->next)
		if (!request->fill || !str_has_prefix(i->data, "Expect:"))
			headers = curl_slist_append(headers, i->data);
	/* A refusal would be lost where the service ends the connection under a body. */
	if (request->fill)
		headers = curl_slist_append(headers, "Expect: 100-continue");
	(void)snprintf(line, sizeof(line), "Accept: %s",
		       request->accept ? request->accept : "application/json");
	headers = curl_slist_append(headers, line);
	if (body)
		headers = curl_slist_append(headers, "Content-Type: application/json");
	*ret_headers = headers;
	(void)curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, client->socket_path);
	(void)curl_easy_setopt(easy, CURLOPT_URL, url);
	(void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
	if (body) {
		(void)curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
		(void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
	}
	if (request->fill)
		set_up_fill(transfer);
	(void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
	return 0;
}

bool client_signal_came(struct client *client)
{
	struct signalfd_siginfo info;

	if (io_read(client->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return false;
	client->signal = (int)info.ssi_signo;
	return true;
}

static int curl_errno(const struct transfer *transfer, CURLcode code)
{
	long os_errno = 0;

	if (transfer->result < 0)
		return transfer->result;
	switch ((int)code) {
	case CURLE_OK:
		return 0;
	case CURLE_COULDNT_CONNECT:
		(void)curl_easy_getinfo(transfer->easy, CURLINFO_OS_ERRNO, &os_errno);
		return os_errno == EACCES ? -EACCES : -ECONNREFUSED;
	case CURLE_COULDNT_RESOLVE_HOST:
		return -ECONNREFUSED;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	default:
		return -EPIPE;
	}
}

/* Drive the one transfer until it is over, a signal comes, or it was silent for too long. */
static int run_transfer(struct client *client, struct transfer *transfer)
{
	usec_t idle_us = (usec_t)transfer->request->idle_ms * USEC_PER_MS;

	for (;;) {
		struct curl_waitfd signal_wait = {.fd = client->signal_fd,
						  .events = CURL_WAIT_POLLIN};
		int running = 0;
		int left = 0;
		const CURLMsg *message;

		if (curl_multi_perform(client->multi, &running) != CURLM_OK)
			return -EIO;
		message = curl_multi_info_read(client->multi, &left);
		if (message && message->msg == CURLMSG_DONE)
			return curl_errno(transfer, message->data.result);
		if (idle_us && clock_boottime() - transfer->last_byte >= idle_us)
			return -ETIMEDOUT;
		if (curl_multi_poll(client->multi, &signal_wait, 1, idle_us ? 50 : 1000, NULL) !=
		    CURLM_OK)
			return -EIO;
		if (client_signal_came(client) && !transfer->request->answer_first)
			return -EINTR;
	}
}

/* /v1/sandboxes/ID and what is below. */
static void note_sandbox(struct client *client, const char *path)
{
	static const char prefix[] = API_PREFIX_RUNTIME "/";
	const char *id = str_has_prefix(path, prefix) ? path + strlen(prefix) : "";

	if (str_copy_n(client->sandbox, sizeof(client->sandbox), id, strcspn(id, "/?")) < 0)
		client->sandbox[0] = '\0';
}

int client_perform(struct client *client, const struct client_request *request,
		   struct client_reply *reply)
{
	struct transfer transfer = {.request = request,
				    .reply = reply,
				    .partial = BUF_NULL(CLIENT_LINE_MAX_BYTES),
				    .last_byte = clock_boottime()};
	AUTO_FREE char *body = NULL;
	struct curl_slist *headers = NULL;
	const char *reason = NULL;
	int r;

	note_sandbox(client, request->path);
	if (request->body) {
		body = doc_format(request->body, 0);
		if (!body)
			return -ENOMEM;
	}
	transfer.easy = curl_easy_init();
	if (!transfer.easy)
		return -ENOMEM;
	r = easy_set_up(client, &transfer, body, &headers);
	if (r == 0 && curl_multi_add_handle(client->multi, transfer.easy) != CURLM_OK)
		r = -ENOMEM;
	if (r == 0) {
		r = run_transfer(client, &transfer);
		(void)curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &reply->status);
		(void)curl_multi_remove_handle(client->multi, transfer.easy);
	}
	curl_easy_cleanup(transfer.easy);
	curl_slist_free_all(headers);
	buf_done(&transfer.partial);
	/* An answer that is not JSON stays text. */
	if (r == 0 && reply->text.size > 0)
		(void)!doc_parse((const char *)reply->text.data, reply->text.size, &reply->doc,
				 &reason);
	return r;
}

void client_wait(struct client *client, int ms)
{
	struct pollfd fd = {.fd = client->signal_fd, .events = POLLIN};
	const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
	sigset_t mask;

	/* One that came while it was blocked ends the wait at once. */
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	if (sigprocmask(SIG_SETMASK, NULL, &mask) < 0)
		return;
	(void)sigdelset(&mask, SIGWINCH);
	if (ppoll(&fd, 1, &time, &mask) > 0)
		(void)client_signal_came(client);
}

int client_path(char *path, size_t path_bytes, const char *prefix, const char *id,
		const char *suffix)
{
	char *escaped = curl_easy_escape(NULL, id, 0);
	int r;

	if (!escaped)
		return -ENOMEM;
	r = str_format(path, path_bytes, "%s/%s%s", prefix, escaped, suffix);
	curl_free(escaped);
	return r;
}
