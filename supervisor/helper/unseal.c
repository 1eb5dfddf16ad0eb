/*
 * Theory. The report goes out before any value, and only when every value that was asked for is
 * open: a session has all of its secrets or does not start. Whoever reads the report (the
 * supervisor) sees no value; whoever reads the records (the shim, which is exec'd after the report)
 * sees only the values of its own session. What fails is told by a number and the place of the name
 * in the request, never by a text.
 *
 * A name that does not exist and one that this workspace may not use have the same answer.
 */
#include "supervisor/helper/unseal.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/num.h"
#include "base/secret.h"
#include "base/str.h"

#include "supervisor/helper/secret_key.h"
#include "supervisor/helper/secret_store.h"

#define RECORDS_MAX_BYTES (SECRETS_SESSION_BYTES + 65536)

struct unseal {
	struct secret_request request;
	struct secret_store store;
	struct buf records;
	size_t value_bytes;
	struct secret_report report;
};

/* One value, opened, as one record. An enum secret_status. */
static enum secret_status take_one(struct unseal *unseal, const struct secret_row *row)
{
	const struct secret_record record = {
		.name_bytes = (uint16_t)strlen(row->name),
		.variable_bytes = (uint16_t)strlen(row->variable),
		.value_bytes = row->value_bytes,
		.flags = row->flags,
	};
	uint8_t *value;
	int r;

	unseal->value_bytes += row->value_bytes;
	if (unseal->value_bytes > SECRETS_SESSION_BYTES)
		return SECRET_E_TOO_BIG;
	value = malloc(row->value_bytes);
	if (!value)
		return SECRET_E_STORE;
	r = secret_store_unseal(&unseal->store, row, value);
	if (r >= 0) {
		r = buf_append(&unseal->records, &record, sizeof(record));
		if (r >= 0)
			r = buf_append(&unseal->records, row->name, record.name_bytes);
		if (r >= 0)
			r = buf_append(&unseal->records, row->variable, record.variable_bytes);
		if (r >= 0)
			r = buf_append(&unseal->records, value, row->value_bytes);
		if (r < 0)
			r = -ENOMEM;
	}
	sodium_memzero(value, row->value_bytes);
	free(value);
	if (r == -ENOMEM)
		return SECRET_E_STORE;
	return r < 0 ? SECRET_E_CORRUPT : SECRET_OK;
}

static enum secret_status take_all(struct unseal *unseal)
{
	for (uint32_t i = 0; i < unseal->request.n; i++) {
		enum secret_status status;
		struct secret_row row;
		uint32_t place;
		int r;

		unseal->report.index = i;
		r = secret_store_find(&unseal->store, unseal->request.name[i], &place, &row);
		if (r == -ENOENT)
			return SECRET_E_UNKNOWN;
		/* Of a damaged row nothing is believed, so the workspace that may hear of it is
		 * not known: it is there, and is all that is told. */
		if (r < 0)
			return SECRET_E_CORRUPT;
		if (!secret_row_usable(&row, &unseal->request))
			return SECRET_E_UNKNOWN;
		status = take_one(unseal, &row);
		if (status != SECRET_OK)
			return status;
	}
	return SECRET_OK;
}

/* Generation that was written last; without the file none is older. */
static int read_generation(uint64_t *ret_generation)
{
	char text[32];
	ssize_t n = io_read(HELPER_FD_GENERATION, text, sizeof(text) - 1);

	*ret_generation = 0;
	if (n <= 0)
		return (int)n;
	text[n] = '\0';
	return num_parse_u64(text, 0, UINT64_MAX - 1, ret_generation);
}

static enum secret_status open_store(struct unseal *unseal, uint8_t **ret_file)
{
	struct secret_key key;
	uint64_t oldest = 0;
	char *file = NULL;
	size_t size = 0;
	int kind;
	int r;

	r = io_read_file(HELPER_FD_STORE, SECRET_FILE_MAX_BYTES, &file, &size);
	if (r < 0)
		return SECRET_E_STORE;
	*ret_file = (uint8_t *)file;
	kind = secret_store_key_kind(*ret_file, size);
	if (kind < 0 || read_generation(&oldest) < 0)
		return SECRET_E_STORE;
	if (kind == 0) /* the first name, or a store that was taken away */
		return oldest == 0 ? SECRET_E_UNKNOWN : SECRET_E_STORE;
	r = secret_key_read(kind == SECRET_KEY_HOST ? HELPER_FD_HOST_KEY : HELPER_FD_KEY,
			    (enum secret_key_kind)kind, &key);
	if (r >= 0)
		r = secret_store_open(&unseal->store, *ret_file, size, &key, oldest);
	sodium_memzero(&key, sizeof(key));
	return r < 0 ? SECRET_E_STORE : SECRET_OK;
}

static enum secret_status unseal_all(struct unseal *unseal)
{
	AUTO_FREE uint8_t *file = NULL;
	enum secret_status status;

	if (io_read_exact(HELPER_FD_REQUEST, &unseal->request, sizeof(unseal->request)) < 0 ||
	    secret_request_check(&unseal->request) < 0 || unseal->request.n == 0)
		return SECRET_E_STORE;
	status = open_store(unseal, &file);
	if (status == SECRET_OK)
		status = take_all(unseal);
	secret_store_close(&unseal->store);
	return status;
}

static int write_records(const struct unseal *unseal)
{
	const struct secret_stream head = {
		.magic = SECRET_MAGIC,
		.version = SECRET_VERSION,
		.n = (uint16_t)unseal->request.n,
		.bytes = (uint32_t)unseal->records.size,
	};
	int r;

	r = io_write_all(HELPER_FD_RECORDS, &head, sizeof(head));
	if (r >= 0)
		r = io_write_all(HELPER_FD_RECORDS, unseal->records.data, unseal->records.size);
	return r;
}

int unseal_run(void)
{
	struct unseal unseal = {.records = BUF_NULL(RECORDS_MAX_BYTES)};
	enum secret_status status;
	int r;

	status = unseal_all(&unseal);
	unseal.report.magic = SECRET_MAGIC;
	unseal.report.version = SECRET_VERSION;
	unseal.report.status = (uint16_t)status;
	r = io_write_all(HELPER_FD_REPORT, &unseal.report, sizeof(unseal.report));
	if (r >= 0 && status == SECRET_OK)
		r = write_records(&unseal);
	if (unseal.records.data)
		sodium_memzero(unseal.records.data, unseal.records.size);
	buf_done(&unseal.records);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
