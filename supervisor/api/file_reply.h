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

/* As it is named in answers: absolute. text: 16 bytes more than a path. */
#define FILE_SHOWN_BYTES (FILE_PATH_BYTES + 16)
void file_show_path(const struct spec_file_path *path, char text[FILE_SHOWN_BYTES]);

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
void file_reply_failed(struct request *request, const struct wire_failed *failed);
