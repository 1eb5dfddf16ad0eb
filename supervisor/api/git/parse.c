#include "supervisor/api/git/parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

#define FIELD      '\x1f'
#define FILES_MAX  20000
#define LOG_FIELDS 10

void git_text_set(json_t *doc, const char *name, const char *text, size_t length)
{
	char other[64];
	char *encoded;

	if (str_utf8_valid(text, length) && !memchr(text, '\0', length)) {
		(void)json_object_set_new(doc, name, json_stringn(text, length));
		return;
	}
	encoded = malloc(str_base64_bytes(length));
	if (!encoded || str_format(other, sizeof(other), "%s_base64", name) < 0) {
		free(encoded);
		return;
	}
	(void)str_base64(encoded, text, length);
	(void)json_object_set_new(doc, other, json_string(encoded));
	free(encoded);
}

/* The next record, which ends with a NUL. False: no more, or the last one is half. */
static bool next_record(const struct buf *text, size_t *at, const char **ret_record,
			size_t *ret_length)
{
	const char *record;
	const char *end;

	if (*at >= text->size)
		return false;
	record = (const char *)text->data + *at;
	end = memchr(record, '\0', text->size - *at);
	if (!end)
		return false;
	*ret_record = record;
	*ret_length = (size_t)(end - record);
	*at += *ret_length + 1;
	return true;
}

static json_t *count(const char *text, size_t length)
{
	char number[24];
	uint64_t value;

	if (str_copy_n(number, sizeof(number), text, length) < 0 ||
	    num_parse_u64(number, 0, INT64_MAX, &value) < 0)
		return json_null();
	return json_integer((json_int_t)value);
}

static const char *change_name(char letter)
{
	static const struct {
		char letter;
		const char *name;
	} rows[] = {
		{'M', "modified"    },
                {'T', "type_changed"},
                {'A', "added"       },
                {'D', "deleted"     },
		{'R', "renamed"     },
                {'C', "copied"      },
                {'U', "unmerged"    },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].letter == letter)
			return rows[i].name;
	return NULL;
}

static json_t *name_or_null(const char *name)
{
	return name ? json_string(name) : json_null();
}

static json_t *file_object(char index, char worktree, const char *path, size_t length)
{
	json_t *file = json_pack(
		"{s:o?, s:o?}", "index", name_or_null(change_name(index)), "worktree",
		worktree == '?' ? json_string("untracked") : name_or_null(change_name(worktree)));

	if (file)
		git_text_set(file, "path", path, length);
	return file;
}

/* Behind so many spaces; NULL: there are fewer. */
static const char *behind(const char *record, size_t n)
{
	for (; n > 0 && record; n--) {
		record = strchr(record, ' ');
		record += record ? 1 : 0;
	}
	return record;
}

/* "+1 -2" */
static void take_distance(json_t *doc, const char *text)
{
	static const char *const names[] = {"ahead", "behind"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t length = strcspn(text, " ");

		if (length < 2)
			return;
		(void)json_object_set_new(doc, names[i], count(text + 1, length - 1));
		text += length;
		text += *text == ' ';
	}
}

static void take_branch(json_t *doc, const char *record)
{
	static const struct {
		const char *begin;
		const char *none;
		const char *name;
	} rows[] = {
		{"# branch.oid ",      "(initial)",  "head"          },
		{"# branch.head ",     "(detached)", "current_branch"},
		{"# branch.upstream ", "",           "upstream"      },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *value = record + strlen(rows[i].begin);

		if (str_has_prefix(record, rows[i].begin) && !str_equal(value, rows[i].none))
			git_text_set(doc, rows[i].name, value, strlen(value));
	}
	if (str_has_prefix(record, "# branch.ab "))
		take_distance(doc, record + strlen("# branch.ab "));
}

/* A changed file; what it was called follows in a record of its own. */
static json_t *take_file(const struct buf *text, size_t *at, const char *record, size_t length)
{
	const char *path = NULL;
	const char *from;
	size_t from_length;
	json_t *file;

	if (length > 2 && record[0] == '?')
		return file_object('.', '?', record + 2, length - 2);
	if (length < 5)
		return NULL;
	if (record[0] == '1')
		path = behind(record, 8);
	else if (record[0] == '2')
		path = behind(record, 9);
	else if (record[0] == 'u')
		path = behind(record, 10);
	if (!path)
		return NULL;
	if (record[0] == 'u')
		return file_object('U', 'U', path, strlen(path));
	file = file_object(record[2], record[3], path, strlen(path));
	if (record[0] == '2' && next_record(text, at, &from, &from_length) && file)
		git_text_set(file, "from", from, from_length);
	return file;
}

json_t *git_status_json(const struct buf *text, bool is_cut)
{
	json_t *files = json_array();
	json_t *doc = json_pack("{s:n, s:n, s:n, s:n, s:n}", "current_branch", "head", "upstream",
				"ahead", "behind");
	const char *record;
	size_t length;
	size_t at = 0;

	while (doc && next_record(text, &at, &record, &length)) {
		json_t *file;

		if (record[0] == '#') {
			take_branch(doc, record);
			continue;
		}
		if (json_array_size(files) >= FILES_MAX) {
			is_cut = true;
			break;
		}
		file = take_file(text, &at, record, length);
		if (file)
			(void)json_array_append_new(files, file);
	}
	if (doc) {
		(void)json_object_set_new(doc, "has_changes",
					  json_boolean(json_array_size(files) > 0));
		(void)json_object_set_new(doc, "truncated", json_boolean(is_cut));
		(void)json_object_set(doc, "files", files);
	}
	json_decref(files);
	return doc;
}

/* Fields of a record, the last of which takes the rest. False: there are fewer. */
static bool split(const char *record, size_t length, const char *field[LOG_FIELDS],
		  size_t size[LOG_FIELDS])
{
	const char *end = record + length;

	for (size_t i = 0; i < LOG_FIELDS; i++) {
		const char *mark =
			record <= end ? memchr(record, FIELD, (size_t)(end - record)) : NULL;

		if (!mark)
			return false;
		if (i == LOG_FIELDS - 1 && length > 0 && end[-1] == FIELD)
			mark = end - 1;
		field[i] = record;
		size[i] = (size_t)(mark - record);
		record = mark + 1;
	}
	return true;
}

static json_t *parents_of(const char *text, size_t length)
{
	json_t *parents = json_array();

	while (length > 0) {
		const char *space = memchr(text, ' ', length);
		size_t n = space ? (size_t)(space - text) : length;

		if (n > 0 && str_only(text, n, ""))
			(void)json_array_append_new(parents, json_stringn(text, n));
		text += n;
		length -= n;
		if (length > 0) {
			text++;
			length--;
		}
	}
	return parents;
}

static json_t *person(const char *const *field, const size_t *size)
{
	json_t *doc = json_object();

	git_text_set(doc, "name", field[0], size[0]);
	git_text_set(doc, "email", field[1], size[1]);
	git_text_set(doc, "date", field[2], size[2]);
	return doc;
}

static json_t *commit_object(const char *record, size_t length)
{
	const char *field[LOG_FIELDS];
	size_t size[LOG_FIELDS];
	json_t *doc;

	if (!split(record, length, field, size))
		return NULL;
	doc = json_object();
	git_text_set(doc, "commit", field[0], size[0]);
	(void)json_object_set_new(doc, "parents", parents_of(field[1], size[1]));
	(void)json_object_set_new(doc, "author", person(field + 2, size + 2));
	(void)json_object_set_new(doc, "committer", person(field + 5, size + 5));
	git_text_set(doc, "subject", field[8], size[8]);
	git_text_set(doc, "body", field[9], size[9]);
	return doc;
}

json_t *git_log_json(const struct buf *text, size_t max, bool is_cut)
{
	json_t *commits = json_array();
	const char *record;
	size_t length;
	size_t at = 0;

	while (next_record(text, &at, &record, &length)) {
		json_t *commit = NULL;

		if (json_array_size(commits) >= max) {
			is_cut = true;
			break;
		}
		commit = commit_object(record, length);
		if (commit)
			(void)json_array_append_new(commits, commit);
	}
	/* The last one has no NUL behind it. */
	if (!is_cut && at < text->size) {
		json_t *commit = commit_object((const char *)text->data + at, text->size - at);

		if (commit && json_array_size(commits) < max)
			(void)json_array_append(commits, commit);
		else if (commit)
			is_cut = true;
		json_decref(commit);
	}
	return json_pack("{s:o?, s:b}", "commits", commits, "truncated", is_cut);
}

json_t *git_counts_json(const struct buf *text)
{
	json_t *files = json_array();
	const char *record;
	size_t length;
	size_t at = 0;

	while (next_record(text, &at, &record, &length) && json_array_size(files) < FILES_MAX) {
		const char *first = strchr(record, '\t');
		const char *second = first ? strchr(first + 1, '\t') : NULL;
		json_t *file;

		if (!second)
			continue;
		file = json_pack("{s:o?, s:o?, s:b}", "added",
				 count(record, (size_t)(first - record)), "deleted",
				 count(first + 1, (size_t)(second - first - 1)), "binary",
				 record[0] == '-');
		if (!file)
			break;
		git_text_set(file, "path", second + 1, strlen(second + 1));
		(void)json_array_append_new(files, file);
	}
	return files;
}

const char *git_push_result(const struct buf *text)
{
	static const struct {
		char flag;
		const char *name;
	} rows[] = {
		{' ', "updated"   },
                {'+', "forced"    },
                {'*', "new"       },
                {'=', "up_to_date"}
        };
	const char *at = (const char *)text->data;
	const char *end = at + text->size;

	while (at < end) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));
		size_t length = line_end ? (size_t)(line_end - at) : (size_t)(end - at);

		for (size_t i = 0; length > 2 && at[1] == '\t' && i < ARRAY_SIZE(rows); i++)
			if (rows[i].flag == at[0])
				return rows[i].name;
		at += length + 1;
	}
	return NULL;
}

int git_remote_url(const struct buf *text, bool for_push, char **ret_url)
{
	const char *found[2] = {NULL, NULL}; /* url, pushurl */
	size_t n[2] = {0, 0};
	const char *record;
	size_t length;
	size_t at = 0;
	size_t which;

	while (next_record(text, &at, &record, &length)) {
		const char *value = strchr(record, '\n');

		if (!value)
			continue;
		which = value - record > 8 && memcmp(value - 8, ".pushurl", 8) == 0;
		if (n[which]++ == 0)
			found[which] = value + 1;
	}
	which = for_push && n[1] > 0;
	if (n[which] == 0)
		return -ENOENT;
	/* git asks the first of several for a fetch, and writes to all in a push. */
	if (for_push && n[which] > 1)
		return -E2BIG;
	*ret_url = strdup(found[which]);
	return *ret_url ? 0 : -ENOMEM;
}
