#include "base/secret.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

#define NAME_MAX_BYTES (SECRET_NAME_BYTES - 1u)

bool secret_name_valid(const char *name, size_t length)
{
	if (length == 0 || length > NAME_MAX_BYTES)
		return false;
	return str_only(name, 1, "") && str_only(name, length, "._-");
}

static const char *const reserved[] = {
	"PATH",
	"HOME",
	"TMPDIR",
	"USER",
	"LOGNAME",
	"SHELL",
	"IFS",
	"ENV",
	"BASH_ENV",
	"GCONV_PATH",
	"GLIBC_TUNABLES",
	"NLSPATH",
	"LOCPATH",
	"MALLOC_TRACE",
	"HOSTALIASES",
	"RES_OPTIONS",
	"LOCALDOMAIN",
	"RESOLV_HOST_CONF",
};
static const char *const reserved_prefixes[] = {"LD_", "SANDBOX_", "BASH_FUNC_"};

bool variable_name_allowed(const char *name, size_t length)
{
	if (length == 0 || length > NAME_MAX_BYTES)
		return false;
	for (size_t i = 0; i < length; i++) {
		char c = name[i];

		if (!((c >= 'A' && c <= 'Z') || c == '_' || (i > 0 && c >= '0' && c <= '9')))
			return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
		if (strlen(reserved[i]) == length && memcmp(name, reserved[i], length) == 0)
			return false;
	for (size_t i = 0; i < ARRAY_SIZE(reserved_prefixes); i++) {
		size_t n = strlen(reserved_prefixes[i]);

		if (length >= n && memcmp(name, reserved_prefixes[i], n) == 0)
			return false;
	}
	return true;
}

static bool all_zero(const char *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

int secret_request_check(const struct secret_request *request)
{
	size_t length = strnlen(request->workspace, sizeof(request->workspace));

	if (request->n > SECRETS_SESSION_MAX ||
	    (request->flags & ~(uint32_t)SECRET_REQUEST_OPERATOR) != 0 ||
	    length == sizeof(request->workspace) ||
	    !all_zero(request->workspace + length, sizeof(request->workspace) - length) ||
	    !all_zero(request->zero, sizeof(request->zero)))
		return -EPROTO;
	for (size_t i = 0; i < SECRETS_SESSION_MAX; i++) {
		const char *name = request->name[i];

		length = strnlen(name, SECRET_NAME_BYTES);
		if (length == SECRET_NAME_BYTES ||
		    !all_zero(name + length, SECRET_NAME_BYTES - length))
			return -EPROTO;
		if (i < request->n ? !secret_name_valid(name, length) : length > 0)
			return -EPROTO;
	}
	return 0;
}

/* One record from *at on, which moves behind it. */
static int take_record(const uint8_t **at, const uint8_t *end, struct secret_view *ret_view)
{
	struct secret_record record;
	const uint8_t *text = *at;
	struct secret_view view;

	if ((size_t)(end - text) < sizeof(record))
		return -EBADMSG;
	memcpy(&record, text, sizeof(record));
	text += sizeof(record);
	if (record.value_bytes < SECRET_VALUE_MIN_BYTES ||
	    record.value_bytes > SECRET_VALUE_MAX_BYTES ||
	    (record.flags & ~(uint32_t)SECRET_RECORD_ENCODINGS) != 0 ||
	    (size_t)(end - text) <
		    (size_t)record.name_bytes + record.variable_bytes + record.value_bytes)
		return -EBADMSG;
	view.name = (const char *)text;
	view.name_length = record.name_bytes;
	view.variable = view.name + record.name_bytes;
	view.variable_length = record.variable_bytes;
	view.value = text + record.name_bytes + record.variable_bytes;
	view.value_length = record.value_bytes;
	view.flags = record.flags;
	if (!secret_name_valid(view.name, view.name_length) ||
	    !variable_name_allowed(view.variable, view.variable_length) ||
	    memchr(view.value, '\0', view.value_length))
		return -EBADMSG;
	*at = view.value + view.value_length;
	*ret_view = view;
	return 0;
}

int secret_stream_parse(const uint8_t *data, size_t size,
			struct secret_view ret_views[SECRETS_SESSION_MAX], size_t *ret_n)
{
	struct secret_view views[SECRETS_SESSION_MAX];
	const uint8_t *at = data + sizeof(struct secret_stream);
	const uint8_t *end = data + size;
	struct secret_stream head;
	size_t total = 0;
	int r;

	if (size < sizeof(head))
		return -EBADMSG;
	memcpy(&head, data, sizeof(head));
	if (head.magic != SECRET_MAGIC || head.version != SECRET_VERSION || head.zero != 0 ||
	    head.n == 0 || head.n > SECRETS_SESSION_MAX || head.bytes != size - sizeof(head))
		return -EBADMSG;
	for (size_t i = 0; i < head.n; i++) {
		r = take_record(&at, end, &views[i]);
		if (r < 0)
			return r;
		total += views[i].value_length;
	}
	if (at != end || total > SECRETS_SESSION_BYTES)
		return -EBADMSG;
	memcpy(ret_views, views, head.n * sizeof(views[0]));
	*ret_n = head.n;
	return 0;
}
