/*
 * Theory. A small file is one request. A larger one is an upload in parts, each with its hash,
 * which becomes an object only when all of them are there and it is told so; until then there is
 * none, and a failure gives the upload up. At the end the server is asked how large the object is.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/s3/s3_state.h"
#include "supervisor/s3/xml.h"

#define PART_BYTES       ((uint64_t)8 * 1024 * 1024)
#define PARTS_MAX        10000u
#define UPLOAD_ID_BYTES  1024
#define MANIFEST_MAX     ((size_t)4 * 1024 * 1024)
#define PART_ENTRY_BYTES (S3_ETAG_BYTES + 96)

struct upload {
	struct s3 *s3;
	const char *key;
	char id[UPLOAD_ID_BYTES];
	struct buf manifest;
};

static void on_begun(void *userdata, const char *name, const char *text)
{
	struct upload *upload = userdata;

	if (str_equal(name, "UploadId") && str_copy(upload->id, sizeof(upload->id), text) < 0)
		upload->id[0] = '\0';
}

static enum s3_status begin(struct upload *upload)
{
	struct s3_call call = {
		.method = "POST", .key = upload->key, .query = "uploads=", .text = ""};
	enum s3_status status = s3_call(upload->s3, &call);

	if (status == S3_DONE &&
	    (xml_read(call.answer.data, call.answer.size, on_begun, upload) < 0 ||
	     upload->id[0] == '\0'))
		status = S3_E_SERVER;
	buf_done(&call.answer);
	return status;
}

/* As XML has it: an ETag is in quotes. */
static int note_part(struct upload *upload, uint32_t number, const char *etag)
{
	char entry[PART_ENTRY_BYTES];
	int r;

	/* What else would have to be written otherwise is in none. */
	if (etag[0] == '\0' || strpbrk(etag, "<&>"))
		return -EBADMSG;
	r = str_format(entry, sizeof(entry),
		       "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", number, etag);
	return r < 0 ? r : buf_append(&upload->manifest, entry, strlen(entry));
}

static enum s3_status send_part(struct upload *upload, uint32_t number, uint64_t offset,
				uint64_t size)
{
	char query[S3_QUERY_BYTES] = "";
	char text[16];
	struct s3_call call = {.method = "PUT", .key = upload->key, .query = query};
	enum s3_status status;

	call.offset = offset;
	call.size = size;
	if (str_format(text, sizeof(text), "%u", number) < 0 ||
	    s3_query_add(upload->s3, query, "partNumber", text) < 0 ||
	    s3_query_add(upload->s3, query, "uploadId", upload->id) < 0)
		return S3_E_SERVER;
	status = s3_call(upload->s3, &call);
	buf_done(&call.answer);
	if (status == S3_DONE && note_part(upload, number, call.etag) < 0)
		return S3_E_SERVER;
	return status;
}

static enum s3_status send_parts(struct upload *upload)
{
	uint64_t bytes = upload->s3->job.bytes;
	uint64_t part = bytes / PARTS_MAX + 1 > PART_BYTES ? bytes / PARTS_MAX + 1 : PART_BYTES;
	enum s3_status status = S3_DONE;
	uint32_t number = 1;

	for (uint64_t at = 0; status == S3_DONE && at < bytes; at += part)
		status = send_part(upload, number++, at, bytes - at < part ? bytes - at : part);
	return status;
}

static enum s3_status complete(struct upload *upload)
{
	static const char head[] = "<CompleteMultipartUpload>";
	static const char tail[] = "</CompleteMultipartUpload>";
	char query[S3_QUERY_BYTES] = "";
	struct s3_call call = {.method = "POST", .key = upload->key, .query = query};
	enum s3_status status;

	upload->manifest = BUF_NULL(MANIFEST_MAX);
	if (buf_append(&upload->manifest, head, sizeof(head) - 1) < 0)
		return S3_E_SERVER;
	status = send_parts(upload);
	if (status != S3_DONE)
		return status;
	if (buf_append(&upload->manifest, tail, sizeof(tail) - 1) < 0 ||
	    s3_query_add(upload->s3, query, "uploadId", upload->id) < 0)
		return S3_E_SERVER;
	call.text = (const char *)upload->manifest.data;
	call.size = upload->manifest.size;
	status = s3_call(upload->s3, &call);
	buf_done(&call.answer);
	/* The answer to a first try was lost: the object is there, as its size then says, or is
	 * not. */
	return status == S3_E_MISSING ? S3_DONE : status;
}

enum s3_status s3_give_up(struct s3 *s3, const char *key, const char *upload)
{
	char query[S3_QUERY_BYTES] = "";
	struct s3_call call = {.method = "DELETE", .key = key, .query = query};
	enum s3_status status;

	if (s3_query_add(s3, query, "uploadId", upload) < 0)
		return S3_E_SERVER;
	status = s3_call(s3, &call);
	buf_done(&call.answer);
	return status == S3_E_MISSING ? S3_DONE : status;
}

/* Also for who waits no more. What stays is found by its age. */
static void give_up(struct upload *upload)
{
	const struct s3_report report = upload->s3->report;
	int job_fd = upload->s3->job_fd;

	upload->s3->is_cancelled = false;
	upload->s3->job_fd = -1;
	IGNORE_RESULT(s3_give_up(upload->s3, upload->key, upload->id));
	upload->s3->job_fd = job_fd;
	upload->s3->report = report; /* of what failed */
}

static enum s3_status put_parts(struct s3 *s3, const char *key)
{
	struct upload upload = {.s3 = s3, .key = key};
	enum s3_status status = begin(&upload);

	if (status != S3_DONE)
		return status;
	status = complete(&upload);
	buf_done(&upload.manifest);
	if (status != S3_DONE)
		give_up(&upload);
	return status;
}

static enum s3_status put_whole(struct s3 *s3, const char *key)
{
	struct s3_call call = {.method = "PUT", .key = key, .query = "", .size = s3->job.bytes};
	enum s3_status status = s3_call(s3, &call);

	buf_done(&call.answer);
	return status;
}

static enum s3_status check_size(struct s3 *s3, const char *key)
{
	struct s3_call call = {.method = "HEAD", .key = key, .query = "", .text = ""};
	enum s3_status status = s3_call(s3, &call);

	buf_done(&call.answer);
	if (status == S3_DONE && call.bytes != s3->job.bytes)
		status = S3_E_SIZE;
	return status;
}

enum s3_status s3_put(struct s3 *s3)
{
	const struct s3_request *request = s3->request;
	enum s3_status status;
	char *key = s3->report.key;

	if (strchr(s3->job.key, '/') ||
	    str_format(key, sizeof(s3->report.key), "%s%s/%s", request->config.prefix,
		       request->instance, s3->job.key) < 0)
		return S3_E_KEY;
	status = s3->job.bytes > PART_BYTES ? put_parts(s3, key) : put_whole(s3, key);
	return status == S3_DONE ? check_size(s3, key) : status;
}
