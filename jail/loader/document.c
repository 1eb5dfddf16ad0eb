/*
 * Theory. A component file is a stream of YAML documents, each a mapping with a text `type` and
 * keys of a small set. It is read by events: no tree is built, an alias is counted and never
 * followed, so a bomb of aliases costs what its text costs. What is kept is one frame for each open
 * collection, and for a mapping the hashes of its keys, to find duplicates.
 *
 * Limits. libyaml keeps a simple-key record per flow level and searches all of them for each token,
 * which is quadratic in the depth; DOCUMENT_MAX_DEPTH stops the parse at the 65th level, long
 * before that matters. But its scanner reads ahead: many `[` are scanned before the first event
 * comes out only where no event is due, and a flow start is always one. The process has RLIMIT_CPU
 * and RLIMIT_AS as the last word (main.c).
 *
 * Only UTF-8 is accepted: libyaml would also detect UTF-16, but nothing else in the system does.
 *
 * Everything here is the session's input, and the process that reads it is the session's own.
 */
#include "jail/loader/document.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/err.h"
#include "base/str.h"

#include "jail/loader/report.h"

/* Keys whose hashes are kept at once, over all open mappings; beyond that duplicates go unseen. */
#define DOCUMENT_MAX_KEYS 20000

struct document_level {
	bool is_mapping;
	bool expects_key;
	size_t first_key; /* in `key` */
};

struct document_key {
	uint64_t hash;
	uint32_t length;
	uint32_t line;
	uint32_t column;
};

struct document {
	struct report *report;
	struct document_level level[DOCUMENT_MAX_DEPTH];
	size_t depth;
	struct document_key *key; /* DOCUMENT_MAX_KEYS, owned */
	size_t n_keys;
	uint32_t n_aliases;
	uint32_t n_events;
	uint32_t n_documents; /* ended */
	uint32_t n_started;
	/* of the current document */
	bool has_type;
	bool has_merge;     /* "<<" at the top level: type may come from there */
	bool value_is_type; /* the next value at the top level is that of `type` */
	bool is_mapping;
	yaml_mark_t begin;
	int memory; /* 0 or -ENOMEM, from a report */
};

/* Top-level keys of a component document. */
static const char *const document_keys[] = {
	"type", "attributes", "template_vars_module", "requirements", "post_processing",
};

static void document_problem(struct document *document, yaml_mark_t mark, const char *text)
{
	int r;

	r = report_problem(document->report, mark.line + 1, mark.column + 1, "%s", text);
	if (r < 0)
		document->memory = r;
}

static bool scalar_is(const yaml_event_t *event, const char *text)
{
	return event->data.scalar.length == strlen(text) &&
	       memcmp(event->data.scalar.value, text, event->data.scalar.length) == 0;
}

/* 64-bit FNV-1a. A collision of one's own making is a false report about one's own file. */
static uint64_t document_hash(const uint8_t *data, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ data[i]) * 0x100000001b3ull;
	return hash;
}

static bool document_same(const struct document_key *a, const struct document_key *b)
{
	return a->hash == b->hash && a->length == b->length;
}

/* By content, then by position. */
static int document_compare(const void *a, const void *b)
{
	const struct document_key *left = a;
	const struct document_key *right = b;

	if (left->hash != right->hash)
		return left->hash < right->hash ? -1 : 1;
	if (left->length != right->length)
		return left->length < right->length ? -1 : 1;
	if (left->line != right->line)
		return left->line < right->line ? -1 : 1;
	return left->column < right->column ? -1 : left->column > right->column;
}

/* At the end of a mapping: sort its keys once, n log n. One report a mapping. */
static void document_find_duplicates(struct document *document)
{
	size_t first = document->level[document->depth - 1].first_key;
	size_t n = document->n_keys - first;

	if (n > 1)
		qsort(document->key + first, n, sizeof(*document->key), document_compare);
	for (size_t i = first + 1; i < first + n; i++) {
		const struct document_key *key = &document->key[i];
		const yaml_mark_t mark = {.line = key->line, .column = key->column};

		if (!document_same(key - 1, key))
			continue;
		document_problem(document, mark, "this key stands in the mapping already");
		break;
	}
	document->n_keys = first;
}

static bool document_at_top(const struct document *document)
{
	return document->depth == 1 && document->level[0].is_mapping;
}

static void document_top_key(struct document *document, const yaml_event_t *event)
{
	bool is_known = false;

	if (scalar_is(event, "<<")) {
		document->has_merge = true;
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(document_keys); i++)
		is_known = is_known || scalar_is(event, document_keys[i]);
	if (!is_known)
		document_problem(document, event->start_mark, "unknown key at the top level");
	document->value_is_type = scalar_is(event, "type");
}

static void document_key_scalar(struct document *document, const yaml_event_t *event)
{
	/* "<<" may come more than once: it names no key. */
	if (document->n_keys < DOCUMENT_MAX_KEYS && !scalar_is(event, "<<"))
		document->key[document->n_keys++] = (struct document_key){
			.hash = document_hash(event->data.scalar.value, event->data.scalar.length),
			.length = (uint32_t)event->data.scalar.length,
			.line = (uint32_t)event->start_mark.line,
			.column = (uint32_t)event->start_mark.column,
		};
	if (document_at_top(document))
		document_top_key(document, event);
}

/* A plain scalar that YAML reads as null, a number or a truth value is no text. */
static bool document_is_text(const yaml_event_t *event)
{
	static const char *const not_text[] = {
		"~", "null", "true", "false", "yes", "no", "on", "off",
	};
	const char *text = (const char *)event->data.scalar.value;

	if (event->data.scalar.length == 0)
		return false;
	if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(not_text); i++) {
		if (strcasecmp(text, not_text[i]) == 0)
			return false;
	}
	return strchr("+-.0123456789", text[0]) == NULL ||
	       strspn(text, "+-.0123456789eE_xXabcdfABCDF:") < event->data.scalar.length;
}

/* A node begins: account for it as key or value of the open mapping. */
static void document_node(struct document *document, const yaml_event_t *event)
{
	struct document_level *level;
	bool is_scalar = event->type == YAML_SCALAR_EVENT;

	if (document->depth == 0) {
		document->is_mapping = event->type == YAML_MAPPING_START_EVENT;
		if (!document->is_mapping)
			document_problem(document, event->start_mark, "the document is no mapping");
		return;
	}
	level = &document->level[document->depth - 1];
	if (!level->is_mapping)
		return;
	if (level->expects_key) {
		if (is_scalar)
			document_key_scalar(document, event);
		else if (document_at_top(document))
			document_problem(document, event->start_mark,
					 "a key at the top level is no text");
	} else if (document_at_top(document) && document->value_is_type) {
		document->value_is_type = false;
		document->has_type = true;
		/* What an alias stands for is not looked up. */
		if (event->type != YAML_ALIAS_EVENT && (!is_scalar || !document_is_text(event)))
			document_problem(document, event->start_mark, "type is no text");
	}
	level->expects_key = !level->expects_key;
}

/* false: too deep. */
static bool document_open(struct document *document, const yaml_event_t *event)
{
	document_node(document, event);
	if (document->depth == DOCUMENT_MAX_DEPTH) {
		document_problem(document, event->start_mark, "nested too deeply");
		return false;
	}
	document->level[document->depth++] = (struct document_level){
		.is_mapping = event->type == YAML_MAPPING_START_EVENT,
		.expects_key = true,
		.first_key = document->n_keys,
	};
	return true;
}

static void document_close(struct document *document)
{
	if (document->level[document->depth - 1].is_mapping)
		document_find_duplicates(document);
	document->depth--;
}

static bool document_begin(struct document *document, const yaml_event_t *event)
{
	if (document->n_started == DOCUMENT_MAX_DOCUMENTS) {
		document_problem(document, event->start_mark, "too many documents");
		return false;
	}
	document->n_started++;
	document->depth = 0;
	document->n_keys = 0;
	document->has_type = false;
	document->has_merge = false;
	document->value_is_type = false;
	document->is_mapping = false;
	document->begin = event->start_mark;
	return true;
}

static void document_end(struct document *document)
{
	if (document->is_mapping && !document->has_type && !document->has_merge)
		document_problem(document, document->begin, "the document has no type");
	document->n_documents++;
}

/* One event. false: stop reading this file. */
static bool document_event(struct document *document, const yaml_event_t *event)
{
	if (++document->n_events > DOCUMENT_MAX_EVENTS) {
		document_problem(document, event->start_mark, "too many nodes");
		return false;
	}
	switch (event->type) {
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
		return true;
	case YAML_STREAM_END_EVENT:
		return false;
	case YAML_DOCUMENT_START_EVENT:
		return document_begin(document, event);
	case YAML_DOCUMENT_END_EVENT:
		document_end(document);
		return true;
	case YAML_ALIAS_EVENT:
		document_node(document, event);
		if (++document->n_aliases <= DOCUMENT_MAX_ALIASES)
			return true;
		document_problem(document, event->start_mark, "too many aliases");
		return false;
	case YAML_SCALAR_EVENT:
		document_node(document, event);
		return true;
	case YAML_SEQUENCE_START_EVENT:
	case YAML_MAPPING_START_EVENT:
		return document_open(document, event);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		document_close(document);
		return true;
	}
	return false;
}

static int document_syntax(struct document *document, const yaml_parser_t *parser)
{
	const char *text = parser->problem ? parser->problem : "not YAML";
	yaml_mark_t mark = parser->problem_mark;

	if (parser->error == YAML_MEMORY_ERROR)
		return report_problem(document->report, 0, 0, "too large to parse");
	if (parser->error == YAML_READER_ERROR) /* it knows an offset only */
		mark = parser->mark;
	if (parser->context)
		return report_problem(document->report, mark.line + 1, mark.column + 1, "%s: %s",
				      parser->context, text);
	return report_problem(document->report, mark.line + 1, mark.column + 1, "%s", text);
}

static int document_parse(struct document *document, const uint8_t *text, size_t size)
{
	yaml_parser_t parser;
	bool more = true;
	int r = 0;

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, text, size);
	while (more && r >= 0) {
		yaml_event_t event;

		if (!yaml_parser_parse(&parser, &event)) {
			r = document_syntax(document, &parser);
			break;
		}
		more = document_event(document, &event);
		yaml_event_delete(&event);
		r = document->memory;
	}
	yaml_parser_delete(&parser);
	return r;
}

/* The first byte that is no UTF-8 text. */
static int document_bad_bytes(struct report *report, const uint8_t *text, size_t size)
{
	const uint8_t *nul;
	uint64_t line = 1;

	if (size >= 2 &&
	    ((text[0] == 0xff && text[1] == 0xfe) || (text[0] == 0xfe && text[1] == 0xff)))
		return report_problem(report, 1, 1, "UTF-16: only UTF-8 is accepted");
	nul = memchr(text, '\0', size);
	if (!nul)
		return report_problem(report, 0, 0, "not UTF-8");
	for (const uint8_t *at = text; at < nul; at++)
		line += *at == '\n';
	return report_problem(report, line, 0, "a NUL byte");
}

int document_check(struct report *report, const uint8_t *text, size_t size,
		   uint32_t *ret_n_documents)
{
	static struct document document;
	uint32_t n_before = report->n_problems;
	int r;

	*ret_n_documents = 0;
	if (size > 0 && (memchr(text, '\0', size) || !str_utf8_valid((const char *)text, size)))
		return document_bad_bytes(report, text, size);
	document = (struct document){.report = report};
	document.key = calloc(DOCUMENT_MAX_KEYS, sizeof(*document.key));
	if (!document.key)
		return -ENOMEM;
	r = document_parse(&document, text, size);
	free(TAKE_PTR(document.key));
	if (r < 0)
		return r;
	*ret_n_documents = document.n_documents;
	if (document.n_started == 0 && report->n_problems == n_before)
		return report_problem(report, 0, 0, "no component found");
	return 0;
}
