/*
 * Theory. libcurl's multi interface over our loop: it says which of its sockets to watch and when
 * to be called next. A socket has one source, remembered with it (curl_multi_assign). An engine on
 * this host holds root, and a service elsewhere makes what runs there, but the answers of both are
 * bounded all the same. No redirection is followed, no proxy asked.
 */
#include "supervisor/provider/http.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/str.h"

#include "supervisor/provider/http_state.h"

#define URL_BYTES          2048
#define CONNECT_TIMEOUT_MS 10000L
#define SILENT_MS          20000 /* of the other side, while we want something of it */
/* Of the worker's root: the host's. */
#define AUTHORITIES        "/etc/ssl/certs/ca-certificates.crt"

struct call {
	struct http_transfer transfer;
	struct buf answer;
	http_done done;
	void *userdata;
};

struct watched {
	struct http *http;
	struct loop_source *source;
	curl_socket_t fd;
};

static size_t on_body(char *data, size_t size, size_t n, void *userdata)
{
	struct call *call = userdata;

	return buf_append(&call->answer, data, size * n) < 0 ? 0 : size * n;
}

static int status_of(CURLcode code, long status)
{
	if (code == CURLE_COULDNT_CONNECT)
		return -ECONNREFUSED;
	if (code == CURLE_OPERATION_TIMEDOUT)
		return -ETIMEDOUT;
	return code == CURLE_OK ? (int)status : -EIO;
}

static void finish(CURL *easy, CURLcode code)
{
	struct http_transfer *transfer = NULL;
	struct http *http;
	long status = 0;

	(void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
	(void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	http = transfer->http;
	/* An engine that was started again has another socket, which only the next process is
	 * given. */
	if (code == CURLE_COULDNT_CONNECT && http->options.socket_path)
		loop_quit(http->options.loop, -ECONNREFUSED);
	transfer->ended(transfer, code, status_of(code, status));
}

static void finish_all(struct http *http)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(http->multi, &left)))
		if (message->msg == CURLMSG_DONE)
			finish(message->easy_handle, message->data.result);
}

static int on_socket_ready(void *userdata, uint32_t events)
{
	struct watched *watched = userdata;
	struct http *http = watched->http;
	int flags = (events & EPOLLIN ? CURL_CSELECT_IN : 0) |
		    (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
		    (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
	int running;

	/* It may be freed inside. */
	(void)curl_multi_socket_action(http->multi, watched->fd, flags, &running);
	finish_all(http);
	return 0;
}

void http_go_on(struct http *http)
{
	int running;

	(void)curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	finish_all(http);
}

static int on_timer(void *userdata, uint32_t events)
{
	(void)events;
	http_go_on(userdata);
	return 0;
}

static int forget_socket(struct http *http, curl_socket_t fd, struct watched *watched)
{
	if (watched) {
		watched->source = loop_remove(watched->source);
		free(watched);
		(void)curl_multi_assign(http->multi, fd, NULL);
	}
	return 0;
}

static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *userdata, void *socket_data)
{
	struct http *http = userdata;
	struct watched *watched = socket_data;
	struct http_transfer *transfer = NULL;
	uint32_t events =
		(what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);

	(void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
	/* One of libcurl's own, which closes connections, is nobody's. */
	if (transfer && !(events & EPOLLIN) && transfer->reads_no_more)
		transfer->reads_no_more(transfer);
	if (what == CURL_POLL_REMOVE)
		return forget_socket(http, fd, watched);
	if (watched)
		return loop_set_events(watched->source, events) < 0 ? -1 : 0;
	watched = calloc(1, sizeof(*watched));
	if (!watched)
		return -1;
	watched->http = http;
	watched->fd = fd;
	if (loop_add(http->options.loop, fd, events, on_socket_ready, watched, &watched->source) <
	    0) {
		free(watched);
		return -1;
	}
	(void)curl_multi_assign(http->multi, fd, watched);
	return 0;
}

static int set_timer(CURLM *multi, long timeout_ms, void *userdata)
{
	struct http *http = userdata;

	(void)multi;
	loop_timer_set(http->timer, timeout_ms < 0 ? USEC_NEVER
						   : clock_add(clock_boottime(),
							       (usec_t)timeout_ms * USEC_PER_MS));
	return 0;
}

int http_new(const struct http_options *options, struct http **ret_http)
{
	struct http *http = calloc(1, sizeof(*http));
	int r;

	if (!http)
		return -ENOMEM;
	http->options = *options;
	http->multi = curl_multi_init();
	r = http->multi ? loop_add_timer(options->loop, USEC_NEVER, on_timer, http, &http->timer)
			: -ENOMEM;
	if (r < 0) {
		(void)curl_multi_cleanup(http->multi);
		free(http);
		return r;
	}
	(void)curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
	(void)curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
	(void)curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, set_timer);
	(void)curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
	*ret_http = http;
	return 0;
}

int http_set_addresses(struct http *http, const char *addresses)
{
	struct curl_slist *list = curl_slist_append(NULL, addresses);

	if (!list)
		return -ENOMEM;
	curl_slist_free_all(http->former);
	http->former = http->addresses;
	http->addresses = list;
	return 0;
}

/* What is far away may be gone without a word. */
static int on_socket(void *userdata, curl_socket_t fd, curlsocktype purpose)
{
	const int silent = SILENT_MS;

	(void)userdata;
	(void)purpose;
	return setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent, sizeof(silent)) < 0
		       ? CURL_SOCKOPT_ERROR
		       : CURL_SOCKOPT_OK;
}

static CURLcode set_far(CURL *easy, const struct http *http)
{
	bool is_plain = str_has_prefix(http->options.url, "http:");
	CURLcode r;

	r = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, is_plain ? "http" : "https");
	r |= curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	r |= curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	r |= curl_easy_setopt(easy, CURLOPT_CAINFO, AUTHORITIES);
	r |= curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
	r |= curl_easy_setopt(easy, CURLOPT_RESOLVE, http->addresses);
	r |= curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
	r |= curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	r |= curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 15L);
	r |= curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 5L);
	r |= curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
	return r;
}

static CURL *new_easy(const char *base, const char *path)
{
	char url[URL_BYTES];
	CURL *easy;

	if (str_format(url, sizeof(url), "%s%s", base, path) < 0)
		return NULL;
	easy = curl_easy_init();
	if (!easy)
		return NULL;
	(void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	(void)curl_easy_setopt(easy, CURLOPT_URL, url);
	return easy;
}

/* The name is only what the Host header says. */
static CURL *new_near(const char *socket_path, const char *path)
{
	CURL *easy = new_easy("http://engine", path);

	if (!easy)
		return NULL;
	(void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
	(void)curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, socket_path);
	return easy;
}

static int add_header(struct http_transfer *transfer, const char *line)
{
	struct curl_slist *more = curl_slist_append(transfer->headers, line);

	if (!more)
		return -ENOMEM;
	transfer->headers = more;
	return 0;
}

void http_transfer_done(struct http_transfer *transfer)
{
	if (transfer->easy) {
		(void)curl_multi_remove_handle(transfer->http->multi, transfer->easy);
		curl_easy_cleanup(transfer->easy);
	}
	transfer->easy = NULL;
	curl_slist_free_all(transfer->headers);
	transfer->headers = NULL;
}

int http_transfer_new(struct http_transfer *transfer, const struct http_request *request,
		      const char *const *headers, size_t n_headers)
{
	const struct http *http = transfer->http;
	bool is_good = true;

	transfer->easy = http->options.socket_path
				 ? new_near(http->options.socket_path, request->path)
				 : new_easy(http->options.url, request->path);
	for (size_t i = 0; i < n_headers; i++)
		is_good = is_good && add_header(transfer, headers[i]) == 0;
	is_good = is_good && transfer->easy &&
		  (!request->authorization || add_header(transfer, request->authorization) == 0) &&
		  (http->options.socket_path || set_far(transfer->easy, http) == CURLE_OK) &&
		  curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, transfer->headers) ==
			  CURLE_OK &&
		  curl_easy_setopt(transfer->easy, CURLOPT_CUSTOMREQUEST, request->method) ==
			  CURLE_OK &&
		  curl_easy_setopt(transfer->easy, CURLOPT_PRIVATE, transfer) == CURLE_OK;
	if (is_good)
		return 0;
	http_transfer_done(transfer);
	return -ENOMEM;
}

int http_transfer_begin(struct http_transfer *transfer)
{
	return curl_multi_add_handle(transfer->http->multi, transfer->easy) == CURLM_OK ? 0
											: -ENOMEM;
}

static struct call *call_free(struct call *call)
{
	http_transfer_done(&call->transfer);
	buf_done(&call->answer);
	free(call);
	return NULL;
}

static void on_ended(struct http_transfer *transfer, CURLcode code, int status)
{
	struct call *call = (struct call *)(void *)transfer; /* its first member */
	const char *body = buf_text(&call->answer);

	(void)code;
	call->done(call->userdata, body ? status : -EIO, body, call->answer.size);
	(void)call_free(call);
}

int http_send(struct http *http, const struct http_request *request, http_done done, void *userdata)
{
	static const char *const header = "Content-Type: application/json";
	struct call *call = calloc(1, sizeof(*call));
	CURL *easy;
	int r;

	if (!call)
		return -ENOMEM;
	*call = (struct call){
		.transfer = {.http = http, .ended = on_ended},
		.answer = BUF_NULL(request->max_bytes > 0 ? request->max_bytes
							  : HTTP_ANSWER_MAX_BYTES),
		.done = done,
		.userdata = userdata,
	};
	r = http_transfer_new(&call->transfer, request, &header, 1);
	easy = call->transfer.easy;
	if (r == 0) {
		(void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
				       (long)(request->timeout / USEC_PER_MS));
		(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
		(void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
		if (request->body || !str_equal(request->method, "GET"))
			(void)curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS,
					       request->body ? request->body : "");
		r = http_transfer_begin(&call->transfer);
	}
	if (r < 0)
		(void)call_free(call);
	return r;
}

int http_ask(const char *socket_path, const char *path, usec_t timeout)
{
	CURL *easy = new_near(socket_path, path);
	long status = 0, error = 0;
	CURLcode code;

	if (!easy)
		return -ENOMEM;
	(void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(timeout / USEC_PER_MS));
	(void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	code = curl_easy_perform(easy);
	(void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	/* Of connect(): a socket whose mode keeps us out is not one where nobody listens. */
	(void)curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &error);
	curl_easy_cleanup(easy);
	if (code == CURLE_COULDNT_CONNECT && error > 0)
		return -(int)error;
	return status_of(code, status);
}
