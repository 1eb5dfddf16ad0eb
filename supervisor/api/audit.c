#include "supervisor/api/audit.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/app.h"
#include "supervisor/api/http/request.h"

#define TIME_BYTES (CLOCK_ISO_BYTES + 1)

static void now_text(char text[TIME_BYTES])
{
	clock_format_iso(clock_realtime(), text);
	memcpy(text + CLOCK_ISO_BYTES - 1, "Z", 2);
}

static int append(struct app *app, const json_t *line)
{
	AUTO_FREE char *text = line ? doc_format(line, 1) : NULL;
	size_t length;
	int r;

	if (!text)
		return -ENOMEM;
	/* In place of its NUL: one write is one line. */
	length = strlen(text);
	text[length] = '\n';
	app->audit.max_bytes = app->config->audit_file_bytes; /* of the last reload */
	r = audit_file_append(&app->audit, text, length + 1);
	if (r == 0)
		app->metrics.n_audit_lines++;
	return r;
}

static void note_failure(struct app *app, int error)
{
	const char *name = strerrorname_np(-error);

	/* Once, not for each line and each look at it. */
	if (!app->readiness.part[READINESS_AUDIT].bad)
		log_line(LOG_LEVEL_ERROR, NULL, "the audit cannot be written", "errno=%d", -error);
	readiness_set(&app->readiness, READINESS_AUDIT, false, name ? name : "?");
}

/* In place of the lines that are missing. */
static int write_gap(struct app *app)
{
	char now[TIME_BYTES];
	json_t *line;
	int r;

	if (app->n_audit_owed == 0)
		return 0;
	now_text(now);
	line = json_pack("{s:s, s:s, s:I}", "time", now, "action", "audit.gap", "lost",
			 (json_int_t)app->n_audit_owed);
	r = append(app, line);
	json_decref(line);
	if (r < 0)
		return r;
	log_line(LOG_LEVEL_WARNING, NULL, "the audit is written again", "lost=%llu",
		 (unsigned long long)app->n_audit_owed);
	app->n_audit_owed = 0;
	readiness_set(&app->readiness, READINESS_AUDIT, true, NULL);
	return 0;
}

/* Takes the line; NULL: no memory. */
static void write_line(struct app *app, json_t *line)
{
	int r = write_gap(app);

	if (r == 0)
		r = append(app, line);
	json_decref(line);
	if (r == 0)
		return;
	note_failure(app, r);
	app->n_audit_owed++;
	app->metrics.n_audit_lost++;
}

static void set_text(json_t *line, const char *key, const char *text)
{
	if (text[0])
		(void)json_object_set_new(line, key, json_string(text));
}

static void set_id(json_t *line, const char *key, const struct id *id)
{
	char text[ID_TEXT_BYTES];

	id_format(id, text);
	set_text(line, key, text);
}

/* Whoever may only be refused could otherwise write the files full, and with that turn out what was
 * done: as many a second, and so many at once. */
#define REFUSAL_INTERVAL (USEC_PER_SEC / 50)
#define REFUSAL_BURST    (5000 * REFUSAL_INTERVAL)

static bool may_tell_refusal(struct app *app)
{
	usec_t now = clock_boottime();
	usec_t due = app->refusal_due > now ? app->refusal_due : now;

	if (due - now > REFUSAL_BURST) {
		app->n_audit_skipped++;
		return false;
	}
	app->refusal_due = due + REFUSAL_INTERVAL;
	return true;
}

static void tell_skipped(struct app *app)
{
	char now[TIME_BYTES];

	if (app->n_audit_skipped == 0)
		return;
	now_text(now);
	write_line(app, json_pack("{s:s, s:s, s:I}", "time", now, "action", "audit.skipped",
				  "count", (json_int_t)app->n_audit_skipped));
	app->n_audit_skipped = 0;
}

/* Requests. */

static bool is_audited(const struct request *request)
{
	switch (request->status) {
	case MHD_HTTP_BAD_REQUEST:
	case MHD_HTTP_UNAUTHORIZED:
	case MHD_HTTP_FORBIDDEN:
	case MHD_HTTP_NOT_FOUND:
		return true;
	default:
		return request->route && request->route->audit;
	}
}

/* What the path names, if it can be an id at all: nothing else of a path is repeated. */
static void set_path_ids(json_t *line, const struct request *request)
{
	static const struct {
		const char *part; /* of the route's pattern */
		const char *key;
	} kinds[] = {
		{"sessions/",            "session"   },
		{"sandboxes/",           "session"   },
		{"airbyte-connections/", "connection"},
		{"",		     "task"      },
	};
	struct id id;
	size_t i = 0;

	if (!request->route)
		return;
	while (!strstr(request->route->pattern, kinds[i].part))
		i++;
	if (id_parse(request->path_id, &id) >= 0)
		set_id(line, kinds[i].key, &id);
	if (id_parse(request->path_cid, &id) >= 0)
		set_id(line, "command", &id);
}

static const char *action_name(const struct request *request)
{
	if (!request->route)
		return "unknown";
	return request->route->audit ? request->route->audit : "read";
}

void audit_request(struct request *request)
{
	const struct identity *identity = &request->identity;
	char now[TIME_BYTES];
	json_t *line;

	if (request->audited || !is_audited(request))
		return;
	request->audited = true;
	if (request->status >= MHD_HTTP_BAD_REQUEST && !may_tell_refusal(request_app(request)))
		return;
	now_text(now);
	line = json_pack("{s:s, s:s, s:s, s:i}", "time", now, "request", request->request_id,
			 "action", action_name(request), "status", request->status);
	if (line) {
		if (request->peer_uid != UINT32_MAX)
			(void)json_object_set_new(line, "peer_uid",
						  json_integer(request->peer_uid));
		set_text(line, "user", identity->user);
		set_text(line, "workspace", identity->workspace);
		set_text(line, "project", identity->project);
		set_path_ids(line, request);
		if (request->notes)
			(void)json_object_update(line, request->notes);
	}
	write_line(request_app(request), line);
}

/* Sessions. */

void audit_session_end(struct app *app, const struct session *session, bool only_tree)
{
	char now[TIME_BYTES];
	json_t *line;

	now_text(now);
	line = json_pack("{s:s, s:s, s:s}", "time", now, "action",
			 only_tree ? "session.fall" : "session.end", "reason",
			 session_reason_text(session->reason));
	if (line) {
		set_text(line, "user", session->owner);
		set_text(line, "workspace", session->workspace);
		set_id(line, "session", &session->id);
	}
	write_line(app, line);
}

/* Tasks of the queue. */

void audit_queued(struct app *app, const char *action, const struct id *session,
		  const struct id *task)
{
	char now[TIME_BYTES];
	json_t *line;

	now_text(now);
	line = json_pack("{s:s, s:s, s:s}", "time", now, "action", action, "queue",
			 app->config->celery.queue);
	if (line) {
		set_id(line, "session", session);
		set_id(line, "task", task);
	}
	write_line(app, line);
}

/* The file. */

void audit_start(struct app *app)
{
	int r = audit_file_open(&app->audit, WORKER_FD_STATE, app->config->audit_file_bytes);

	if (r < 0)
		note_failure(app, r);
}

void audit_tick(struct app *app)
{
	int r;

	tell_skipped(app);
	r = write_gap(app);
	if (r == 0)
		r = audit_file_sync(&app->audit);
	if (r < 0)
		note_failure(app, r);
	else
		readiness_set(&app->readiness, READINESS_AUDIT, true, NULL);
}

void audit_stop(struct app *app)
{
	audit_file_close(&app->audit);
}
