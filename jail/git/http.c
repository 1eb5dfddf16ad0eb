/*
 * Theory. Nothing of the session's decides where a request goes or who believes whom: no proxy, no
 * netrc, no cookie, no configuration file and no environment variable is read. Only http and https;
 * a redirect is followed by us, once and for the first request, and only where scheme, host and
 * port stay, so the credential is for one server whatever that server says. It goes with the first
 * request (Basic over TLS: the caller gives none for plain HTTP), as this server asked for one.
 */
#include "jail/git/http.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/io.h"
#include "base/str.h"

#define ADVERTISEMENT_MAX_BYTES ((size_t)64 * 1024 * 1024)
#define REDIRECTS_MAX           3
#define CONNECT_TIMEOUT_S       30L
#define STALL_TIMEOUT_S         120L
#define AGENT                   "git/2 (sandbox-git)"

struct http {
	const struct http_request *request;
	CURL *curl;
	char base[GIT_URL_MAX_BYTES + 1];
};

/* One transfer. */
struct transfer {
	struct http *http;
	const char *content_type; /* of an answer that is one */
	struct buf *body;         /* of the advertisement, else out_fd */
	int out_fd;
	const struct buf *head;
	size_t head_at;
	int rest_fd;
	bool judged;
	int code; /* enum git_exit, when the answer is none */
};

int http_say(int code, const char *text)
{
	(void)fprintf(stderr, "sandbox-git: %s\n", text);
	return code;
}

const char *http_service_name(enum git_service service)
{
	return service == GIT_SERVICE_PUSH ? "git-receive-pack" : "git-upload-pack";
}

static bool has_credentials(const struct http_request *request)
{
	return request->password[0] || request->username[0];
}

static int status_code(const struct http_request *request, long status)
{
	if (status == 401 || status == 403)
		return http_say(GIT_EXIT_AUTH, has_credentials(request)
						       ? "the server refuses the credentials"
						       : "the server wants credentials");
	if (status == 404 || status == 410)
		return http_say(GIT_EXIT_NOT_FOUND, "the server has no such repository");
	return http_say(GIT_EXIT_SERVER, "the server answers with an error");
}

static int transfer_code(CURLcode code)
{
	static const CURLcode tls[] = {CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CONNECT_ERROR,
				       CURLE_SSL_CERTPROBLEM, CURLE_SSL_CACERT_BADFILE,
				       CURLE_SSL_ISSUER_ERROR};

	for (size_t i = 0; i < ARRAY_SIZE(tls); i++)
		if (code == tls[i])
			return http_say(GIT_EXIT_TLS, curl_easy_strerror(code));
	if (code == CURLE_OUT_OF_MEMORY)
		return http_say(GIT_EXIT_REQUEST, "out of memory");
	return http_say(GIT_EXIT_CONNECT, curl_easy_strerror(code));
}

/* Before the first byte of an answer is used. */
static bool judge(struct transfer *transfer)
{
	CURL *curl = transfer->http->curl;
	const char *type = NULL;
	long status = 0;

	if (transfer->judged)
		return transfer->code == 0;
	transfer->judged = true;
	(void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	(void)curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type);
	if (status >= 300 && status < 400 && transfer->body)
		return true; /* follow() says; its text is nobody's */
	if (status >= 300 && status < 400)
		transfer->code = http_say(GIT_EXIT_REDIRECT, "the server redirects to another one");
	else if (status != 200)
		transfer->code = status_code(transfer->http->request, status);
	else if (!type || strcasecmp(type, transfer->content_type) != 0)
		transfer->code = http_say(GIT_EXIT_PROTOCOL, "this is no smart HTTP git server");
	return transfer->code == 0;
}

static size_t on_answer(char *data, size_t size, size_t n, void *userdata)
{
	struct transfer *transfer = userdata;
	int r;

	size *= n;
	if (!judge(transfer))
		return 0;
	r = transfer->body ? buf_append(transfer->body, data, size)
			   : io_write_all(transfer->out_fd, data, size);
	return r < 0 ? 0 : size;
}

static size_t on_question(char *data, size_t size, size_t n, void *userdata)
{
	struct transfer *transfer = userdata;
	const struct buf *head = transfer->head;
	ssize_t got;

	size *= n;
	if (transfer->head_at < head->size) {
		if (size > head->size - transfer->head_at)
			size = head->size - transfer->head_at;
		memcpy(data, head->data + transfer->head_at, size);
		transfer->head_at += size;
		return size;
	}
	got = io_read(transfer->rest_fd, data, size);
	return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

/* What holds for every request. */
static bool set_common(CURL *curl, const struct http_request *request)
{
	struct curl_blob ca = {.data = request->ca, .len = request->ca_bytes};
	CURLcode r = curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");

	r |= curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
	r |= curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	r |= curl_easy_setopt(curl, CURLOPT_PROXY, "");
	r |= curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	r |= curl_easy_setopt(curl, CURLOPT_USERAGENT, AGENT);
	r |= curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
	r |= curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
	r |= curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, STALL_TIMEOUT_S);
	r |= curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	r |= curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
	if (request->ca)
		r |= curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &ca);
	if (has_credentials(request)) {
		r |= curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
		r |= curl_easy_setopt(curl, CURLOPT_USERNAME, request->username);
		r |= curl_easy_setopt(curl, CURLOPT_PASSWORD, request->password);
	}
	return r == CURLE_OK;
}

int http_open(const struct http_request *request, struct http **ret_http)
{
	struct http *http = calloc(1, sizeof(*http));

	if (!http || str_copy(http->base, sizeof(http->base), request->url) < 0 ||
	    curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		free(http);
		return http_say(GIT_EXIT_REQUEST, "out of memory");
	}
	http->request = request;
	http->curl = curl_easy_init();
	if (!http->curl || !set_common(http->curl, request)) {
		http_close(http);
		return http_say(GIT_EXIT_REQUEST, "the HTTP library lacks what is needed");
	}
	*ret_http = http;
	return 0;
}

struct http *http_close(struct http *http)
{
	if (http) {
		curl_easy_cleanup(http->curl);
		free(http);
	}
	return NULL;
}

static int perform(struct transfer *transfer, const char *url, struct curl_slist *headers)
{
	CURL *curl = transfer->http->curl;
	CURLcode r;

	r = curl_easy_setopt(curl, CURLOPT_URL, url);
	r |= curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	r |= curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
	if (r != CURLE_OK)
		return http_say(GIT_EXIT_REQUEST, "out of memory");
	r = curl_easy_perform(curl);
	if (transfer->code != 0)
		return transfer->code;
	if (r != CURLE_OK)
		return transfer_code(r);
	/* An answer without a body was not judged. */
	return judge(transfer) ? 0 : transfer->code;
}

/* Length of scheme, host and port. */
static size_t origin_length(const char *url)
{
	const char *host = strstr(url, "://");

	return host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : 0;
}

/* The first request was answered with another place, which becomes the base. */
static int follow(struct http *http, const char *place, const char *suffix)
{
	size_t origin = origin_length(http->base);
	size_t length;

	if (origin_length(place) != origin || strncasecmp(place, http->base, origin) != 0)
		return http_say(GIT_EXIT_REDIRECT, "the server redirects to another one");
	if (!str_has_suffix(place, suffix))
		return http_say(GIT_EXIT_PROTOCOL, "the server redirects to something else");
	length = strlen(place) - strlen(suffix);
	if (length < origin || str_copy_n(http->base, sizeof(http->base), place, length) < 0)
		return http_say(GIT_EXIT_PROTOCOL, "the server redirects to something else");
	return 0;
}

int http_advertisement(struct http *http, struct buf *ret_body)
{
	const char *service = http_service_name(http->request->service);
	char type[64];
	char suffix[64];
	char url[GIT_URL_MAX_BYTES + sizeof(suffix)];
	struct curl_slist *headers = NULL;
	struct transfer transfer = {.http = http, .content_type = type, .body = ret_body};
	int code = 0;

	if (str_format(type, sizeof(type), "application/x-%s-advertisement", service) < 0 ||
	    str_format(suffix, sizeof(suffix), "/info/refs?service=%s", service) < 0)
		return GIT_EXIT_REQUEST;
	if (http->request->service == GIT_SERVICE_FETCH)
		headers = curl_slist_append(NULL, "Git-Protocol: version=2");
	ret_body->max_bytes = ADVERTISEMENT_MAX_BYTES;
	for (int i = 0; i <= REDIRECTS_MAX; i++) {
		const char *place = NULL;

		buf_reset(ret_body);
		transfer.judged = false;
		if (str_format(url, sizeof(url), "%s%s", http->base, suffix) < 0) {
			code = GIT_EXIT_REQUEST;
			break;
		}
		code = perform(&transfer, url, headers);
		(void)curl_easy_getinfo(http->curl, CURLINFO_REDIRECT_URL, &place);
		if (code != 0 || !place)
			break;
		code = i < REDIRECTS_MAX
			       ? follow(http, place, suffix)
			       : http_say(GIT_EXIT_PROTOCOL, "the server redirects in a circle");
		if (code != 0)
			break;
	}
	curl_slist_free_all(headers);
	return code;
}

static struct curl_slist *exchange_headers(const struct http_request *request, bool is_chunked)
{
	const char *service = http_service_name(request->service);
	struct curl_slist *headers = NULL;
	struct curl_slist *grown;
	char text[3][80];
	const char *lines[] = {text[0], text[1], text[2], "Git-Protocol: version=2"};
	size_t n = request->service == GIT_SERVICE_FETCH ? 4 : 3;

	if (str_format(text[0], sizeof(text[0]), "Content-Type: application/x-%s-request",
		       service) < 0 ||
	    str_format(text[1], sizeof(text[1]), "Accept: application/x-%s-result", service) < 0 ||
	    str_format(text[2], sizeof(text[2]), "%s",
		       is_chunked ? "Transfer-Encoding: chunked" : "Expect:") < 0)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		grown = curl_slist_append(headers, lines[i]);
		if (!grown) {
			curl_slist_free_all(headers);
			return NULL;
		}
		headers = grown;
	}
	if (is_chunked) {
		grown = curl_slist_append(headers, "Expect:");
		headers = grown ? grown : headers;
	}
	return headers;
}

int http_exchange(struct http *http, const struct buf *head, int rest_fd, int out_fd)
{
	const char *service = http_service_name(http->request->service);
	char type[64];
	char url[GIT_URL_MAX_BYTES + 64];
	struct transfer transfer = {.http = http,
				    .content_type = type,
				    .out_fd = out_fd,
				    .head = head,
				    .rest_fd = rest_fd};
	curl_off_t size = rest_fd < 0 ? (curl_off_t)head->size : -1;
	struct curl_slist *headers = exchange_headers(http->request, rest_fd >= 0);
	CURLcode r;
	int code;

	if (!headers || str_format(type, sizeof(type), "application/x-%s-result", service) < 0 ||
	    str_format(url, sizeof(url), "%s/%s", http->base, service) < 0) {
		curl_slist_free_all(headers);
		return http_say(GIT_EXIT_REQUEST, "out of memory");
	}
	r = curl_easy_setopt(http->curl, CURLOPT_POST, 1L);
	r |= curl_easy_setopt(http->curl, CURLOPT_POSTFIELDSIZE_LARGE, size);
	r |= curl_easy_setopt(http->curl, CURLOPT_READFUNCTION, on_question);
	r |= curl_easy_setopt(http->curl, CURLOPT_READDATA, &transfer);
	code = r == CURLE_OK ? perform(&transfer, url, headers) : GIT_EXIT_REQUEST;
	curl_slist_free_all(headers);
	return code;
}
