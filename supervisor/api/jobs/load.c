#include "supervisor/api/jobs/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

void load_result_done(struct load_result *result)
{
	free(result->asset);
	free(result->problem);
	*result = LOAD_RESULT_NULL;
}

int load_result_fail(struct load_result *result, const char *text)
{
	struct load_problem *problem = calloc(1, sizeof(*problem));

	if (!problem)
		return -ENOMEM;
	IGNORE_RESULT(str_copy_n(problem->text, sizeof(problem->text), text,
				 strnlen(text, sizeof(problem->text) - 1)));
	load_result_done(result);
	result->problem = problem;
	result->n_problems = 1;
	return 0;
}

void load_parser_done(struct load_parser *parser)
{
	load_result_done(&parser->result);
	*parser = LOAD_PARSER_NULL;
}

/* The array with room for one more element; it doubles at each power of two. NULL: no memory. */
static void *load_room(void *array, size_t n, size_t element_bytes)
{
	if (n != 0 && (n & (n - 1)) != 0)
		return array;
	return reallocarray(array, n ? n * 2 : 1, element_bytes);
}

/* The file name of a record: a plain name with the suffix that its kind asks for. The file may have
 * been made by a command, so it need not follow the name rule, and the loader cuts a longer one,
 * suffix and all; it is escaped before anything shows it. */
static int load_name(const struct loader_record *record, const char *suffix,
		     char ret_file[LOAD_FILE_BYTES])
{
	size_t length = strnlen(record->name, sizeof(record->name));
	bool is_cut = length >= sizeof(record->name) - 1;
	size_t n = strlen(suffix);

	if (length == 0 || memchr(record->name, '/', length))
		return -EBADMSG;
	if (!is_cut && (length < n || memcmp(record->name + length - n, suffix, n) != 0))
		return -EBADMSG;
	(void)str_escape(ret_file, LOAD_FILE_BYTES, record->name, length, false);
	return 0;
}

static int load_asset(struct load_result *result, const struct loader_record *record)
{
	struct load_asset asset;
	struct load_asset *room;
	int r;

	r = load_name(record, ".yaml", asset.file);
	if (r < 0)
		return r;
	if (result->n_assets >= LOAD_MAX_ASSETS)
		return -EBADMSG;
	room = load_room(result->asset, result->n_assets, sizeof(asset));
	if (!room)
		return -ENOMEM;
	result->asset = room;
	result->asset[result->n_assets++] = asset;
	return 0;
}

static int load_problem(struct load_result *result, const struct loader_record *record)
{
	struct load_problem problem = {.line = record->line, .column = record->column};
	struct load_problem *room;

	/* Without a name it is a problem of the folder. */
	if (record->name[0] != '\0' && load_name(record, "", problem.file) < 0)
		return -EBADMSG;
	(void)str_escape(problem.text, sizeof(problem.text), record->text,
			 strnlen(record->text, sizeof(record->text)), false);
	if (result->n_problems >= LOAD_MAX_PROBLEMS)
		return -EBADMSG;
	room = load_room(result->problem, result->n_problems, sizeof(problem));
	if (!room)
		return -ENOMEM;
	result->problem = room;
	result->problem[result->n_problems++] = problem;
	return 0;
}

static int load_record(struct load_result *result, const struct loader_record *record)
{
	char file[LOAD_FILE_BYTES];

	if (record->magic != LOADER_MAGIC || result->complete)
		return -EBADMSG;
	switch (record->type) {
	case LOADER_ASSET:
		return load_asset(result, record);
	case LOADER_PROBLEM:
		return load_problem(result, record);
	case LOADER_STORED:
		return load_name(record, ".yml", file);
	case LOADER_END:
		result->n_documents = record->n_documents;
		result->complete = true;
		return 0;
	default:
		return -EBADMSG;
	}
}

int load_parser_feed(struct load_parser *parser, const void *data, size_t size)
{
	const uint8_t *bytes = data;
	int r;

	if (parser->broken)
		return -EBADMSG;
	while (size > 0) {
		size_t n = sizeof(parser->partial) - parser->partial_bytes;

		if (n > size)
			n = size;
		memcpy((uint8_t *)&parser->partial + parser->partial_bytes, bytes, n);
		parser->partial_bytes += n;
		bytes += n;
		size -= n;
		if (parser->partial_bytes < sizeof(parser->partial))
			break;
		parser->partial_bytes = 0;
		r = load_record(&parser->result, &parser->partial);
		if (r < 0) {
			parser->broken = true;
			return r;
		}
	}
	return 0;
}

int load_parser_take(struct load_parser *parser, struct load_result *ret_result)
{
	if (parser->broken || !parser->result.complete || parser->partial_bytes != 0)
		return -EBADMSG;
	*ret_result = parser->result;
	parser->result = LOAD_RESULT_NULL;
	return 0;
}

size_t load_stem_length(const char *file)
{
	size_t length = strlen(file);

	if (str_has_suffix(file, ".yaml"))
		return length - 5;
	if (str_has_suffix(file, ".yml"))
		return length - 4;
	return length;
}
