/*
 * Theory. Output above its rate is not refused: pid 1 reads no more for a while, and the write of
 * the program waits. Nobody counts that, but from here it is seen: a command whose output comes at
 * its rate for as long as we look is held at it, one that writes less is not, and one whose reader
 * is slow stays below it. What is above the whole amount is dropped, and the command's exit says
 * so.
 */
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/api/denials.h"
#include "supervisor/api/loader_run.h"

#define LOOK_MIN     (USEC_PER_SEC / 2)
#define HELD_PERCENT 80u /* of the rate: frames are large, and our looks not punctual */
#define KIB          1024u
#define ADVICE_RATE  "write less, or a profile with a larger `limit output-rate`"
#define ADVICE_DROPPED                                                                             \
	"write to a file, a larger max_output in the request, or a profile with a larger `limit output-max`"

static bool is_held(uint64_t bytes, uint64_t rate_bytes, usec_t span)
{
	/* A span of 0.5 s and more at a rate below 2^40: no overflow, no zero. */
	uint64_t allowed = rate_bytes / KIB * (span / USEC_PER_MS) / 1000 * KIB;

	return allowed > 0 && bytes / HELD_PERCENT * 100 >= allowed;
}

static void note_held(struct app *app, struct session *session, const struct activity *activity,
		      uint64_t rate_bytes)
{
	char rule[DENIAL_TEXT_BYTES];

	IGNORE_RESULT(str_format(rule, sizeof(rule), "output rate of %llu KiB a second%s",
				 (unsigned long long)(rate_bytes / KIB),
				 activity ? "" : " of all commands"));
	denials_note(app, session,
		     &(struct denial_report){
			     .kind = DENIAL_OUTPUT,
			     .count = 1,
			     .pid = activity ? activity->pid : 0,
			     .comm = activity ? activity->program : NULL,
			     .what = "more output at once: writes wait",
			     .rule = rule,
			     .source = "output that came",
			     .advice = ADVICE_RATE,
		     });
}

void denials_output(struct app *app, struct session *session)
{
	struct live *live = live_of(session);
	uint64_t rate_bytes = session_limits(live)->output_rate_bytes;
	usec_t now = clock_boottime();
	usec_t span = now - live->output_since;
	uint64_t total = 0;
	bool is_told = false;

	if (span < LOOK_MIN)
		return;
	live->output_since = now;
	LIST_FOR_EACH (entry, &live->activities) {
		struct activity *activity = LIST_ENTRY(entry, struct activity, link);
		uint64_t bytes = activity->came_bytes;

		activity->came_bytes = 0;
		total += bytes;
		if (rate_bytes == 0 || !is_held(bytes, rate_bytes, span))
			continue;
		note_held(app, session, activity, rate_bytes);
		is_told = true;
	}
	if (rate_bytes > 0 && !is_told && is_held(total, rate_bytes * SESSION_OUTPUT_RATES, span))
		note_held(app, session, NULL, rate_bytes * SESSION_OUTPUT_RATES);
}

void denials_output_ended(struct live *live, const struct activity *activity,
			  const struct wire_exit *exit_info)
{
	if (!(exit_info->flags & WIRE_EXIT_TRUNCATED))
		return;
	denials_note(live->app, live->session,
		     &(struct denial_report){
			     .kind = DENIAL_OUTPUT,
			     .count = 1,
			     .pid = activity->pid,
			     .comm = activity->program,
			     .what = "more output: it was dropped",
			     .rule = "largest output of the command",
			     .source = "shim",
			     .advice = ADVICE_DROPPED,
		     });
}
