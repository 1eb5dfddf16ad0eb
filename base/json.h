/*
 * Strict JSON over jansson, in one place: UTF-8, duplicate keys refused, NUL in strings kept and
 * visible, depth bounded. A library of its own (sandboxd_json): never linked by shim or supervisor.
 * Names differ from jansson's, which owns the json_ prefix.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/auto.h"

#define DOC_MAX_DEPTH 64

/* Seed jansson's hash tables from getrandom. For a main that builds documents before it parses any;
 * doc_parse does it by itself. 0 or -errno. */
MUST_USE int doc_seed(void);
/* What documents held is overwritten when it is freed: for a main whose documents may hold a
 * credential, before it makes any. */
void doc_wipe_freed(void);
/* 0 and a new reference, or -EBADMSG and a short reason without any byte of the text. */
MUST_USE int doc_parse(const char *text, size_t size, json_t **ret_doc, const char **ret_reason);
/* Compact text, keys in insertion order; with ascii all above U+007F escaped. The caller frees.
 * NULL: no memory. */
char *doc_format(const json_t *doc, int ascii);
