#include "supervisor/api/metrics/metrics.h"

#include <string.h>

#include "base/str.h"

#define PREFIX      "sandboxd_"
#define LABEL_BYTES 96

static const char *const sides[] = {"parent", "child", "shim"};

static const char *const exec_labels[] = {
	[METRICS_EXEC_SPAWN] = "step=\"spawn\"",
	[METRICS_EXEC_RUN] = "step=\"run\"",
};
_Static_assert(ARRAY_SIZE(exec_labels) == METRICS_EXEC_MAX_, "one label per step");

static const char *const denial_labels[] = {
	[METRICS_DENIAL_SYSCALL] = "kind=\"syscall\"", [METRICS_DENIAL_FILE] = "kind=\"file\"",
	[METRICS_DENIAL_NETWORK] = "kind=\"network\"", [METRICS_DENIAL_MEMORY] = "kind=\"memory\"",
	[METRICS_DENIAL_PIDS] = "kind=\"pids\"",       [METRICS_DENIAL_DISK] = "kind=\"disk\"",
	[METRICS_DENIAL_TIME] = "kind=\"time\"",       [METRICS_DENIAL_OUTPUT] = "kind=\"output\"",
};
_Static_assert(ARRAY_SIZE(denial_labels) == METRICS_DENIAL_MAX_, "one label per kind");

static const char *const adoption_labels[] = {
	[METRICS_ADOPTION_ADOPTED] = "result=\"adopted\"",
	[METRICS_ADOPTION_KILLED] = "result=\"killed\"",
	[METRICS_ADOPTION_CLOSED] = "result=\"closed\"",
	[METRICS_ADOPTION_REBUILT] = "result=\"rebuilt\"",
	[METRICS_ADOPTION_FAILED] = "result=\"failed\"",
};
_Static_assert(ARRAY_SIZE(adoption_labels) == METRICS_ADOPTION_MAX_, "one label per result");

/* The name comes from the supervisor and ends in a label: letters, digits and '-' only. */
static struct metrics_step *find_step(struct metrics *metrics, const struct launch_trace_step *step)
{
	size_t length = strnlen(step->name, LAUNCH_TRACE_NAME);

	if (length == 0 || step->side >= ARRAY_SIZE(sides) || !str_only(step->name, length, "-_"))
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(metrics->launch); i++) {
		struct metrics_step *known = &metrics->launch[i];

		if (!known->name[0]) {
			memcpy(known->name, step->name, length);
			known->side = step->side;
			return known;
		}
		if (known->side == step->side && strlen(known->name) == length &&
		    memcmp(known->name, step->name, length) == 0)
			return known;
	}
	return NULL;
}

/* When the step before it on the same side ended; the child begins with the parent's clone. */
static uint32_t begun_at(const struct launch_trace *trace, uint32_t index)
{
	const struct launch_trace_step *step = &trace->step[index];
	uint32_t begun = 0;

	for (uint32_t i = 0; i < trace->n; i++) {
		const struct launch_trace_step *other = &trace->step[i];
		bool is_clone =
			other->side == 0 && memcmp(other->name, "clone", sizeof("clone")) == 0;

		/* The shim, with its one step, begins where the child ended. */
		if (i != index && other->us <= step->us && other->us > begun &&
		    (other->side == step->side || is_clone ||
		     (step->side == 2 && other->side == 1)))
			begun = other->us;
	}
	return begun;
}

void metrics_add_launch(struct metrics *metrics, const struct launch_trace *trace)
{
	if (trace->n > LAUNCH_TRACE_MAX)
		return;
	for (uint32_t i = 0; i < trace->n; i++) {
		struct metrics_step *step = find_step(metrics, &trace->step[i]);

		if (step)
			histogram_add(&step->took, trace->step[i].us - begun_at(trace, i));
	}
}

static int append_head(struct buf *text, const char *name, const char *type, const char *help)
{
	return buf_printf(text, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help,
			  name, type);
}

int metrics_append(struct buf *text, const char *name, const char *type, const char *help,
		   const struct metrics_value *values, size_t n_values)
{
	int r = append_head(text, name, type, help);

	for (size_t i = 0; r >= 0 && i < n_values; i++)
		r = buf_printf(text, PREFIX "%s%s%s%s %llu\n", name, values[i].labels[0] ? "{" : "",
			       values[i].labels, values[i].labels[0] ? "}" : "",
			       (unsigned long long)values[i].value);
	return r;
}

static int append_histogram(struct buf *text, const char *name, const char *labels,
			    const struct histogram *histogram)
{
	const char *comma = labels[0] ? "," : "";
	uint64_t below = 0;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < HISTOGRAM_BUCKETS; i++) {
		below += histogram->n[i];
		r = buf_printf(text, PREFIX "%s_bucket{%s%sle=\"%s\"} %llu\n", name, labels, comma,
			       histogram_bound(i), (unsigned long long)below);
	}
	if (r < 0)
		return r;
	below = histogram_count(histogram);
	return buf_printf(
		text,
		PREFIX "%s_bucket{%s%sle=\"+Inf\"} %llu\n" PREFIX
		       "%s_sum%s%s%s %llu.%06llu\n" PREFIX "%s_count%s%s%s %llu\n",
		name, labels, comma, (unsigned long long)below, name, labels[0] ? "{" : "", labels,
		labels[0] ? "}" : "", (unsigned long long)(histogram->sum_us / USEC_PER_SEC),
		(unsigned long long)(histogram->sum_us % USEC_PER_SEC), name, labels[0] ? "{" : "",
		labels, labels[0] ? "}" : "", (unsigned long long)below);
}

static int append_launch(struct buf *text, const struct metrics *metrics)
{
	char labels[LABEL_BYTES];
	int r = append_head(text, "launch_step_seconds", "histogram",
			    "Time of each step of a launch.");

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(metrics->launch); i++) {
		const struct metrics_step *step = &metrics->launch[i];

		if (!step->name[0])
			break;
		r = str_format(labels, sizeof(labels), "side=\"%s\",step=\"%s\"", sides[step->side],
			       step->name);
		if (r >= 0)
			r = append_histogram(text, "launch_step_seconds", labels, &step->took);
	}
	return r;
}

static int append_labelled(struct buf *text, const char *name, const char *help,
			   const char *const *labels, const uint64_t *counts, size_t n)
{
	int r = append_head(text, name, "counter", help);

	for (size_t i = 0; r >= 0 && i < n; i++)
		r = buf_printf(text, PREFIX "%s{%s} %llu\n", name, labels[i],
			       (unsigned long long)counts[i]);
	return r;
}

int metrics_append_all(struct buf *text, const struct metrics *metrics)
{
	const struct metrics_value lines = {"", metrics->n_audit_lines};
	const struct metrics_value lost = {"", metrics->n_audit_lost};
	int r;

	r = append_head(text, "create_seconds", "histogram",
			"From the request for a session to its answer.");
	if (r >= 0)
		r = append_histogram(text, "create_seconds", "", &metrics->create);
	if (r >= 0)
		r = append_launch(text, metrics);
	if (r >= 0)
		r = append_head(text, "exec_seconds", "histogram",
				"Commands: spawn, from the request to the start; run, to the end.");
	for (size_t i = 0; r >= 0 && i < METRICS_EXEC_MAX_; i++)
		r = append_histogram(text, "exec_seconds", exec_labels[i], &metrics->exec[i]);
	if (r >= 0)
		r = append_labelled(text, "denials_total", "What was refused in sessions, by kind.",
				    denial_labels, metrics->n_denials, METRICS_DENIAL_MAX_);
	if (r >= 0)
		r = append_labelled(text, "adoptions_total",
				    "Sessions found at a start of the worker, by result.",
				    adoption_labels, metrics->n_adoptions, METRICS_ADOPTION_MAX_);
	if (r >= 0)
		r = metrics_append(text, "audit_lines_total", "counter", "Audit lines written.",
				   &lines, 1);
	if (r >= 0)
		r = metrics_append(text, "audit_lost_total", "counter",
				   "Audit lines that could not be written.", &lost, 1);
	return r;
}
