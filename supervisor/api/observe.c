#include "supervisor/api/observe.h"

#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/audit.h"
#include "supervisor/api/celery.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/idle.h"
#include "supervisor/api/live.h"
#include "supervisor/api/platform.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/snapshot.h"

#define METRICS_MAX_BYTES ((size_t)256 * 1024)
#define ANSWERS_WITHIN    (5 * USEC_PER_SEC) /* a launch takes milliseconds */

void observe_facts(struct app *app, const struct launch_facts *facts)
{
	char text[READINESS_TEXT_BYTES];

	app->service = *facts;
	if (facts->log_level < LOG_LEVEL_MAX_)
		log_set_level((enum log_level)facts->log_level);
	IGNORE_RESULT(
		str_format(text, sizeof(text), "%u of %u egress workers are up%s",
			   facts->n_egress_up, facts->n_egress,
			   facts->egress_guarded ? "" : ", and the kernel does not bound them"));
	readiness_set(&app->readiness, READINESS_EGRESS,
		      facts->n_egress_up == facts->n_egress && facts->egress_guarded, text);
}

void observe_refresh(struct app *app)
{
	const struct store_stats store = store_stats(app->store);

	readiness_set(&app->readiness, READINESS_SERVICE, app->phase == APP_PHASE_SERVING,
		      app->phase == APP_PHASE_GREETING ? "starting" : "stopping");
	readiness_set(&app->readiness, READINESS_SUPERVISOR,
		      clock_add(supervisor_client_waits_since(app->supervisor), ANSWERS_WITHIN) >=
			      clock_boottime(),
		      "it does not answer");
	readiness_set(&app->readiness, READINESS_PROVIDER,
		      app->service.engine == LAUNCH_ENGINE_NONE ||
			      (app->service.provider_up &&
			       provider_is_reachable(app, &provider_docker)), /* or remote */
		      "its engine does not answer");
	celery_observe(app);
	readiness_set(&app->readiness, READINESS_STORE, !store.degraded, store.reason);
	platform_observe(app);
	if (app->readiness.part[READINESS_AUDIT].bad)
		audit_tick(app); /* may work again */
}

/* The process answers: that is all this says. */
void action_healthz(struct request *request)
{
	reply_json(request, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

/* {part: text} of all that are not. */
static json_t *parts_not_ready(const struct readiness *readiness)
{
	json_t *parts = json_object();

	for (size_t i = 0; i < READINESS_MAX_; i++)
		if (readiness->part[i].bad)
			(void)json_object_set_new(parts, readiness_name((enum readiness_part)i),
						  json_string(readiness->part[i].text));
	return parts;
}

void action_readyz(struct request *request)
{
	struct app *app = request_app(request);
	enum readiness_part part;
	const char *text;
	json_t *answer;

	observe_refresh(app);
	part = readiness_first(&app->readiness);
	if (part == READINESS_MAX_) {
		reply_json(request, MHD_HTTP_OK, json_pack("{s:s}", "status", "ready"));
		return;
	}
	text = app->readiness.part[part].text;
	answer = json_pack("{s:s, s:s, s:o}", "status", "not ready", "reason",
			   part == READINESS_SERVICE ? text : readiness_name(part), "parts",
			   parts_not_ready(&app->readiness));
	if (part != READINESS_SERVICE && text[0])
		(void)json_object_set_new(answer, "text", json_string(text));
	reply_json(request, MHD_HTTP_SERVICE_UNAVAILABLE, answer);
}

/* The log. */

void action_log_level(struct request *request)
{
	const struct app *app = request_app(request);

	reply_json(request, MHD_HTTP_OK,
		   json_pack("{s:s}", "level", log_level_name(app->service.log_level)));
}

struct level_op {
	struct answer_to to;
	enum log_level level;
};

static void on_level(void *userdata, const struct launch_msg *answer, int fd)
{
	struct level_op *op = userdata;
	struct request *request = answer_get(&op->to);

	(void)fd_close(fd);
	if (request && (!answer || answer->error != LAUNCH_E_NONE))
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE,
			     "the supervisor did not answer");
	else if (request)
		reply_json(request, MHD_HTTP_OK,
			   json_pack("{s:s}", "level", log_level_name(op->level)));
	free(op);
}

/* The supervisor's own level changes, and it tells every worker. */
void action_log_level_set(struct request *request, enum log_level level)
{
	struct app *app = request_app(request);
	struct level_op *op = calloc(1, sizeof(*op));

	request_note(request, "level", json_string(log_level_name(level)));
	if (op) {
		op->to = answer_to(request);
		op->level = level;
		if (supervisor_client_request(
			    app->supervisor,
			    &(struct supervisor_request){.type = LAUNCH_LOG_LEVEL,
							 .level = (uint32_t)level,
							 .timeout = APP_REQUEST_TIMEOUT},
			    on_level, op) >= 0)
			return;
		free(op);
	}
	reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "the supervisor cannot be asked");
}

/* Metrics. */

struct single {
	const char *name;
	const char *type;
	const char *help;
	uint64_t value;
};

static int append_singles(struct buf *text, const struct app *app)
{
	const struct store_stats stats = store_stats(app->store);
	const struct platform_counters published = platform_counters(app);
	const struct single all[] = {
		{"sessions",                   "gauge",   "Sessions that this worker holds.",
		 registry_count(&app->registry)									   },
		{"sessions_created_total",     "counter", "Sessions launched.",
		 app->counters.n_created										  },
		{"launch_failures_total",      "counter", "Launches that failed.",
		 app->counters.n_launch_failures									  },
		{"sessions_ended_total",       "counter", "Sessions that ended.",             app->counters.n_ended       },
		{"tasks_total",                "counter", "Tasks accepted.",                  app->counters.n_tasks       },
		{"commands_total",             "counter", "Foreground commands started.",
		 app->counters.n_commands										 },
		{"http_requests_total",        "counter", "Requests begun.",
		 app->http_counters.n_requests									    },
		{"http_connections",           "gauge",   "Open connections.",
		 app->http_counters.n_connections									 },
		{"http_streams",               "gauge",   "Running streams.",                 app->http_counters.n_streams},
		{"store_writes_total",         "counter", "Writes committed.",                stats.n_writes              },
		{"store_commits_total",        "counter", "Commits.",                         stats.n_commits             },
		{"store_failed_commits_total", "counter", "Commits that the store refused.",
		 stats.n_failed_commits										   },
		{"store_waiting",              "gauge",   "Writes that wait.",                stats.n_waiting             },
		{"frames_published_total",     "counter",
		 "Task frames that the platform's Redis server took.",                        published.n_published       },
		{"frames_unheard_total",       "counter",
		 "Published task frames to which nobody had subscribed.",                     published.n_unheard         },
		{"frames_unpublished_total",   "counter",
		 "Task frames that were not published: the server stayed away or refused.",   published.n_given_up        },
		{"store_degraded",             "gauge",   "1 while the store refuses.",       stats.degraded              },
	};
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(all); i++)
		r = metrics_append(text, all[i].name, all[i].type, all[i].help,
				   &(struct metrics_value){"", all[i].value}, 1);
	return r;
}

static int append_statuses(struct buf *text, const struct http_counters *counters)
{
	const struct metrics_value values[] = {
		{"class=\"1xx\"", counters->n_status[1]},
                {"class=\"2xx\"", counters->n_status[2]},
		{"class=\"3xx\"", counters->n_status[3]},
                {"class=\"4xx\"", counters->n_status[4]},
		{"class=\"5xx\"", counters->n_status[5]},
	};

	return metrics_append(text, "http_answers_total", "counter", "Answers by class of status.",
			      values, ARRAY_SIZE(values));
}

/* Sessions by state, and the jobs that wait in them. */
static int append_sessions(struct buf *text, const struct app *app)
{
	char labels[SESSION_STATE_MAX_][32];
	struct metrics_value states[SESSION_STATE_MAX_];
	uint64_t n_waiting = 0;
	int r = 0;

	for (unsigned int i = 0; r >= 0 && i < SESSION_STATE_MAX_; i++) {
		r = str_format(labels[i], sizeof(labels[i]), "state=\"%s\"",
			       session_state_text((enum session_state)i));
		states[i] = (struct metrics_value){labels[i], 0};
	}
	LIST_FOR_EACH (entry, &app->registry.by_age) {
		const struct session *session = LIST_ENTRY(entry, struct session, by_age);

		states[session->state].value++;
		n_waiting += job_waiting(session);
	}
	if (r >= 0)
		r = metrics_append(text, "sessions_by_state", "gauge", "Sessions in each state.",
				   states, SESSION_STATE_MAX_);
	if (r < 0)
		return r;
	return metrics_append(text, "tasks_waiting", "gauge", "Tasks that wait for their turn.",
			      &(struct metrics_value){"", n_waiting}, 1);
}

static int append_service(struct buf *text, const struct app *app)
{
	const struct metrics_value restarts[] = {
		{"worker=\"api\"",      app->service.n_api_restarts     },
		{"worker=\"egress\"",   app->service.n_egress_restarts  },
		{"worker=\"provider\"", app->service.n_provider_restarts},
	};
	char labels[READINESS_MAX_][32];
	struct metrics_value ready[READINESS_MAX_];
	int r = 0;

	for (unsigned int i = 0; r >= 0 && i < READINESS_MAX_; i++) {
		r = str_format(labels[i], sizeof(labels[i]), "part=\"%s\"",
			       readiness_name((enum readiness_part)i));
		ready[i] = (struct metrics_value){labels[i], !app->readiness.part[i].bad};
	}
	if (r >= 0)
		r = metrics_append(text, "ready", "gauge", "1 where the part is ready.", ready,
				   READINESS_MAX_);
	if (r < 0)
		return r;
	return metrics_append(text, "worker_restarts_total", "counter",
			      "Workers that the supervisor started again.", restarts,
			      ARRAY_SIZE(restarts));
}

void action_metrics(struct request *request)
{
	struct app *app = request_app(request);
	struct buf text = BUF_NULL(METRICS_MAX_BYTES);
	int r;

	observe_refresh(app);
	r = append_singles(&text, app);
	if (r >= 0)
		r = append_statuses(&text, &app->http_counters);
	if (r >= 0)
		r = append_sessions(&text, app);
	if (r >= 0)
		r = append_service(&text, app);
	if (r >= 0)
		r = celery_append_metrics(&text, app);
	if (r >= 0)
		r = idle_append_metrics(&text, app);
	if (r >= 0)
		r = snapshots_append_metrics(&text, app);
	if (r >= 0)
		r = metrics_append_all(&text, &app->metrics);
	if (r < 0 || !buf_text(&text))
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
	else
		reply_text(request, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
			   buf_text(&text));
	buf_done(&text);
}
