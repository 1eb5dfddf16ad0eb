#include "base/json.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int doc_seed(void)
{
	size_t seed;
	ssize_t n;

	/* A worker's root has no /dev/urandom, and jansson would then take the time of day. The
	 * first seed wins, so doing this again is harmless. */
	do
		n = getrandom(&seed, sizeof(seed), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	json_object_seed(seed);
	return 0;
}

static void free_wiped(void *memory)
{
	if (memory)
		explicit_bzero(memory, malloc_usable_size(memory));
	free(memory);
}

void doc_wipe_freed(void)
{
	json_set_alloc_funcs(malloc, free_wiped);
}

/*
 * Nesting of brackets outside strings. jansson's parser recurses up to 2048 levels; nobody here
 * needs more than a few, and everything that walks the document later may recurse as well.
 */
static bool too_deep(const char *text, size_t size)
{
	bool in_string = false;
	int depth = 0;

	for (size_t i = 0; i < size; i++) {
		switch (text[i]) {
		case '\\':
			if (in_string)
				i++;
			break;
		case '"':
			in_string = !in_string;
			break;
		case '[':
		case '{':
			if (!in_string && ++depth > DOC_MAX_DEPTH)
				return true;
			break;
		case ']':
		case '}':
			if (!in_string)
				depth--;
			break;
		default:
			break;
		}
	}
	return false;
}

/* jansson's own text quotes the input, so only its code is used. */
static const char *reason_of(const json_error_t *error)
{
	switch (json_error_code(error)) {
	case json_error_out_of_memory:
		return "out of memory";
	case json_error_stack_overflow:
		return "too deep";
	case json_error_invalid_utf8:
		return "not UTF-8";
	case json_error_premature_end_of_input:
		return "ends early";
	case json_error_end_of_input_expected:
		return "more than one document";
	case json_error_duplicate_key:
		return "duplicate key";
	case json_error_numeric_overflow:
		return "number out of range";
	case json_error_null_character:
	case json_error_null_byte_in_key:
		return "NUL in a key";
	case json_error_unknown:
	case json_error_cannot_open_file:
	case json_error_invalid_argument:
	case json_error_invalid_syntax:
	case json_error_invalid_format:
	case json_error_wrong_type:
	case json_error_null_value:
	case json_error_item_not_found:
	case json_error_index_out_of_range:
		break;
	}
	return "not JSON";
}

int doc_parse(const char *text, size_t size, json_t **ret_doc, const char **ret_reason)
{
	json_error_t error;
	json_t *doc;

	*ret_reason = "too deep";
	if (too_deep(text, size))
		return -EBADMSG;
	if (doc_seed() < 0) {
		*ret_reason = "no random seed";
		return -EBADMSG;
	}
	doc = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL,
			 &error);
	if (!doc) {
		*ret_reason = reason_of(&error);
		return -EBADMSG;
	}
	*ret_reason = NULL;
	*ret_doc = doc;
	return 0;
}

char *doc_format(const json_t *doc, int ascii)
{
	/* 16 digits show a time in seconds to the microsecond exactly; 17 would show the noise of
	 * binary fractions behind it. */
	return json_dumps(doc, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(16) |
				       (ascii ? (size_t)JSON_ENSURE_ASCII : 0));
}
