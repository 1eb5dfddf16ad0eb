#include "supervisor/api/denials/ring.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#define FIRST_ALLOCATED 4u

static const char *const kinds[] = {
	[DENIAL_SYSCALL] = "syscall", [DENIAL_FILE] = "file",     [DENIAL_NETWORK] = "network",
	[DENIAL_MEMORY] = "memory",   [DENIAL_PIDS] = "pids",     [DENIAL_DISK] = "disk",
	[DENIAL_TIME] = "time",       [DENIAL_OUTPUT] = "output",
};
_Static_assert(ARRAY_SIZE(kinds) == DENIAL_KIND_MAX_, "one name per kind");

const char *denial_kind_text(enum denial_kind kind)
{
	ASSERT(kind < DENIAL_KIND_MAX_);
	return kinds[kind];
}

void denials_done(struct denials *denials)
{
	free(denials->record);
	*denials = DENIALS_NULL;
}

static void escape(char *dest, size_t dest_bytes, const char *text)
{
	(void)str_escape(dest, dest_bytes, text ? text : "", text ? strlen(text) : 0, false);
}

static struct denial make(const struct denial_report *report, usec_t now)
{
	struct denial denial = {.time = now, .kind = report->kind, .pid = report->pid};

	escape(denial.comm, sizeof(denial.comm), report->comm);
	escape(denial.what, sizeof(denial.what), report->what);
	escape(denial.rule, sizeof(denial.rule), report->rule);
	escape(denial.source, sizeof(denial.source), report->source);
	escape(denial.advice, sizeof(denial.advice), report->advice);
	return denial;
}

static bool same_thing(const struct denial *a, const struct denial *b)
{
	return a->kind == b->kind && str_equal(a->what, b->what) && str_equal(a->rule, b->rule);
}

/* The last words about a command may come when its name is forgotten. */
static bool same_program(const struct denial *known, const struct denial *denial)
{
	if (!denial->comm[0] && denial->pid != 0 && known->pid == denial->pid)
		return true;
	return str_equal(known->comm, denial->comm);
}

static void take_out(struct denials *denials, size_t index)
{
	memmove(&denials->record[index], &denials->record[index + 1],
		(denials->n - index - 1) * sizeof(*denials->record));
	denials->n--;
}

static void make_room(struct denials *denials)
{
	size_t n_records[DENIAL_KIND_MAX_] = {0};
	enum denial_kind most = 0;
	size_t oldest = 0;

	for (size_t i = 0; i < denials->n; i++)
		n_records[denials->record[i].kind]++;
	for (enum denial_kind kind = 0; kind < DENIAL_KIND_MAX_; kind++)
		if (n_records[kind] > n_records[most])
			most = kind;
	while (denials->record[oldest].kind != most)
		oldest++;
	take_out(denials, oldest);
	denials->n_dropped++;
}

static bool reserve(struct denials *denials)
{
	size_t n = denials->n_allocated ? denials->n_allocated * 2 : FIRST_ALLOCATED;
	struct denial *record;

	if (denials->n == DENIALS_MAX)
		make_room(denials);
	if (denials->n < denials->n_allocated)
		return true;
	record = reallocarray(denials->record, n, sizeof(*record));
	if (!record)
		return false;
	denials->record = record;
	denials->n_allocated = n;
	return true;
}

struct denial *denials_add(struct denials *denials, const struct denial_report *report, usec_t now)
{
	struct denial denial = make(report, now);

	if (report->count == 0)
		return NULL;
	denials->n_of[report->kind] += report->count;
	for (size_t i = 0; i < denials->n; i++) {
		const struct denial *known = &denials->record[i];

		if (same_thing(known, &denial) && same_program(known, &denial)) {
			memcpy(denial.comm, known->comm, sizeof(denial.comm));
			denial.count = known->count;
			denial.told_job = known->told_job;
			take_out(denials, i);
			break;
		}
	}
	if (!reserve(denials)) {
		denials->n_dropped++;
		return NULL;
	}
	denial.count = UINT32_MAX - denial.count < report->count ? UINT32_MAX
								 : denial.count + report->count;
	denials->record[denials->n] = denial;
	return &denials->record[denials->n++];
}

bool denials_first_of_job(struct denials *denials, struct denial *denial, uint32_t job)
{
	bool is_first = true;

	for (size_t i = 0; i < denials->n; i++) {
		const struct denial *other = &denials->record[i];

		if (other->told_job == job && same_thing(other, denial))
			is_first = false;
	}
	denial->told_job = job;
	return is_first;
}

json_t *denial_describe(const struct denial *denial)
{
	char time[CLOCK_ISO_BYTES];
	json_t *program = json_null();

	clock_format_iso(denial->time, time);
	if (denial->pid != 0)
		program = json_pack("{s:i, s:o}", "pid", denial->pid, "comm",
				    denial->comm[0] ? json_string(denial->comm) : json_null());
	return json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:I}", "time", time, "kind",
			 denial_kind_text(denial->kind), "what", denial->what, "program", program,
			 "rule", denial->rule, "source", denial->source, "advice", denial->advice,
			 "count", (json_int_t)denial->count);
}

json_t *denials_describe(const struct denials *denials, const char *session)
{
	json_t *records = json_array();
	json_t *counts = json_object();

	for (size_t i = 0; i < denials->n; i++)
		(void)json_array_append_new(records, denial_describe(&denials->record[i]));
	for (enum denial_kind kind = 0; kind < DENIAL_KIND_MAX_; kind++)
		if (denials->n_of[kind] > 0)
			(void)json_object_set_new(counts, kinds[kind],
						  json_integer((json_int_t)denials->n_of[kind]));
	return json_pack("{s:s, s:o, s:o, s:I}", "session_id", session, "denials", records,
			 "counts", counts, "records_dropped", (json_int_t)denials->n_dropped);
}
