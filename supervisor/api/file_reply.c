#include "supervisor/api/file_reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

#include "supervisor/api/http/reply.h"

void file_show_path(const struct spec_file_path *path, char text[FILE_SHOWN_BYTES])
{
	const char *root = path->root == WIRE_FILE_TMP ? "/tmp" : "/session";
	bool is_root = str_equal(path->text, ".");

	IGNORE_RESULT(str_format(text, FILE_SHOWN_BYTES, "%s%s%s", root, is_root ? "" : "/",
				 is_root ? "" : path->text));
}

int file_entry_next(const struct buf *found, size_t *at, struct file_entry *ret_entry)
{
	size_t left = found->size - *at;
	struct file_entry entry;

	if (left < sizeof(entry.head))
		return 0;
	memcpy(&entry.head, found->data + *at, sizeof(entry.head));
	if (left - sizeof(entry.head) < (size_t)entry.head.name_bytes + entry.head.target_bytes)
		return 0;
	entry.name = (const char *)found->data + *at + sizeof(entry.head);
	entry.target = entry.name + entry.head.name_bytes;
	*at += sizeof(entry.head) + entry.head.name_bytes + entry.head.target_bytes;
	*ret_entry = entry;
	return 1;
}

/* Text of any bytes: what is no UTF-8 becomes U+FFFD. */
static json_t *text_of(const char *bytes, size_t length)
{
	struct buf text = BUF_NULL((size_t)4 * FILE_PATH_BYTES);
	json_t *value = NULL;
	size_t at = 0;
	int r = 0;

	while (at < length && r >= 0) {
		size_t n = 1;

		while (n < 4 && at + n < length && !str_utf8_valid(bytes + at, n))
			n++;
		if (str_utf8_valid(bytes + at, n) && bytes[at] != '\0') {
			r = buf_append(&text, bytes + at, n);
			at += n;
		} else {
			r = buf_append_str(&text, "\xef\xbf\xbd");
			at++;
		}
	}
	if (r >= 0)
		value = json_stringn((const char *)text.data, text.size);
	buf_done(&text);
	return value;
}

static const char *type_name(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "folder";
	case S_IFLNK:
		return "link";
	default:
		return "other";
	}
}

static void add_base64(json_t *object, const char *key, const char *bytes, size_t length)
{
	char *text = malloc(str_base64_bytes(length));

	if (!text)
		return;
	str_base64(text, bytes, length);
	(void)json_object_set_new(object, key, json_string(text));
	free(text);
}

void file_bytes_set(json_t *object, const char *key, const char *raw_key, const char *bytes,
		    size_t length)
{
	if (length == 0)
		return;
	(void)json_object_set_new(object, key, text_of(bytes, length));
	if (!str_utf8_valid(bytes, length))
		add_base64(object, raw_key, bytes, length);
}

static usec_t time_of(int64_t mtime_ns)
{
	return mtime_ns > 0 ? (usec_t)(mtime_ns / 1000) : 0;
}

json_t *file_entry_object(const struct file_entry *entry, const char *shown)
{
	char modified_at[CLOCK_ISO_BYTES];
	json_t *object = json_object();
	char mode[8];

	clock_format_iso(time_of(entry->head.mtime_ns), modified_at);
	IGNORE_RESULT(str_format(mode, sizeof(mode), "%04o", entry->head.mode & 07777u));
	if (shown)
		(void)json_object_set_new(object, "path", json_string(shown));
	file_bytes_set(object, "name", "name_base64", entry->name, entry->head.name_bytes);
	(void)json_object_set_new(object, "type", json_string(type_name(entry->head.mode)));
	(void)json_object_set_new(object, "size", json_integer((json_int_t)entry->head.size));
	(void)json_object_set_new(object, "mode", json_string(mode));
	(void)json_object_set_new(object, "uid", json_integer(entry->head.uid));
	(void)json_object_set_new(object, "gid", json_integer(entry->head.gid));
	(void)json_object_set_new(object, "modified_at", json_string(modified_at));
	file_bytes_set(object, "target", "target_base64", entry->target, entry->head.target_bytes);
	return object;
}

json_t *file_list_object(const struct buf *found, const char *shown, bool is_cut)
{
	json_t *entries = json_array();
	struct file_entry entry;
	size_t at = 0;

	while (file_entry_next(found, &at, &entry)) {
		if (entry.head.mode == 0) {
			is_cut = true;
		} else if (json_array_size(entries) >= FILE_LIST_MAX) {
			/* No shim of ours says so many. */
			is_cut = true;
			break;
		} else {
			(void)json_array_append_new(entries, file_entry_object(&entry, NULL));
		}
	}
	return json_pack("{s:s, s:b, s:o?}", "path", shown, "truncated", is_cut, "entries",
			 entries);
}

enum runtime_error file_error(const struct wire_failed *failed)
{
	static const struct {
		int error_number;
		enum runtime_error error;
	} rows[] = {
		{ENOENT,       RUNTIME_NO_FILE             },
		{EEXIST,       RUNTIME_EXISTS              },
		{EISDIR,       RUNTIME_IS_FOLDER           },
		{ENOTDIR,      RUNTIME_NOT_FOLDER          },
		{ENOTEMPTY,    RUNTIME_NOT_EMPTY           },
		{ENXIO,        RUNTIME_SPECIAL_FILE        },
		{EXDEV,        RUNTIME_LEADS_OUT           },
		{ELOOP,        RUNTIME_LEADS_OUT           },
		{ENOSPC,       RUNTIME_NO_SPACE            },
		{EDQUOT,       RUNTIME_NO_SPACE            },
		{EFBIG,        RUNTIME_NO_SPACE            },
		{ENAMETOOLONG, RUNTIME_TOO_LONG            },
		{EACCES,       RUNTIME_DENIED              },
		{EPERM,        RUNTIME_DENIED              },
		{EROFS,        RUNTIME_DENIED              },
		{EBUSY,        RUNTIME_DENIED              },
		{EINVAL,       RUNTIME_DENIED              },
		{ETIMEDOUT,    RUNTIME_TIMEOUT             },
		{EAGAIN,       RUNTIME_CHANGED             },
		{EMFILE,       RUNTIME_QUOTA               },
		{ECANCELED,    RUNTIME_PROVIDER_UNAVAILABLE},
	};

	if (failed->step == WIRE_STEP_BUSY)
		return RUNTIME_BUSY;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].error_number == failed->error_number)
			return rows[i].error;
	return RUNTIME_PROVIDER_UNAVAILABLE;
}

void file_reply_failed(struct request *request, const struct wire_failed *failed)
{
	reply_runtime_error(request, file_error(failed), NULL);
}
