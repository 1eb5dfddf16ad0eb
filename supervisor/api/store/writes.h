/*
 * One queued write: a few statements with their values, done together or not at all.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"

#include "supervisor/api/store/queries.h"
#include "supervisor/api/store/store.h"

enum value_type {
	VALUE_NULL,
	VALUE_INTEGER,
	VALUE_TEXT,
	VALUE_BLOB,
};

struct value {
	enum value_type type;
	int64_t number;
	const char *text;
	size_t size;
};
#define VALUE_NOTHING ((struct value){.type = VALUE_NULL})
static inline struct value value_integer(int64_t number)
{
	return (struct value){.type = VALUE_INTEGER, .number = number};
}
struct value value_text(const char *text);         /* NULL: a NULL value */
struct value value_text_or_null(const char *text); /* "" : a NULL value */
struct value value_bytes(const char *text, size_t size);
struct value value_blob(const void *data, size_t size);
/* Into text, which the value then borrows. */
struct value value_id(const struct id *id, char text[ID_TEXT_BYTES]);
struct value value_time(usec_t at, char text[CLOCK_ISO_BYTES]); /* 0: a NULL value */

#define WRITE_MAX_VALUES 22

struct write_step {
	struct write_step *next;
	enum query query;
	bool must_change; /* no row changed: STORE_DUPLICATE, the others are not done */
	size_t n_values;
	struct value value[WRITE_MAX_VALUES]; /* texts owned, in one block */
	char *block;
};

struct write {
	struct list link;
	struct write_step *first;
	struct write_step *last;
	store_done done;
	void *userdata;
	size_t bytes;
	bool decided;       /* it has its result, and waits for those before it */
	bool failed;        /* no memory while it was built */
	bool told;          /* STORE_DEGRADED was said */
	bool is_retention;  /* no step changed a row: STORE_NOT_FOUND */
	uint32_t n_changed; /* rows, where the store counts them for each write */
	enum store_result result;
};

struct write *write_new(store_done done, void *userdata); /* NULL: no memory */
struct write *write_free(struct write *write);
/* Values are copied. A failure is remembered in write->failed. NULL is accepted. */
void write_add(struct write *write, enum query query, const struct value *values, size_t n_values);
void write_add_must_change(struct write *write, enum query query, const struct value *values,
			   size_t n_values);
