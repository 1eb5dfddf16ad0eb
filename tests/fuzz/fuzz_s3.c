/*
 * Answers of an object store: whatever its lists say, only what is the instance's own, by a name
 * that a URL has as it is, is noted or given up; and an upload goes on under the id that it was
 * told, with the ETags that it was told, or not at all.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "base/str.h"

#include "supervisor/s3/s3_state.h"
#include "supervisor/s3/xml.h"
#include "tests/fuzz/fuzz.h"

#define PREFIX    "sandboxes/0123abcd/"
#define CALLS_MAX 16u
#define PARTS     2u
#define BYTES     ((uint64_t)9 * 1024 * 1024)

static const uint8_t *answer;
static size_t answer_size;
static uint32_t n_calls;
static char etag[S3_ETAG_BYTES];

struct manifest {
	uint32_t n_etags;
};

static void check_key(const char *key)
{
	ASSERT(str_has_prefix(key, PREFIX) && s3_key_is_plain(key));
}

static void on_etag(void *userdata, const char *name, const char *text)
{
	struct manifest *manifest = userdata;

	if (!str_equal(name, "ETag"))
		return;
	ASSERT(str_equal(text, etag));
	manifest->n_etags++;
}

static void check_manifest(const struct s3_call *call)
{
	struct manifest manifest = {0};

	for (const char *at = etag; *at; at++)
		if (*at < 0x20 || *at > 0x7e)
			return; /* the server's own, and no XML */
	ASSERT(xml_read(call->text, call->size, on_etag, &manifest) == 0);
	ASSERT(manifest.n_etags == PARTS);
}

/* What http.c has, without a server. */

int s3_query_add(struct s3 *s3, char query[static S3_QUERY_BYTES], const char *name,
		 const char *value)
{
	size_t used = strlen(query);

	(void)s3;
	return str_format(query + used, S3_QUERY_BYTES - used, "%s%s=%s", used > 0 ? "&" : "", name,
			  value);
}

enum s3_status s3_call(struct s3 *s3, struct s3_call *call)
{
	(void)s3;
	call->answer = BUF_NULL(answer_size + 1);
	if (call->key[0] != '\0')
		check_key(call->key);
	else
		ASSERT(str_equal(call->method, "GET"));
	if (str_equal(call->method, "DELETE"))
		ASSERT(str_has_prefix(call->query, "uploadId=") && call->query[9] != '\0');
	if (str_equal(call->method, "POST") && call->size > 0)
		check_manifest(call);
	if (++n_calls > CALLS_MAX)
		return S3_E_CONNECT;
	memcpy(call->etag, etag, sizeof(call->etag));
	if (buf_append(&call->answer, answer, answer_size) < 0)
		return S3_E_SERVER;
	return S3_DONE;
}

/* As a header has it. */
static void take_etag(void)
{
	size_t n = 0;

	while (n < answer_size && n < sizeof(etag) - 1 && answer[n] != '\0' && answer[n] != '\r' &&
	       answer[n] != '\n')
		n++;
	memset(etag, 0, sizeof(etag));
	memcpy(etag, answer, n);
}

static void check_objects(int fd)
{
	struct s3_object object;

	ASSERT(lseek(fd, 0, SEEK_SET) == 0);
	while (io_read_exact(fd, &object, sizeof(object)) == 0) {
		ASSERT(memchr(object.key, '\0', sizeof(object.key)));
		check_key(object.key);
	}
	ASSERT(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
}

static void see(void *userdata, const char *name, const char *text)
{
	(void)userdata;
	ASSERT(name);
	ASSERT(strlen(text) < XML_TEXT_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct s3_request request = {
		.instance = "0123abcd",
		.config = {.prefix = "sandboxes/"},
	};
	static int fd = -1;
	struct s3 s3 = {.request = &request, .job_fd = -1};

	if (fd < 0)
		fd = memfd_create("objects", MFD_CLOEXEC);
	ASSERT(fd >= 0);
	s3.file_fd = fd;
	answer = data;
	answer_size = size;
	IGNORE_RESULT(xml_read(data, size, see, NULL));
	n_calls = 0;
	(void)s3_list(&s3);
	check_objects(fd);
	take_etag();
	n_calls = 0;
	s3.job = (struct s3_job){.action = S3_PUT, .bytes = BYTES, .key = "a"};
	(void)s3_put(&s3);
	return 0;
}
