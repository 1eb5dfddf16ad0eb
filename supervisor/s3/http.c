/*
 * Theory. Requests are signed by libcurl (AWS Signature Version 4), which takes what it is given:
 * it does not bring the parameters of a query into their order, and knows the hash of a body only
 * from a header. So queries are written in order, and x-amz-content-sha256 is always ours: a body
 * is read twice, for its hash and to be sent. The server refuses one that came otherwise.
 *
 * What may be over in a moment is tried again, each time after a longer while that is partly
 * chance: a connection that failed or ended early, and answers that say so. The end of the job's
 * socket ends everything.
 */
#include <ares.h>
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/id.h"
#include "base/io.h"
#include "base/name_lookup.h"
#include "base/str.h"

#include "supervisor/s3/s3_state.h"
#include "supervisor/s3/xml.h"

#define TRIES             5u
#define STALLS            2u /* of them, that ended because nothing came */
#define FIRST_PAUSE_MS    200u
#define CONNECT_TIMEOUT_S 5L
#define STALL_BYTES       1024L /* a second; below that for STALL_TIMEOUT_S it has ended */
#define STALL_TIMEOUT_S   10L
#define ANSWER_MAX_BYTES  ((size_t)4 * 1024 * 1024) /* a page of a list */
#define READ_BYTES        ((size_t)64 * 1024)
#define URL_BYTES         (S3_HOST_BYTES + S3_NAME_BYTES + S3_KEY_BYTES + S3_QUERY_BYTES + 16)
#define LOOKUP_TIMEOUT_MS 10000
#define AUTHORITIES       "/etc/ssl/certs/ca-certificates.crt" /* of the worker's root: the host's */

/* Of one try. */
struct transfer {
	struct s3 *s3;
	struct s3_call *call;
	uint64_t sent;
	int error; /* of the file */
	bool is_too_big;
	long status;
};

/* Names. */

struct addresses {
	struct s3 *s3;
	char text[1024]; /* host:port:address,address */
	size_t used;
	uint32_t n;
	bool is_there;
};

static void add_text(struct addresses *addresses, const char *text)
{
	char *at = addresses->text + addresses->used;

	if (str_copy(at, sizeof(addresses->text) - addresses->used, text) >= 0)
		addresses->used += strlen(at);
}

static void on_addresses(void *userdata, int status, int timeouts, struct ares_addrinfo *info)
{
	struct addresses *addresses = userdata;
	char text[64];

	(void)timeouts;
	addresses->is_there = true;
	if (status != ARES_SUCCESS || !info)
		return;
	for (const struct ares_addrinfo_node *at = info->nodes; at && addresses->n < 8;
	     at = at->ai_next) {
		const void *from =
			at->ai_family == AF_INET
				? (const void *)&(
					  (const struct sockaddr_in *)(const void *)at->ai_addr)
					  ->sin_addr
				: (const void *)&(
					  (const struct sockaddr_in6 *)(const void *)at->ai_addr)
					  ->sin6_addr;

		if (!ares_inet_ntop(at->ai_family, from, text, sizeof(text)))
			continue;
		add_text(addresses, addresses->n++ > 0 ? "," : "");
		add_text(addresses, text);
	}
	ares_freeaddrinfo(info);
}

/* Of what comes before the port. */
static size_t name_length(const char *host)
{
	const char *colon = strrchr(host, ':');

	return colon && !strchr(colon, ']') ? (size_t)(colon - host) : strlen(host);
}

static bool is_address(const char *host)
{
	size_t length = name_length(host);

	return host[0] == '[' || strspn(host, "0123456789.") >= length;
}

/* host, or bucket.host; without the port. */
static int server_name(const struct s3_config *config, char *ret_name, size_t bytes)
{
	int length = (int)name_length(config->host);

	if (config->path_style)
		return str_format(ret_name, bytes, "%.*s", length, config->host);
	return str_format(ret_name, bytes, "%s.%.*s", config->bucket, length, config->host);
}

static const char *port_of(const struct s3_config *config)
{
	const char *port = config->host + name_length(config->host);

	if (*port == ':')
		return port + 1;
	return config->is_plain ? "80" : "443";
}

static enum s3_status look_up(struct s3 *s3, struct name_lookup *lookup)
{
	const struct s3_config *config = &s3->request->config;
	struct addresses addresses = {.s3 = s3};
	char name[S3_HOST_BYTES + S3_NAME_BYTES];
	char head[sizeof(name) + 16];

	if (is_address(config->host))
		return S3_DONE;
	if (server_name(config, name, sizeof(name)) < 0 ||
	    str_format(head, sizeof(head), "%s:%s:", name, port_of(config)) < 0)
		return S3_E_CONNECT;
	add_text(&addresses, head);
	name_lookup_ask(lookup, name, on_addresses, &addresses);
	while (!addresses.is_there) {
		struct pollfd fds[] = {
			{.fd = name_lookup_fd(lookup), .events = POLLIN}
                };

		if (poll(fds, 1, LOOKUP_TIMEOUT_MS) <= 0)
			return S3_E_CONNECT;
		name_lookup_process(lookup);
	}
	if (addresses.n == 0)
		return S3_E_CONNECT;
	s3->addresses = curl_slist_append(NULL, addresses.text);
	return s3->addresses ? S3_DONE : S3_E_CONNECT;
}

enum s3_status s3_open(struct s3 *s3, struct name_lookup *lookup)
{
	s3->curl = curl_easy_init();
	return s3->curl ? look_up(s3, lookup) : S3_E_CONNECT;
}

void s3_close(struct s3 *s3)
{
	curl_easy_cleanup(s3->curl);
	curl_slist_free_all(s3->addresses);
	s3->curl = NULL;
	s3->addresses = NULL;
}

int s3_query_add(struct s3 *s3, char query[static S3_QUERY_BYTES], const char *name,
		 const char *value)
{
	size_t used = strlen(query);
	char *escaped = curl_easy_escape(s3->curl, value, 0);
	int r;

	if (!escaped)
		return -ENOMEM;
	r = str_format(query + used, S3_QUERY_BYTES - used, "%s%s=%s", used > 0 ? "&" : "", name,
		       escaped);
	curl_free(escaped);
	return r;
}

/* What is sent, and what comes. */

static size_t on_read(char *data, size_t size, size_t n, void *userdata)
{
	struct transfer *transfer = userdata;
	const struct s3_call *call = transfer->call;
	uint64_t left = call->size - transfer->sent;
	size_t wanted = size * n < left ? size * n : (size_t)left;
	ssize_t got = (ssize_t)wanted;

	if (call->text)
		memcpy(data, call->text + transfer->sent, wanted);
	else if (wanted > 0)
		got = pread(transfer->s3->file_fd, data, wanted,
			    (off_t)(call->offset + transfer->sent));
	if (got < 0 || (got == 0 && wanted > 0)) {
		transfer->error = got < 0 ? errno : EIO;
		return CURL_READFUNC_ABORT;
	}
	transfer->sent += (uint64_t)got;
	return (size_t)got;
}

static int on_seek(void *userdata, curl_off_t offset, int origin)
{
	struct transfer *transfer = userdata;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > transfer->call->size)
		return CURL_SEEKFUNC_FAIL;
	transfer->sent = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

static size_t on_write(char *data, size_t size, size_t n, void *userdata)
{
	struct transfer *transfer = userdata;
	struct s3_call *call = transfer->call;
	size_t bytes = size * n;
	int r;

	(void)curl_easy_getinfo(transfer->s3->curl, CURLINFO_RESPONSE_CODE, &transfer->status);
	/* One that does not end is not waited for. */
	if (call->max_bytes == 0 || transfer->status >= 300)
		return buf_append(&call->answer, data, bytes) < 0 ? 0 : bytes;
	if (bytes > call->max_bytes - call->bytes) {
		transfer->is_too_big = true;
		return 0;
	}
	r = io_write_all(transfer->s3->file_fd, data, bytes);
	if (r < 0) {
		transfer->error = -r;
		return 0;
	}
	call->bytes += bytes;
	return bytes;
}

static size_t on_header(char *data, size_t size, size_t n, void *userdata)
{
	static const char name[] = "etag:";
	struct transfer *transfer = userdata;
	struct s3_call *call = transfer->call;
	size_t bytes = size * n;
	size_t from = sizeof(name) - 1;

	if (bytes < from || strncasecmp(data, name, from) != 0)
		return bytes;
	while (from < bytes && data[from] == ' ')
		from++;
	while (bytes > from && (data[bytes - 1] == '\r' || data[bytes - 1] == '\n'))
		bytes--;
	/* One that is too long is none. */
	if (str_copy_n(call->etag, sizeof(call->etag), data + from, bytes - from) < 0)
		call->etag[0] = '\0';
	return size * n;
}

static bool is_cancelled(struct s3 *s3, int timeout_ms)
{
	struct pollfd fds[] = {
		{.fd = s3->job_fd, .events = POLLIN}
        };

	if (!s3->is_cancelled && poll(fds, 1, timeout_ms) > 0)
		s3->is_cancelled = true;
	return s3->is_cancelled;
}

static int on_progress(void *userdata, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
		       curl_off_t up)
{
	struct transfer *transfer = userdata;

	(void)down_all;
	(void)down;
	(void)up_all;
	(void)up;
	return is_cancelled(transfer->s3, 0);
}

/* One try. */

static int hash_of(const struct s3 *s3, const struct s3_call *call, char ret_hex[static 65])
{
	static uint8_t chunk[READ_BYTES];
	uint8_t hash[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_state state;
	uint64_t at = 0;

	(void)crypto_hash_sha256_init(&state);
	if (call->text)
		(void)crypto_hash_sha256_update(&state, (const uint8_t *)call->text, call->size);
	while (!call->text && at < call->size) {
		uint64_t left = call->size - at;
		ssize_t n = pread(s3->file_fd, chunk, left < READ_BYTES ? left : READ_BYTES,
				  (off_t)(call->offset + at));

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		(void)crypto_hash_sha256_update(&state, chunk, (size_t)n);
		at += (uint64_t)n;
	}
	(void)crypto_hash_sha256_final(&state, hash);
	(void)sodium_bin2hex(ret_hex, 65, hash, sizeof(hash));
	return 0;
}

/* NULL without memory. The port is in the Host that is signed only where the header is ours. */
static struct curl_slist *headers_of(const struct s3 *s3, const char *hash)
{
	const struct s3_config *config = &s3->request->config;
	char host[S3_HOST_BYTES + S3_NAME_BYTES + 8];
	char hash_header[96];
	struct curl_slist *headers = NULL;
	const char *lines[] = {host, hash_header, "Expect:", "Content-Type:"};

	if (str_format(host, sizeof(host), "Host: %s%s%s", config->path_style ? "" : config->bucket,
		       config->path_style ? "" : ".", config->host) < 0 ||
	    str_format(hash_header, sizeof(hash_header), "x-amz-content-sha256: %s", hash) < 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct curl_slist *more = curl_slist_append(headers, lines[i]);

		if (!more) {
			curl_slist_free_all(headers);
			return NULL;
		}
		headers = more;
	}
	return headers;
}

static int form_url(const struct s3 *s3, const struct s3_call *call, char *ret_url, size_t bytes)
{
	const struct s3_config *config = &s3->request->config;
	const char *scheme = config->is_plain ? "http" : "https";
	const char *mark = call->query[0] != '\0' ? "?" : "";

	if (call->key[0] != '\0' && !s3_key_is_plain(call->key))
		return -EINVAL;
	if (config->path_style)
		return str_format(ret_url, bytes, "%s://%s/%s%s%s%s%s", scheme, config->host,
				  config->bucket, call->key[0] != '\0' ? "/" : "", call->key, mark,
				  call->query);
	return str_format(ret_url, bytes, "%s://%s.%s/%s%s%s", scheme, config->bucket, config->host,
			  call->key, mark, call->query);
}

static CURLcode set_server(struct s3 *s3, const char *url, const struct curl_slist *headers)
{
	const struct s3_config *config = &s3->request->config;
	char signs[S3_NAME_BYTES + 32];
	CURL *curl = s3->curl;
	CURLcode r;

	if (str_format(signs, sizeof(signs), "aws:amz:%s:s3", config->region) < 0)
		return CURLE_OUT_OF_MEMORY;
	r = curl_easy_setopt(curl, CURLOPT_URL, url);
	r |= curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	r |= curl_easy_setopt(curl, CURLOPT_RESOLVE, s3->addresses);
	r |= curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, config->is_plain ? "http" : "https");
	r |= curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	r |= curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
	r |= curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	r |= curl_easy_setopt(curl, CURLOPT_PROXY, "");
	r |= curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	r |= curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	r |= curl_easy_setopt(curl, CURLOPT_CAINFO, AUTHORITIES);
	r |= curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
	r |= curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
	r |= curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, STALL_BYTES);
	r |= curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, STALL_TIMEOUT_S);
	r |= curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, signs);
	r |= curl_easy_setopt(curl, CURLOPT_USERPWD, config->credentials);
	return r;
}

static CURLcode set_call(struct transfer *transfer)
{
	const struct s3_call *call = transfer->call;
	CURL *curl = transfer->s3->curl;
	CURLcode r = curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);

	if (str_equal(call->method, "HEAD"))
		r |= curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
	if (str_equal(call->method, "PUT") || str_equal(call->method, "POST")) {
		r |= curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
		r |= curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->size);
		r |= curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
		r |= curl_easy_setopt(curl, CURLOPT_READDATA, transfer);
		r |= curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, on_seek);
		r |= curl_easy_setopt(curl, CURLOPT_SEEKDATA, transfer);
	}
	r |= curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_write);
	r |= curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
	r |= curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
	r |= curl_easy_setopt(curl, CURLOPT_HEADERDATA, transfer);
	r |= curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	r |= curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	r |= curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
	return r;
}

/* What the last try left is not part of the next. */
static int begin_again(const struct s3 *s3, struct s3_call *call)
{
	call->etag[0] = '\0';
	call->bytes = 0;
	call->answer.size = 0;
	if (call->max_bytes == 0)
		return 0;
	if (ftruncate(s3->file_fd, 0) < 0 || lseek(s3->file_fd, 0, SEEK_SET) < 0)
		return -errno;
	return 0;
}

static CURLcode perform(struct transfer *transfer, const char *url, const char *hash)
{
	struct s3 *s3 = transfer->s3;
	struct curl_slist *headers = headers_of(s3, hash);
	CURLcode r = headers ? CURLE_OK : CURLE_OUT_OF_MEMORY;
	curl_off_t length = -1;

	curl_easy_reset(s3->curl);
	if (r == CURLE_OK)
		r = set_server(s3, url, headers);
	if (r == CURLE_OK)
		r = set_call(transfer);
	if (r == CURLE_OK)
		r = curl_easy_perform(s3->curl);
	(void)curl_easy_getinfo(s3->curl, CURLINFO_RESPONSE_CODE, &transfer->status);
	(void)curl_easy_getinfo(s3->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
	if (str_equal(transfer->call->method, "HEAD") && length >= 0)
		transfer->call->bytes = (uint64_t)length;
	curl_slist_free_all(headers);
	return r;
}

/* What the server says. */

struct error_code {
	char text[64];
	bool is_error;
};

static void on_element(void *userdata, const char *name, const char *text)
{
	struct error_code *code = userdata;

	if (str_equal(name, "Code") && str_copy(code->text, sizeof(code->text), text) < 0)
		code->text[0] = '\0';
	code->is_error |= str_equal(name, "Error");
}

static enum s3_status status_of_code(const char *code, long http_status, bool is_head)
{
	static const struct {
		const char *code;
		enum s3_status status;
	} codes[] = {
		{"RequestTimeTooSkewed",         S3_E_CLOCK  },
		{"NoSuchBucket",                 S3_E_BUCKET },
		{"PermanentRedirect",            S3_E_BUCKET },
		{"AuthorizationHeaderMalformed", S3_E_BUCKET },
		{"NoSuchKey",                    S3_E_MISSING},
		{"InvalidAccessKeyId",           S3_E_DENIED },
		{"SignatureDoesNotMatch",        S3_E_DENIED },
		{"AccessDenied",                 S3_E_DENIED },
		{"XAdminUserNotFound",           S3_E_DENIED },
		{"NoSuchUpload",                 S3_E_MISSING},
	};

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (str_equal(code, codes[i].code))
			return codes[i].status;
	/* An answer to HEAD has no code. To others it is none of the store's, but of what is before
	 * it. */
	if (http_status == 404 && code[0] == '\0' && is_head)
		return S3_E_MISSING;
	if (http_status == 301)
		return S3_E_BUCKET;
	return http_status == 401 || http_status == 403 ? S3_E_DENIED : S3_E_SERVER;
}

/* *ret_again: it may be over in a moment. */
static enum s3_status read_answer(const struct transfer *transfer, bool *ret_again)
{
	const struct s3_call *call = transfer->call;
	struct error_code code = {.text = ""};

	/* The end of an upload may be an error with a good status. */
	if (call->answer.size > 0 &&
	    xml_read(call->answer.data, call->answer.size, on_element, &code) < 0 &&
	    transfer->status < 300)
		return S3_E_SERVER;
	*ret_again = transfer->status >= 500 || transfer->status == 429 ||
		     transfer->status == 408 || str_equal(code.text, "RequestTimeout") ||
		     (transfer->status < 300 && code.is_error);
	if (transfer->status >= 200 && transfer->status < 300 && !code.is_error)
		return S3_DONE;
	return status_of_code(code.text, transfer->status, str_equal(call->method, "HEAD"));
}

static enum s3_status status_of_transfer(const struct transfer *transfer, CURLcode result,
					 bool *ret_again)
{
	*ret_again = false;
	if (transfer->error != 0) {
		transfer->s3->report.error_number = transfer->error;
		return S3_E_FILE;
	}
	if (transfer->is_too_big)
		return S3_E_SIZE;
	switch ((int)result) {
	case CURLE_OK:
		return read_answer(transfer, ret_again);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_CONNECT_ERROR:
		return S3_E_TLS;
	case CURLE_WRITE_ERROR: /* an answer of any length */
		return S3_E_SERVER;
	case CURLE_OPERATION_TIMEDOUT:
		*ret_again = ++transfer->call->n_stalls < STALLS;
		return S3_E_CONNECT;
	default:
		*ret_again = result != CURLE_ABORTED_BY_CALLBACK;
		return S3_E_CONNECT;
	}
}

/* Twice as long each time, and up to as much again by chance: not all come back at once. */
static int pause_ms(uint32_t n_tried)
{
	uint32_t ms = FIRST_PAUSE_MS << (n_tried - 1);
	uint16_t chance = 0;

	IGNORE_RESULT(getrandom(&chance, sizeof(chance), 0));
	return (int)(ms + ms * chance / UINT16_MAX);
}

enum s3_status s3_call(struct s3 *s3, struct s3_call *call)
{
	static char url[URL_BYTES];
	enum s3_status status = S3_E_CONNECT;
	bool again = true;
	char hash[65];
	int r;

	call->answer = BUF_NULL(ANSWER_MAX_BYTES);
	if (form_url(s3, call, url, sizeof(url)) < 0)
		return S3_E_KEY;
	r = hash_of(s3, call, hash);
	for (uint32_t n = 1; r == 0 && again; n++) {
		struct transfer transfer = {.s3 = s3, .call = call};

		r = begin_again(s3, call);
		if (r < 0)
			break;
		status = status_of_transfer(&transfer, perform(&transfer, url, hash), &again);
		s3->report.http_status = (uint32_t)transfer.status;
		again = again && n < TRIES && !is_cancelled(s3, pause_ms(n));
		s3->report.n_retries += again;
	}
	if (r < 0) {
		s3->report.error_number = -r;
		return S3_E_FILE;
	}
	return status;
}
