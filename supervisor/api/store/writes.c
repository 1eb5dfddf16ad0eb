#include "supervisor/api/store/writes.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct value value_text(const char *text)
{
	return text ? value_bytes(text, strlen(text)) : VALUE_NOTHING;
}

struct value value_text_or_null(const char *text)
{
	return text[0] != '\0' ? value_text(text) : VALUE_NOTHING;
}

struct value value_bytes(const char *text, size_t size)
{
	return (struct value){.type = VALUE_TEXT, .text = text, .size = size};
}

struct value value_blob(const void *data, size_t size)
{
	return (struct value){.type = VALUE_BLOB, .text = data, .size = size};
}

struct value value_id(const struct id *id, char text[ID_TEXT_BYTES])
{
	id_format(id, text);
	return value_text(text);
}

struct value value_time(usec_t at, char text[CLOCK_ISO_BYTES])
{
	if (at == 0)
		return VALUE_NOTHING;
	clock_format_iso(at, text);
	return value_text(text);
}

struct write *write_new(store_done done, void *userdata)
{
	struct write *write = calloc(1, sizeof(*write));

	if (!write)
		return NULL;
	list_init(&write->link);
	write->done = done;
	write->userdata = userdata;
	write->bytes = sizeof(*write);
	return write;
}

struct write *write_free(struct write *write)
{
	struct write_step *step;

	if (!write)
		return NULL;
	ASSERT(list_empty(&write->link));
	while ((step = write->first)) {
		write->first = step->next;
		free(step->block);
		free(step);
	}
	free(write);
	return NULL;
}

/* All texts of a step in one block of their own, so that the caller's may go; a NUL behind each. */
static bool copy_texts(struct write_step *step, size_t *ret_size)
{
	size_t size = 0;
	size_t at = 0;

	for (size_t i = 0; i < step->n_values; i++)
		size += step->value[i].size + 1;
	*ret_size = size;
	step->block = malloc(size + 1);
	if (!step->block)
		return false;
	for (size_t i = 0; i < step->n_values; i++) {
		struct value *value = &step->value[i];

		if (value->type != VALUE_TEXT && value->type != VALUE_BLOB)
			continue;
		memcpy(step->block + at, value->text, value->size);
		step->block[at + value->size] = '\0';
		value->text = step->block + at;
		at += value->size + 1;
	}
	return true;
}

static void add(struct write *write, enum query query, bool must_change, const struct value *values,
		size_t n_values)
{
	struct write_step *step;
	size_t size;

	if (!write || write->failed)
		return;
	ASSERT(n_values <= WRITE_MAX_VALUES);
	step = calloc(1, sizeof(*step));
	if (!step) {
		write->failed = true;
		return;
	}
	step->query = query;
	step->must_change = must_change;
	step->n_values = n_values;
	memcpy(step->value, values, n_values * sizeof(*values));
	if (!copy_texts(step, &size)) {
		free(step);
		write->failed = true;
		return;
	}
	write->bytes += sizeof(*step) + size;
	if (write->last)
		write->last->next = step;
	else
		write->first = step;
	write->last = step;
}

void write_add(struct write *write, enum query query, const struct value *values, size_t n_values)
{
	add(write, query, false, values, n_values);
}

void write_add_must_change(struct write *write, enum query query, const struct value *values,
			   size_t n_values)
{
	add(write, query, true, values, n_values);
}
