/*
 * What the instance has below its prefix: objects, one record each into the file; and uploads that
 * were begun and never ended. Of those the old ones are given up: no upload takes a day.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "supervisor/s3/s3_state.h"
#include "supervisor/s3/xml.h"

#define PAGE            "1000"
#define PAGES_MAX       1000u
#define OBJECTS_MAX     1000000u /* what a server says beyond is not noted */
#define GIVE_UP_MAX     64u      /* in one run */
#define UPLOAD_AGE      (1440 * USEC_PER_MINUTE)
#define TOKEN_BYTES     1100
#define UPLOAD_ID_BYTES 1024

struct found_upload {
	char key[S3_KEY_BYTES];
	char id[UPLOAD_ID_BYTES];
	usec_t at;
};

struct page {
	struct s3 *s3;
	char prefix[S3_KEY_BYTES]; /* of the instance */
	bool more;
	char token[TOKEN_BYTES];  /* objects: where the next page begins; uploads: a key */
	char upload[TOKEN_BYTES]; /* uploads: and the upload of that */
	struct s3_object object;
	uint32_t n_objects;
	struct found_upload one;
	int r;
	uint32_t n_old;
	struct found_upload old[GIVE_UP_MAX];
};

/* 2026-11-30T12:00:00.000Z. What is not understood is not old. */
static usec_t time_of(const char *text)
{
	struct tm tm = {0};
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	time_t seconds = end ? timegm(&tm) : -1;

	return seconds < 0 ? USEC_NEVER : (usec_t)seconds * USEC_PER_SEC;
}

/* One that is too long is none of ours. */
static void take(char *dest, size_t bytes, const char *text)
{
	if (str_copy(dest, bytes, text) < 0)
		dest[0] = '\0';
}

/* The server was asked for the instance's alone: what others have is not deleted on its word. Nor
 * is what bears a name that we give nothing. */
static bool is_ours(const struct page *page, const char *key)
{
	return str_has_prefix(key, page->prefix) && s3_key_is_plain(key);
}

static void take_object(struct page *page)
{
	if (is_ours(page, page->object.key) && page->n_objects < OBJECTS_MAX && page->r >= 0) {
		page->r = io_write_all(page->s3->file_fd, &page->object, sizeof(page->object));
		page->n_objects++;
	}
	page->object = (struct s3_object){.written_at = USEC_NEVER};
}

static void on_object(void *userdata, const char *name, const char *text)
{
	struct page *page = userdata;

	if (str_equal(name, "Key")) {
		memset(page->object.key, 0, sizeof(page->object.key));
		take(page->object.key, sizeof(page->object.key), text);
	} else if (str_equal(name, "Size")) {
		if (num_parse_u64(text, 0, INT64_MAX, &page->object.bytes) < 0)
			page->object.bytes = 0;
	} else if (str_equal(name, "LastModified")) {
		page->object.written_at = time_of(text);
	} else if (str_equal(name, "Contents")) {
		take_object(page);
	} else if (str_equal(name, "IsTruncated")) {
		page->more = str_equal(text, "true");
	} else if (str_equal(name, "NextContinuationToken")) {
		take(page->token, sizeof(page->token), text);
	}
}

static void take_upload(struct page *page)
{
	if (is_ours(page, page->one.key) && page->one.id[0] != '\0' && page->n_old < GIVE_UP_MAX &&
	    clock_add(page->one.at, UPLOAD_AGE) < clock_realtime())
		page->old[page->n_old++] = page->one;
	page->one = (struct found_upload){.at = USEC_NEVER};
}

static void on_upload(void *userdata, const char *name, const char *text)
{
	struct page *page = userdata;

	if (str_equal(name, "Key"))
		take(page->one.key, sizeof(page->one.key), text);
	else if (str_equal(name, "UploadId"))
		take(page->one.id, sizeof(page->one.id), text);
	else if (str_equal(name, "Initiated"))
		page->one.at = time_of(text);
	else if (str_equal(name, "Upload"))
		take_upload(page);
	else if (str_equal(name, "IsTruncated"))
		page->more = str_equal(text, "true");
	else if (str_equal(name, "NextKeyMarker"))
		take(page->token, sizeof(page->token), text);
	else if (str_equal(name, "NextUploadIdMarker"))
		take(page->upload, sizeof(page->upload), text);
}

struct parameter {
	const char *name;
	const char *value; /* NULL: left out */
};

/* The parameters in the order of their names. */
static enum s3_status read_page(struct page *page, const struct parameter *parameters, size_t n,
				xml_seen seen)
{
	char query[S3_QUERY_BYTES] = "";
	struct s3_call call = {.method = "GET", .key = "", .query = query, .text = ""};
	enum s3_status status;

	for (size_t i = 0; i < n; i++)
		if (parameters[i].value &&
		    s3_query_add(page->s3, query, parameters[i].name, parameters[i].value) < 0)
			return S3_E_SERVER;
	page->more = false;
	page->token[0] = page->upload[0] = '\0';
	status = s3_call(page->s3, &call);
	if (status == S3_DONE && xml_read(call.answer.data, call.answer.size, seen, page) < 0)
		status = S3_E_SERVER;
	buf_done(&call.answer);
	if (status == S3_DONE && page->r < 0) {
		page->s3->report.error_number = -page->r;
		status = S3_E_FILE;
	}
	page->more = page->more && page->token[0] != '\0';
	return status;
}

static enum s3_status list_objects(struct page *page, const char *prefix)
{
	enum s3_status status = S3_DONE;
	char token[TOKEN_BYTES] = "";

	page->more = true;
	for (uint32_t i = 0; status == S3_DONE && page->more && i < PAGES_MAX; i++) {
		const struct parameter parameters[] = {
			{"continuation-token", i > 0 ? token : NULL},
			{"list-type",          "2"                 },
			{"max-keys",           PAGE                },
			{"prefix",             prefix              },
		};

		status = read_page(page, parameters, ARRAY_SIZE(parameters), on_object);
		memcpy(token, page->token, sizeof(token));
	}
	return status;
}

static enum s3_status list_uploads(struct page *page, const char *prefix)
{
	enum s3_status status = S3_DONE;
	char key[TOKEN_BYTES] = "";
	char upload[TOKEN_BYTES] = "";

	page->more = true;
	for (uint32_t i = 0;
	     status == S3_DONE && page->more && page->n_old < GIVE_UP_MAX && i < PAGES_MAX; i++) {
		const struct parameter parameters[] = {
			{"key-marker",       i > 0 ? key : NULL                        },
			{"max-uploads",      PAGE                                      },
			{"prefix",           prefix                                    },
			{"upload-id-marker", i > 0 && upload[0] != '\0' ? upload : NULL},
			{"uploads",          ""					},
		};

		status = read_page(page, parameters, ARRAY_SIZE(parameters), on_upload);
		memcpy(key, page->token, sizeof(key));
		memcpy(upload, page->upload, sizeof(upload));
	}
	return status;
}

/* One that the server does not give up is no reason to keep the others. */
static enum s3_status give_up_old(const struct page *page)
{
	enum s3_status first = S3_DONE;

	for (uint32_t i = 0; i < page->n_old; i++) {
		enum s3_status status = s3_give_up(page->s3, page->old[i].key, page->old[i].id);

		page->s3->report.n_given_up += status == S3_DONE;
		if (first == S3_DONE)
			first = status;
		if (status == S3_E_CONNECT)
			break;
	}
	return first;
}

enum s3_status s3_list(struct s3 *s3)
{
	static struct page page;
	enum s3_status status;
	enum s3_status given_up;

	page.s3 = s3;
	page.one.at = USEC_NEVER;
	page.object.written_at = USEC_NEVER;
	if (str_format(page.prefix, sizeof(page.prefix), "%s%s/", s3->request->config.prefix,
		       s3->request->instance) < 0)
		return S3_E_KEY;
	status = list_objects(&page, page.prefix);
	if (status != S3_DONE)
		return status;
	/* Those on the pages before a failure as well. */
	status = list_uploads(&page, page.prefix);
	given_up = give_up_old(&page);
	return status == S3_DONE ? given_up : status;
}
