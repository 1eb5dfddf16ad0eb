#include "supervisor/api/snapshot_words.h"

#include <inttypes.h>

#include "base/str.h"

#include "sandboxd/config.h"
#include "supervisor/api/file_reply.h"

/* Members of a reference: the limits when it was made. */
#define MAX_BYTES   "max_bytes"
#define MAX_ENTRIES "max_entries"

json_t *snapshot_workspace(const struct session *session, const struct api_config *config)
{
	const json_t *workspace = session->spec.runtime.workspace;
	const json_t *exclude = json_object_get(workspace, "exclude");
	json_t *include = json_array();
	struct spec_file_path path;
	char text[FILE_SHOWN_BYTES];
	const json_t *item;
	size_t i;

	json_array_foreach(json_object_get(workspace, "include"), i, item)
	{
		if (spec_file_path(json_string_value(item), json_string_length(item), &path))
			continue; /* it was checked when it came */
		file_show_path(&path, text);
		(void)json_array_append_new(include, json_string(text));
	}
	if (json_array_size(include) == 0)
		(void)json_array_append_new(include, json_string("/session"));
	return json_pack("{s:o, s:o, s:I, s:I}", "include", include, "exclude",
			 exclude ? json_deep_copy(exclude) : json_array(), MAX_BYTES,
			 (json_int_t)config->snapshot_max_bytes, MAX_ENTRIES,
			 (json_int_t)config->snapshot_max_entries);
}

static void add_word(struct snapshot_words *words, const char *word)
{
	/* A workspace has at most 64 of each (spec_runtime.c). */
	if (words->n < SNAPSHOT_WORDS_MAX)
		words->word[words->n++] = word;
}

/* A limit that is smaller by now leaves what was made readable. The reference is a row's word:
 * never more than any limit could be. */
static uint64_t bound(const struct snapshot_run *run, const char *name, uint64_t limit,
		      uint64_t most)
{
	json_int_t then =
		run->makes ? 0 : json_integer_value(json_object_get(run->reference, name));
	uint64_t max = then > 0 && (uint64_t)then > limit ? (uint64_t)then : limit;

	return max < most ? max : most;
}

void snapshot_words_make(const struct snapshot_run *run, const char *program,
			 struct snapshot_words *words)
{
	const struct api_config *config = run->app->config;
	const json_t *item;
	size_t i;

	*words = (struct snapshot_words){.n = 0};
	IGNORE_RESULT(str_format(
		words->max_bytes, SNAPSHOT_NUMBER_BYTES, "%" PRIu64,
		bound(run, MAX_BYTES, config->snapshot_max_bytes, CONFIG_SNAPSHOT_MAX_BYTES)));
	IGNORE_RESULT(str_format(words->max_entries, SNAPSHOT_NUMBER_BYTES, "%" PRIu64,
				 bound(run, MAX_ENTRIES, config->snapshot_max_entries,
				       CONFIG_SNAPSHOT_MAX_ENTRIES)));
	add_word(words, program);
	if (run->makes)
		add_word(words, "create");
	else
		add_word(words, run->replaces ? "replace" : "extract");
	add_word(words, words->max_bytes);
	add_word(words, words->max_entries);
	json_array_foreach(json_object_get(run->reference, "exclude"), i, item)
	{
		add_word(words, "-x");
		add_word(words, json_string_value(item));
	}
	json_array_foreach(json_object_get(run->reference, "include"), i, item)
		add_word(words, json_string_value(item));
}
