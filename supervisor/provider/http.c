/*
 * Theory. libcurl's multi interface over our loop: it says which of its sockets to watch and when
 * to be called next. A socket has one source, remembered with it (curl_multi_assign). The engine is
 * on this host and holds root, but its answers are bounded all the same.
 */
#include "supervisor/provider/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/buf.h"
#include "base/str.h"

#define URL_BYTES 2048

struct http {
	struct loop *loop;
	CURLM *multi;
	const char *socket_path;
	struct loop_source *timer;
	struct curl_slist *headers;
};

struct call {
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

static void finish(struct http *http, CURL *easy, CURLcode code)
{
	struct call *call = NULL;
	long status = 0;
	const char *body;

	(void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, &call);
	(void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	(void)curl_multi_remove_handle(http->multi, easy);
	curl_easy_cleanup(easy);
	body = buf_text(&call->answer);
	if (code == CURLE_COULDNT_CONNECT) {
		status = -ECONNREFUSED;
		/* An engine that was started again has another socket, which only the next process
		 * is given. */
		loop_quit(http->loop, -ECONNREFUSED);
	} else if (code == CURLE_OPERATION_TIMEDOUT) {
		status = -ETIMEDOUT;
	} else if (code != CURLE_OK || !body) {
		status = -EIO;
	}
	call->done(call->userdata, (int)status, body, call->answer.size);
	buf_done(&call->answer);
	free(call);
}

static void finish_all(struct http *http)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(http->multi, &left)))
		if (message->msg == CURLMSG_DONE)
			finish(http, message->easy_handle, message->data.result);
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

static int on_timer(void *userdata, uint32_t events)
{
	struct http *http = userdata;
	int running;

	(void)events;
	(void)curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	finish_all(http);
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
	uint32_t events =
		(what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);

	(void)easy;
	if (what == CURL_POLL_REMOVE)
		return forget_socket(http, fd, watched);
	if (watched)
		return loop_set_events(watched->source, events) < 0 ? -1 : 0;
	watched = calloc(1, sizeof(*watched));
	if (!watched)
		return -1;
	watched->http = http;
	watched->fd = fd;
	if (loop_add(http->loop, fd, events, on_socket_ready, watched, &watched->source) < 0) {
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

int http_new(struct loop *loop, const char *socket_path, struct http **ret_http)
{
	struct http *http = calloc(1, sizeof(*http));
	int r;

	if (!http)
		return -ENOMEM;
	http->loop = loop;
	http->socket_path = socket_path;
	http->multi = curl_multi_init();
	http->headers = curl_slist_append(NULL, "Content-Type: application/json");
	r = http->multi && http->headers
		    ? loop_add_timer(loop, USEC_NEVER, on_timer, http, &http->timer)
		    : -ENOMEM;
	if (r < 0) {
		curl_slist_free_all(http->headers);
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

static CURL *new_easy(const char *socket_path, const char *path, usec_t timeout)
{
	char url[URL_BYTES];
	CURL *easy;

	/* The name is only what the Host header says. */
	if (str_format(url, sizeof(url), "http://engine%s", path) < 0)
		return NULL;
	easy = curl_easy_init();
	if (!easy)
		return NULL;
	(void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
	(void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, socket_path);
	(void)curl_easy_setopt(easy, CURLOPT_URL, url);
	(void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(timeout / USEC_PER_MS));
	return easy;
}

int http_send(struct http *http, const struct http_request *request, http_done done, void *userdata)
{
	CURL *easy = new_easy(http->socket_path, request->path, request->timeout);
	struct call *call = calloc(1, sizeof(*call));

	if (!easy || !call) {
		if (easy)
			curl_easy_cleanup(easy);
		free(call);
		return -ENOMEM;
	}
	*call = (struct call){
		.answer = BUF_NULL(HTTP_ANSWER_MAX_BYTES), .done = done, .userdata = userdata};
	(void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
	(void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, http->headers);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
	(void)curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
	if (request->body || !str_equal(request->method, "GET"))
		(void)curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS,
				       request->body ? request->body : "");
	if (curl_multi_add_handle(http->multi, easy) != CURLM_OK) {
		curl_easy_cleanup(easy);
		free(call);
		return -ENOMEM;
	}
	return 0;
}

int http_ask(const char *socket_path, const char *path, usec_t timeout)
{
	CURL *easy = new_easy(socket_path, path, timeout);
	long status = 0;
	CURLcode code;

	if (!easy)
		return -ENOMEM;
	(void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	code = curl_easy_perform(easy);
	(void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(easy);
	return code == CURLE_OK ? (int)status : -ECONNREFUSED;
}
