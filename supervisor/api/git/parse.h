/*
 * What git says, as JSON. Pure. All of it is a session's word: it is read as far as it has the form
 * that was asked for, and never believed beyond. Names and texts that are not UTF-8 are base64,
 * under the member's name with _base64.
 *
 * Each returns a new reference; NULL: no memory.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"

/* `status --porcelain=v2 --branch -z`: current_branch, head, upstream, ahead, behind, has_changes,
 * files. is_cut: the last record may be half. */
json_t *git_status_json(const struct buf *text, bool is_cut);
/* `log -z` in our format, `max` entries: commits, truncated. */
json_t *git_log_json(const struct buf *text, size_t max, bool is_cut);
/* `diff --numstat -z`: a list of files. */
json_t *git_counts_json(const struct buf *text);
/* `push --porcelain` of one ref: "new", "updated", "forced", "up_to_date", or NULL. */
const char *git_push_result(const struct buf *text);
/* One URL of `config --get-regexp`: for a push the only pushurl, else the only url. 0; -ENOENT:
 * none; -E2BIG: several. The caller frees *ret_url. */
MUST_USE int git_remote_url(const struct buf *text, bool for_push, char **ret_url);
/* A text, or its bytes as base64, as a member of doc. */
void git_text_set(json_t *doc, const char *name, const char *text, size_t length);
