#include "supervisor/api/jobs/frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/plant.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/api/session/fit.h"

#define RESERVE_BYTES ((size_t)640)
#define MESSAGE_BYTES ((size_t)256)

static const char *const stage_text[] = {
	[FRAMES_STAGE_START] = "start", [FRAMES_STAGE_MATERIALIZE] = "materialize",
	[FRAMES_STAGE_LOG] = "log",     [FRAMES_STAGE_DONE] = "done",
	[FRAMES_STAGE_ERROR] = "error",
};
_Static_assert(ARRAY_SIZE(stage_text) == FRAMES_STAGE_MAX_, "one text per stage");

static const char *const core_keys[] = {"task_id", "stage", "message", "timestamp", "seq"};

const char *frames_stage_text(enum frames_stage stage)
{
	ASSERT((size_t)stage < ARRAY_SIZE(stage_text));
	return stage_text[stage];
}

int frames_stage_from_text(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(stage_text); i++)
		if (str_equal(stage_text[i], text))
			return (int)i;
	return -1;
}

void frames_init(struct frames *frames, const struct id *task)
{
	*frames = (struct frames){
		.task = *task,
		.next_seq = 1,
		.max_frames = TASK_FRAMES_MAX,
		.max_bytes = (size_t)TASK_FRAMES_MAX_BYTES,
	};
}

void frames_done(struct frames *frames)
{
	for (size_t i = 0; i < frames->n_lines; i++)
		free(frames->line[i].text);
	free(frames->line);
	free(frames->reserve);
	*frames = (struct frames){.next_seq = 1};
}

void frames_resume(struct frames *frames, uint32_t last_seq, bool terminal)
{
	ASSERT(frames->n_lines == 0 && frames->next_seq == 1);
	frames->next_seq = last_seq + 1;
	frames->settled_seq = last_seq;
	frames->trimmed_seq = last_seq;
	frames->terminal = terminal;
}

static bool is_core_key(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(core_keys); i++)
		if (str_equal(core_keys[i], key))
			return true;
	return false;
}

/* The JSON text of a frame, or NULL: no memory. */
static char *format_frame(const struct frames *frames, enum frames_stage stage, const char *message,
			  json_t *extras, usec_t now)
{
	char task[ID_TEXT_BYTES];
	const char *key;
	json_t *value;
	json_t *frame;
	char *text;
	uint32_t seq = frames->next_seq - (planted_nth("frame-twice", 50) ? 1 : 0);

	id_format(&frames->task, task);
	frame = json_pack("{s:s, s:s, s:s, s:f, s:I}", "task_id", task, "stage",
			  frames_stage_text(stage), "message", message, "timestamp",
			  (double)now / (double)USEC_PER_SEC, "seq", (json_int_t)seq);
	if (!frame)
		return NULL;
	json_object_foreach(extras, key, value)
	{
		if (is_core_key(key))
			continue;
		if (json_object_set(frame, key, value) < 0) {
			json_decref(frame);
			return NULL;
		}
	}
	text = doc_format(frame, 1);
	json_decref(frame);
	return text;
}

/* One line, and one more for frames_end_plain. */
static int reserve_line(struct frames *frames)
{
	size_t n = frames->n_allocated ? frames->n_allocated * 2 : 8;
	struct frames_line *line;

	if (frames->n_lines + 1 < frames->n_allocated)
		return 0;
	line = reallocarray(frames->line, n, sizeof(*line));
	if (!line)
		return -ENOMEM;
	frames->line = line;
	frames->n_allocated = n;
	return 0;
}

static int add_line(struct frames *frames, enum frames_stage stage, const char *message,
		    json_t *extras, usec_t now)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	int r;

	r = reserve_line(frames);
	if (r < 0)
		return r;
	text = format_frame(frames, stage, message, extras, now);
	if (!text)
		return -ENOMEM;
	size = strlen(text);
	if (stage == FRAMES_STAGE_LOG && frames->total_bytes + size > frames->max_bytes) {
		frames->n_dropped++;
		return FRAMES_E_DROPPED;
	}
	ASSERT(size < UINT32_MAX);
	frames->line[frames->n_lines++] = (struct frames_line){
		.seq = frames->next_seq++,
		.stage = stage,
		.size = (uint32_t)size,
		.text = TAKE_PTR(text),
	};
	frames->bytes += size;
	frames->total_bytes += size;
	return 0;
}

/* The bounds do not count for this one: it says what they cost. */
static int add_dropped_note(struct frames *frames, usec_t now)
{
	size_t max_bytes = frames->max_bytes;
	json_t *extras;
	char message[80];
	int r;

	fit_text(message, sizeof(message), "%u log frames were dropped: too many for one task",
		 frames->n_dropped);
	extras = json_pack("{s:I}", "dropped", (json_int_t)frames->n_dropped);
	if (!extras)
		return -ENOMEM;
	frames->max_bytes = SIZE_MAX;
	r = add_line(frames, FRAMES_STAGE_LOG, message, extras, now);
	frames->max_bytes = max_bytes;
	json_decref(extras);
	if (r == 0)
		frames->n_dropped = 0;
	return r;
}

int frames_add(struct frames *frames, enum frames_stage stage, const char *message, json_t *extras,
	       usec_t now, uint32_t *ret_seq)
{
	int r;

	if (frames->terminal)
		return FRAMES_E_TERMINAL;
	if (stage == FRAMES_STAGE_LOG && frames->next_seq > frames->max_frames) {
		frames->n_dropped++;
		return FRAMES_E_DROPPED;
	}
	if (frames_stage_terminal(stage) && frames->n_dropped > 0) {
		r = add_dropped_note(frames, now);
		if (r < 0)
			return r;
	}
	r = add_line(frames, stage, message, extras, now);
	if (r != 0)
		return r;
	frames->terminal = frames_stage_terminal(stage);
	if (ret_seq)
		*ret_seq = frames->next_seq - 1;
	return 0;
}

int frames_reserve(struct frames *frames)
{
	frames->reserve = malloc(RESERVE_BYTES);
	if (!frames->reserve)
		return -ENOMEM;
	return reserve_line(frames);
}

void frames_end_plain(struct frames *frames, const struct id *session, const char *code,
		      const char *message, usec_t now)
{
	char session_id[ID_TEXT_BYTES];
	char task[ID_TEXT_BYTES];
	char text[MESSAGE_BYTES];
	char *line;
	int r;

	ASSERT(!frames->terminal && frames->reserve && frames->n_lines < frames->n_allocated);
	id_format(session, session_id);
	id_format(&frames->task, task);
	fit_text(text, sizeof(text), "%s", message);
	/* Ours hold none of these; a frame that is no JSON would be worse than a changed letter. */
	for (char *at = text; *at; at++)
		if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
			*at = '?';
	r = str_format(
		frames->reserve, RESERVE_BYTES,
		"{\"task_id\":\"%s\",\"stage\":\"error\",\"message\":\"%s\",\"timestamp\":%llu.%06llu,"
		"\"seq\":%u,\"session_id\":\"%s\",\"code\":\"%s\",\"asset_key\":[],\"metadata\":{}}",
		task, text, (unsigned long long)(now / USEC_PER_SEC),
		(unsigned long long)(now % USEC_PER_SEC), frames->next_seq, session_id, code);
	ASSERT(r >= 0); /* codes are short */
	line = TAKE_PTR(frames->reserve);
	frames->line[frames->n_lines++] = (struct frames_line){
		.seq = frames->next_seq++,
		.stage = FRAMES_STAGE_ERROR,
		.size = (uint32_t)strlen(line),
		.text = line,
	};
	frames->bytes += frames->line[frames->n_lines - 1].size;
	frames->total_bytes += frames->line[frames->n_lines - 1].size;
	frames->terminal = true;
}

void frames_settle(struct frames *frames, uint32_t seq)
{
	if (seq >= frames->next_seq)
		seq = frames->next_seq - 1;
	if (seq > frames->settled_seq)
		frames->settled_seq = seq;
}

const struct frames_line *frames_after(const struct frames *frames, uint32_t after)
{
	size_t low = 0;
	size_t high = frames->n_lines;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (frames->line[middle].seq <= after)
			low = middle + 1;
		else
			high = middle;
	}
	return low < frames->n_lines ? &frames->line[low] : NULL;
}

uint64_t frames_stored_bytes(const struct frames *frames, uint32_t first_seq)
{
	const struct frames_line *line = frames_after(frames, first_seq > 0 ? first_seq - 1 : 0);
	uint64_t bytes = 0;

	for (; line && line < frames->line + frames->n_lines; line++)
		bytes += line->size + FRAMES_ROW_BYTES;
	return bytes;
}

void frames_bound(struct frames *frames, uint64_t room)
{
	frames->max_bytes = (size_t)TASK_FRAMES_MAX_BYTES;
	if (frames->total_bytes < frames->max_bytes &&
	    room < frames->max_bytes - frames->total_bytes)
		frames->max_bytes = frames->total_bytes + (size_t)room;
}

const struct frames_line *frames_next_visible(const struct frames *frames, uint32_t after)
{
	const struct frames_line *line = frames_after(frames, after);

	return line && line->seq <= frames->settled_seq ? line : NULL;
}

bool frames_need_store(const struct frames *frames, uint32_t after)
{
	return after < frames->trimmed_seq;
}

bool frames_finished(const struct frames *frames, uint32_t after)
{
	return frames->terminal && after + 1 >= frames->next_seq &&
	       frames->settled_seq + 1 >= frames->next_seq;
}

size_t frames_trim(struct frames *frames)
{
	size_t before = frames->bytes;
	size_t n = 0;

	while (n < frames->n_lines && frames->line[n].seq <= frames->settled_seq) {
		frames->bytes -= frames->line[n].size;
		free(frames->line[n].text);
		n++;
	}
	if (n == 0)
		return 0;
	frames->trimmed_seq = frames->line[n - 1].seq;
	memmove(frames->line, frames->line + n, (frames->n_lines - n) * sizeof(*frames->line));
	frames->n_lines -= n;
	return before - frames->bytes;
}
