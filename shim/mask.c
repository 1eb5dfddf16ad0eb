/*
 * Theory. Every pattern is searched by the automaton of Knuth, Morris and Pratt, so each byte costs
 * a constant on average, whatever the input is, and nothing is ever scanned twice. After n bytes
 * the state of a pattern is the length of its longest beginning that the input ends with. The
 * largest state over all patterns is what is *held*: a later match can begin no earlier, so every
 * byte before it is decided and may leave. What is held stays until more input decides it or the
 * stream ends: a pause decides nothing, since whoever writes half a secret, waits, and writes the
 * other half would have it whole.
 *
 * All matches count, also those that overlap: a byte that any of them covers does not leave. Runs
 * of overlapping matches become one replacement, named after the match that begins first (the
 * longest of those that begin there).
 *
 *   mark 0  leaves as it is
 *   mark 1  covered, not the first byte of its run
 *   mark p  (2 + index of a pattern) the first byte of a run
 *
 * A replacement leaves as soon as the first byte of its run is decided: from then on nothing can
 * begin before it, so a run without end needs no memory.
 */
#include "shim/mask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#include "sandboxd/secret.h"

enum mask_mark {
	MARK_PLAIN,
	MARK_COVERED,
	MARK_FIRST, /* and above: the pattern's index */
};

_Static_assert(MARK_FIRST + MASK_MAX_PATTERNS <= UINT16_MAX, "a mark has 16 bits");

static void fill_fail(const struct mask_pattern *pattern)
{
	uint32_t k = 0;

	pattern->fail[0] = 0;
	for (size_t i = 1; i < pattern->length; i++) {
		while (k > 0 && pattern->bytes[i] != pattern->bytes[k])
			k = pattern->fail[k - 1];
		if (pattern->bytes[i] == pattern->bytes[k])
			k++;
		pattern->fail[i] = k;
	}
}

static size_t pair_of(uint8_t first, uint8_t second)
{
	return (first * 31u + second) % MASK_PAIRS;
}

void mask_init(struct mask *mask, const struct mask_pattern *patterns, size_t n)
{
	size_t pair;

	ASSERT(n <= MASK_MAX_PATTERNS);
	*mask = (struct mask){.pattern = patterns, .n = n};
	for (size_t i = 0; i < MASK_PAIRS; i++)
		mask->pair[i] = MASK_NONE;
	for (size_t i = 0; i < n; i++) {
		ASSERT(patterns[i].length > 2);
		fill_fail(&patterns[i]);
		mask->is_first[patterns[i].bytes[0]] = true;
		pair = pair_of(patterns[i].bytes[0], patterns[i].bytes[1]);
		mask->next[i] = mask->pair[pair];
		mask->pair[pair] = (uint16_t)i;
		if (patterns[i].length > mask->longest)
			mask->longest = patterns[i].length;
	}
}

int mask_stream_init(struct mask_stream *stream, const struct mask *mask, bool keep_length)
{
	*stream = (struct mask_stream){
		.mask = mask,
		.keep_length = keep_length,
		.capacity = mask->longest + MASK_CHUNK_BYTES,
		.last = -1,
	};
	stream->data = malloc(stream->capacity);
	stream->mark = malloc(stream->capacity * sizeof(*stream->mark));
	stream->state = calloc(mask->n, sizeof(*stream->state));
	stream->active = calloc(mask->n, sizeof(*stream->active));
	if (!stream->data || !stream->mark || !stream->state || !stream->active) {
		mask_stream_done(stream);
		return -ENOMEM;
	}
	return 0;
}

void mask_stream_done(struct mask_stream *stream)
{
	if (stream->data)
		explicit_bzero(stream->data, stream->capacity);
	free(stream->data);
	free(stream->mark);
	free(stream->state);
	free(stream->active);
	*stream = (struct mask_stream){0};
}

/* Everything that was taken out makes room; the places of the rest move. */
static void compact(struct mask_stream *stream)
{
	size_t gone = stream->at;

	if (gone == 0)
		return;
	memmove(stream->data, stream->data + gone, stream->used - gone);
	memmove(stream->mark, stream->mark + gone, (stream->used - gone) * sizeof(*stream->mark));
	stream->at = 0;
	stream->used -= gone;
	stream->covered_from = stream->covered_from > gone ? stream->covered_from - gone : 0;
	stream->covered_to = stream->covered_to > gone ? stream->covered_to - gone : 0;
}

size_t mask_stream_room(struct mask_stream *stream, uint8_t **ret_data)
{
	if (stream->is_ended)
		return 0;
	compact(stream);
	*ret_data = stream->data + stream->used;
	return stream->capacity - stream->used;
}

/* The match of pattern p covers start..end. Matches come in the order of their ends. */
static void cover(struct mask_stream *stream, size_t start, size_t end, size_t p)
{
	size_t from = start + 1; /* what becomes MARK_COVERED */

	ASSERT(start >= stream->at); /* what left was decided */
	if (start < stream->covered_to && start > stream->covered_from) {
		from = stream->covered_to; /* the last run goes on */
	} else if (start < stream->covered_to && stream->mark[start] == MARK_COVERED) {
		stream->covered_from = start; /* joins all behind it to an earlier run */
	} else {
		stream->mark[start] = (uint16_t)(MARK_FIRST + p);
		stream->covered_from = start;
	}
	for (size_t i = from; i < end; i++)
		stream->mark[i] = MARK_COVERED;
	if (end > stream->covered_to)
		stream->covered_to = end;
}

static uint32_t advance(const struct mask_pattern *pattern, uint32_t state, uint8_t byte)
{
	while (state > 0 && pattern->bytes[state] != byte)
		state = pattern->fail[state - 1];
	return pattern->bytes[state] == byte ? state + 1 : 0;
}

static void keep(struct mask_stream *stream, uint16_t p, uint32_t state)
{
	stream->state[p] = state >= 2 ? state : 0;
	if (state < 2)
		return; /* of one byte, as many others: the byte itself tells */
	stream->active[stream->n_active++] = p;
	if (state > stream->held)
		stream->held = state;
}

/* Those of which the last two bytes are the first two. */
static void begin(struct mask_stream *stream, uint8_t byte)
{
	const struct mask *mask = stream->mask;
	uint8_t last = (uint8_t)stream->last;

	for (uint16_t p = mask->pair[pair_of(last, byte)]; p != MASK_NONE; p = mask->next[p]) {
		const uint8_t *bytes = mask->pattern[p].bytes;

		/* One that is under way has taken them already, if it could. */
		if (bytes[0] == last && bytes[1] == byte && stream->state[p] == 0)
			keep(stream, p, 2);
	}
}

/* One byte more, at `place`: what is under way goes on or falls back, and what it begins begins. */
static void step(struct mask_stream *stream, size_t place)
{
	const struct mask *mask = stream->mask;
	uint8_t byte = stream->data[place];
	size_t n_before = stream->n_active;

	stream->mark[place] = MARK_PLAIN;
	stream->n_active = 0;
	stream->held = mask->is_first[byte] ? 1 : 0;
	for (size_t i = 0; i < n_before; i++) {
		uint16_t p = stream->active[i];
		const struct mask_pattern *pattern = &mask->pattern[p];
		uint32_t state = advance(pattern, stream->state[p], byte);

		if (state == pattern->length) {
			cover(stream, place + 1 - state, place + 1, p);
			state = pattern->fail[state - 1];
		}
		keep(stream, p, state);
	}
	if (stream->last >= 0)
		begin(stream, byte);
	stream->last = byte;
}

void mask_stream_commit(struct mask_stream *stream, size_t n)
{
	size_t end = stream->used + n;

	ASSERT(end <= stream->capacity);
	while (stream->used < end)
		step(stream, stream->used++);
}

void mask_stream_end(struct mask_stream *stream, bool is_cut)
{
	if (stream->is_ended)
		return;
	stream->is_ended = true;
	if (is_cut) {
		for (size_t p = 0; p < stream->mask->n; p++)
			if (stream->state[p] >= SECRET_VALUE_MIN_BYTES)
				cover(stream, stream->used - stream->state[p], stream->used, p);
	}
	stream->held = 0;
}

bool mask_stream_ready(const struct mask_stream *stream)
{
	return stream->text || stream->at < stream->used - stream->held;
}

/* What of a replacement has room. */
static size_t take_text(struct mask_stream *stream, uint8_t *data, size_t size)
{
	size_t n = strlen(stream->text);

	if (n > size)
		n = size;
	memcpy(data, stream->text, n);
	stream->text = stream->text[n] != '\0' ? stream->text + n : NULL;
	return n;
}

size_t mask_stream_take(struct mask_stream *stream, uint8_t *data, size_t size)
{
	size_t decided = stream->used - stream->held;
	size_t n = 0;

	while (n < size) {
		uint16_t mark;

		if (stream->text) {
			n += take_text(stream, data + n, size - n);
			continue;
		}
		if (stream->at >= decided)
			break;
		mark = stream->mark[stream->at];
		if (mark == MARK_PLAIN)
			data[n++] = stream->data[stream->at];
		else if (stream->keep_length)
			data[n++] = '*';
		else if (mark >= MARK_FIRST)
			stream->text = stream->mask->pattern[mark - MARK_FIRST].text;
		stream->at++;
	}
	return n;
}
