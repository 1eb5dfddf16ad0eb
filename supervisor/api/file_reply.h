/*
 * What a file operation found, as JSON, and how it failed, as a typed error.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"

#include "sandboxd/wire.h"
#include "supervisor/api/http/request.h"
#include "supervisor/api/http/runtime_errors.h"
#include "supervisor/api/session/spec.h"

struct live;

/* As it is named in answers: absolute. text: 16 bytes more than a path. */
#define FILE_SHOWN_BYTES (FILE_PATH_BYTES + 16)
void file_show_path(const struct spec_file_path *path, char text[FILE_SHOWN_BYTES]);

/* A member with bytes of the session as text; where they are no UTF-8, U+FFFD stands for what is
 * not, and the raw_key has them as base64. No bytes: no member. */
void file_bytes_set(json_t *object, const char *key, const char *raw_key, const char *bytes,
		    size_t length);
/* The entry at found->data + *at, which moves behind it. name and target point into found. 1; 0:
 * there is no whole one any more. */
struct file_entry {
	struct wire_file_entry head;
	const char *name;
	const char *target;
};
int file_entry_next(const struct buf *found, size_t *at, struct file_entry *ret_entry);
/* One entry, `shown` as its path; NULL without memory. */
json_t *file_entry_object(const struct file_entry *entry, const char *shown);
/* {path, truncated, entries}. is_cut: not all that was found is in found. */
json_t *file_list_object(const struct buf *found, const char *shown, bool is_cut);
/* files.c: what is under way ends as `suspended`. is_frozen: all of it; else what takes time: what
 * is quick may still end by itself. */
void files_suspended(struct live *live, bool is_frozen);
enum runtime_error file_error(const struct wire_failed *failed);
void file_reply_failed(struct request *request, const struct wire_failed *failed);
