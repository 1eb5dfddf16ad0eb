/*
 * Theory. A component file is a stream of YAML documents, each a mapping with a text `type` and
 * keys of a small set. It is read by events: no tree is built and no alias is followed, so a bomb
 * of aliases costs what its text costs. What is kept is one frame for each open collection, for a
 * mapping the hashes of its keys, to find duplicates, and for each anchor its hash and how many
 * nodes it stands for: the number that a program which does follow aliases would meet is added up,
 * and reported when it is absurd, as is an alias inside its own node.
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
#define DOCUMENT_MAX_KEYS     20000
/* Anchors of one document. */
#define DOCUMENT_MAX_ANCHORS  1000
/* Nodes of one document with all aliases followed. */
#define DOCUMENT_MAX_EXPANDED 1000000
#define DOCUMENT_NO_ANCHOR    SIZE_MAX

struct document_level {
	bool is_mapping;
	bool expects_key;
	size_t first_key; /* in `key` */
	size_t anchor;    /* in `anchor`, or DOCUMENT_NO_ANCHOR */
	uint64_t n_expanded;
};

struct document_key {
	uint64_t hash;
	uint32_t length;
	uint32_t line;
	uint32_t column;
};

struct document_anchor {
	uint64_t hash;
	uint64_t n_expanded; /* nodes that an alias of it stands for */
	bool is_open;        /* we are inside its node */
};

struct document {
	struct report *report;
	struct document_level level[DOCUMENT_MAX_DEPTH];
	size_t depth;
	struct document_key *key; /* DOCUMENT_MAX_KEYS, owned */
	size_t n_keys;
	struct document_anchor anchor[DOCUMENT_MAX_ANCHORS];
	size_t n_anchors;
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
	bool is_over; /* a limit was reached: the rest of the file is not read */
	int memory;   /* 0 or -ENOMEM, from a report */
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

static uint64_t document_hash_text(const uint8_t *text)
{
	return document_hash(text, strlen((const char *)text));
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

static const uint8_t *document_tag(const yaml_event_t *event)
{
	if (event->type == YAML_SCALAR_EVENT)
		return event->data.scalar.tag;
	if (event->type == YAML_SEQUENCE_START_EVENT)
		return event->data.sequence_start.tag;
	return event->type == YAML_MAPPING_START_EVENT ? event->data.mapping_start.tag : NULL;
}

static const uint8_t *document_anchor_name(const yaml_event_t *event)
{
	if (event->type == YAML_SCALAR_EVENT)
		return event->data.scalar.anchor;
	if (event->type == YAML_SEQUENCE_START_EVENT)
		return event->data.sequence_start.anchor;
	return event->type == YAML_MAPPING_START_EVENT ? event->data.mapping_start.anchor : NULL;
}

/* Tags of YAML's own types only: what else there is would have a program make objects. */
static bool document_tag_is_plain(const uint8_t *tag)
{
	const char *text = (const char *)tag;

	if (!tag || str_equal(text, "!"))
		return true;
	return str_has_prefix(text, "tag:yaml.org,2002:") &&
	       !strpbrk(text + strlen("tag:yaml.org,2002:"), "/:.");
}

static void document_count(struct document *document, uint64_t n)
{
	if (document->depth > 0)
		document->level[document->depth - 1].n_expanded += n;
}

/* Remember the anchor of a node. Its index, or DOCUMENT_NO_ANCHOR. */
static size_t document_define(struct document *document, const yaml_event_t *event)
{
	const uint8_t *name = document_anchor_name(event);

	if (!name)
		return DOCUMENT_NO_ANCHOR;
	if (document->n_anchors == DOCUMENT_MAX_ANCHORS) {
		document_problem(document, event->start_mark, "too many anchors");
		document->is_over = true;
		return DOCUMENT_NO_ANCHOR;
	}
	document->anchor[document->n_anchors] = (struct document_anchor){
		.hash = document_hash_text(name),
		.n_expanded = 1,
		.is_open = event->type != YAML_SCALAR_EVENT,
	};
	return document->n_anchors++;
}

static void document_alias(struct document *document, const yaml_event_t *event)
{
	uint64_t hash = document_hash_text(event->data.alias.anchor);
	const struct document_anchor *anchor = NULL;

	if (++document->n_aliases > DOCUMENT_MAX_ALIASES) {
		document_problem(document, event->start_mark, "too many aliases");
		document->is_over = true;
		return;
	}
	/* The last definition counts. */
	for (size_t i = document->n_anchors; i > 0 && !anchor; i--) {
		if (document->anchor[i - 1].hash == hash)
			anchor = &document->anchor[i - 1];
	}
	if (!anchor)
		document_problem(document, event->start_mark, "an alias of an unknown anchor");
	else if (anchor->is_open)
		document_problem(document, event->start_mark, "an alias inside its own node");
	else
		document_count(document, anchor->n_expanded);
}

/* A node begins: account for it as key or value of the open mapping. */
static void document_node(struct document *document, const yaml_event_t *event)
{
	struct document_level *level;
	bool is_scalar = event->type == YAML_SCALAR_EVENT;

	if (!document_tag_is_plain(document_tag(event)))
		document_problem(document, event->start_mark, "unknown tag");
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
		.anchor = document_define(document, event),
		.n_expanded = 1,
	};
	return true;
}

static void document_close(struct document *document, const yaml_event_t *event)
{
	const struct document_level *level = &document->level[document->depth - 1];

	if (level->is_mapping)
		document_find_duplicates(document);
	if (level->n_expanded > DOCUMENT_MAX_EXPANDED) {
		document_problem(document, event->start_mark, "aliases stand for too many nodes");
		document->is_over = true;
	}
	if (level->anchor != DOCUMENT_NO_ANCHOR) {
		document->anchor[level->anchor].n_expanded = level->n_expanded;
		document->anchor[level->anchor].is_open = false;
	}
	document->depth--;
	document_count(document, level->n_expanded);
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
	document->n_anchors = 0;
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
		document_alias(document, event);
		return !document->is_over;
	case YAML_SCALAR_EVENT:
		document_node(document, event);
		(void)document_define(document, event);
		document_count(document, 1);
		return !document->is_over;
	case YAML_SEQUENCE_START_EVENT:
	case YAML_MAPPING_START_EVENT:
		return document_open(document, event) && !document->is_over;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		document_close(document, event);
		return !document->is_over;
	}
	return false;
}

/* Line (from 1) of a byte. */
static uint64_t document_line(const uint8_t *text, size_t size, size_t offset)
{
	uint64_t line = 1;

	for (size_t i = 0; i < offset && i < size; i++)
		line += text[i] == '\n';
	return line;
}

static int document_syntax(struct report *report, const yaml_parser_t *parser, const uint8_t *text,
			   size_t size)
{
	const char *problem = parser->problem ? parser->problem : "not YAML";
	const yaml_mark_t *mark = &parser->problem_mark;

	if (parser->error == YAML_MEMORY_ERROR)
		return report_problem(report, 0, 0, "too large to parse");
	if (parser->error == YAML_READER_ERROR) /* it knows an offset only */
		return report_problem(report, document_line(text, size, parser->problem_offset), 0,
				      "%s", problem);
	if (parser->context)
		return report_problem(report, mark->line + 1, mark->column + 1, "%s: %s",
				      parser->context, problem);
	return report_problem(report, mark->line + 1, mark->column + 1, "%s", problem);
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
			r = document_syntax(document->report, &parser, text, size);
			break;
		}
		more = document_event(document, &event);
		yaml_event_delete(&event);
		r = document->memory;
	}
	yaml_parser_delete(&parser);
	return r;
}

/* The first line that is no UTF-8 text. */
static int document_bad_bytes(struct report *report, const uint8_t *text, size_t size)
{
	const uint8_t *at = text;
	const uint8_t *end = text + size;
	uint64_t line = 1;

	if (size >= 2 &&
	    ((text[0] == 0xff && text[1] == 0xfe) || (text[0] == 0xfe && text[1] == 0xff)))
		return report_problem(report, 1, 1, "UTF-16: only UTF-8 is accepted");
	for (;;) {
		const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
		size_t length = (size_t)((newline ? newline : end) - at);

		if (memchr(at, '\0', length))
			return report_problem(report, line, 0, "a NUL byte");
		if (!str_utf8_valid((const char *)at, length) || !newline)
			return report_problem(report, line, 0, "not UTF-8");
		at = newline + 1;
		line++;
	}
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
	memset(&document, 0, sizeof(document));
	document.report = report;
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
