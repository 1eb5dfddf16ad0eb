#include "supervisor/api/session/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/session/fit.h"
#include "supervisor/api/session/transitions.h"

static const char *const state_text[] = {
	[SESSION_STATE_CREATING] = "creating",     [SESSION_STATE_DORMANT] = "dormant",
	[SESSION_STATE_REBUILDING] = "rebuilding", [SESSION_STATE_OPEN] = "open",
	[SESSION_STATE_RUNNING] = "running",       [SESSION_STATE_FALLING] = "falling",
	[SESSION_STATE_CLOSING] = "closing",       [SESSION_STATE_CLOSED] = "closed",
};
_Static_assert(ARRAY_SIZE(state_text) == SESSION_STATE_MAX_, "one text per state");

/* The row's closed_reason, and the `code` of the error frame that its jobs get. */
static const struct {
	const char *reason;
	const char *code;
} reasons[] = {
	[SESSION_REASON_NONE] = {"",                     "session_closed"      },
	[SESSION_REASON_DELETED] = {"deleted",              "session_closed"      },
	[SESSION_REASON_EXPIRED] = {"expired",              "session_expired"     },
	[SESSION_REASON_LOST] = {"lost",                 "session_lost"        },
	[SESSION_REASON_MEMORY] = {"memory",               "memory"              },
	[SESSION_REASON_RESTART] = {"restart",              "host_restarted"      },
	[SESSION_REASON_HOST_STOPPED] = {"host_stopped",         "host_stopped"        },
	[SESSION_REASON_LAUNCH] = {"launch",               "launch_failed"       },
	[SESSION_REASON_DEMOTED] = {"demoted",              "session_lost"        },
	[SESSION_REASON_TAKEN] = {"taken",                "host_stopped"        },
	[SESSION_REASON_INCOMPATIBLE] = {"incompatible_upgrade", "incompatible_upgrade"},
};
_Static_assert(ARRAY_SIZE(reasons) == SESSION_REASON_MAX_, "one row per reason");

struct session *session_new(const struct id *id, struct spec_create *spec, usec_t now)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->log_summary = json_array();
	if (!session->log_summary) {
		free(session);
		return NULL;
	}
	session->id = *id;
	session->state = SESSION_STATE_CREATING;
	session->created_at = now;
	session->expires_at = clock_add(now, spec->ttl_minutes * USEC_PER_MINUTE);
	session->spec = *spec;
	*spec = SPEC_CREATE_NULL;
	flow_init(&session->flow, 0);
	list_init(&session->jobs);
	list_init(&session->by_age);
	return session;
}

struct session *session_free(struct session *session)
{
	if (!session)
		return NULL;
	ASSERT(list_empty(&session->by_age));
	ASSERT(list_empty(&session->jobs));
	spec_create_done(&session->spec);
	for (size_t i = 0; i < session->n_components; i++)
		free(session->component[i].name);
	free(session->component);
	load_result_done(&session->load);
	flow_done(&session->flow);
	denials_done(&session->denials);
	suspension_done(&session->suspension);
	json_decref(session->log_summary);
	free(session);
	return NULL;
}

/* The first word counts, with two exceptions: a close of a session whose tree was already ending
 * says why the row is closed, and the supervisor knows better than the socket why a tree ended. */
static void note_reason(struct session *session, enum session_event event,
			enum session_reason reason)
{
	bool is_falling = session->state == SESSION_STATE_FALLING;

	switch (event) {
	case SESSION_EVENT_CLOSE:
		if (session->reason == SESSION_REASON_NONE || is_falling)
			session->reason = reason;
		break;
	case SESSION_EVENT_GONE:
		if (session->reason == SESSION_REASON_NONE ||
		    (is_falling && reason == SESSION_REASON_MEMORY &&
		     session->reason == SESSION_REASON_LOST))
			session->reason = reason;
		break;
	case SESSION_EVENT_STOP:
	case SESSION_EVENT_LOST:
	case SESSION_EVENT_UNLINKED:
		if (session->reason == SESSION_REASON_NONE)
			session->reason = reason;
		break;
	case SESSION_EVENT_LAUNCH_FAILED:
		if (session->reason == SESSION_REASON_NONE)
			session->reason = SESSION_REASON_LAUNCH;
		break;
	case SESSION_EVENT_LAUNCHED:
	case SESSION_EVENT_JOB_STARTED:
	case SESSION_EVENT_JOBS_IDLE:
	case SESSION_EVENT_ADOPT_ROW:
	case SESSION_EVENT_ADOPT_TREE:
	case SESSION_EVENT_USE:
	case SESSION_EVENT_RESTORED:
	case SESSION_EVENT_MAX_:
		break;
	}
}

int session_apply(struct session *session, enum session_event event, enum session_reason reason,
		  uint32_t *ret_actions)
{
	const struct transition *transition = transition_get(session->state, event);

	if (!transition->possible)
		return -EPROTO;
	note_reason(session, event, reason);
	session->state = transition->next;
	*ret_actions = transition->actions;
	return 0;
}

const char *session_status_text(enum session_state state)
{
	switch (state) {
	case SESSION_STATE_CREATING:
	case SESSION_STATE_DORMANT:
	case SESSION_STATE_REBUILDING:
	case SESSION_STATE_OPEN:
	case SESSION_STATE_FALLING:
		return "open";
	case SESSION_STATE_RUNNING:
		return "running";
	case SESSION_STATE_CLOSING:
	case SESSION_STATE_CLOSED:
	case SESSION_STATE_MAX_:
		break;
	}
	return "closed";
}

const char *session_state_text(enum session_state state)
{
	ASSERT((size_t)state < ARRAY_SIZE(state_text));
	return state_text[state];
}

const char *session_reason_text(enum session_reason reason)
{
	ASSERT((size_t)reason < ARRAY_SIZE(reasons));
	return reasons[reason].reason;
}

void session_organization(const char *user, const char *workspace,
			  char ret_organization[SPEC_ORGANIZATION_MAX + 1])
{
	const char *name = workspace[0] != '\0' ? workspace : user;

	fit_text(ret_organization, SPEC_ORGANIZATION_MAX + 1, "%s%s", name == user ? "user:" : "",
		 name);
}

const char *session_reason_code(enum session_reason reason)
{
	ASSERT((size_t)reason < ARRAY_SIZE(reasons));
	return reasons[reason].code;
}

const char *session_tree_text(const struct session *session)
{
	if (session->suspension.state == SUSPENSION_SUSPENDING ||
	    session->suspension.state == SUSPENSION_SUSPENDED)
		return "suspended";
	switch (session->state) {
	case SESSION_STATE_DORMANT:
	case SESSION_STATE_FALLING:
		return "dormant";
	case SESSION_STATE_CREATING:
	case SESSION_STATE_REBUILDING:
		return "rebuilding";
	case SESSION_STATE_OPEN:
	case SESSION_STATE_RUNNING:
	case SESSION_STATE_CLOSING:
	case SESSION_STATE_CLOSED:
	case SESSION_STATE_MAX_:
		break;
	}
	return "live";
}

bool session_is_visible(const struct session *session, usec_t now)
{
	return session->state > SESSION_STATE_CREATING && session->state < SESSION_STATE_CLOSING &&
	       now < session->expires_at;
}

bool session_persisted(const struct session *session)
{
	return session->row_exists && !session->row_incomplete && session->n_degraded == 0;
}

/* Index of the first component whose name is not below `file`. */
static size_t component_place(const struct session *session, const char *file)
{
	size_t low = 0;
	size_t high = session->n_components;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(session->component[middle].name, file) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct session_component *session_component_find(const struct session *session,
						       const char *file)
{
	size_t at = component_place(session, file);

	if (at == session->n_components || !str_equal(session->component[at].name, file))
		return NULL;
	return &session->component[at];
}

int session_component_set(struct session *session, const char *file, size_t body_bytes)
{
	size_t at = component_place(session, file);
	struct session_component *grown;
	char *name;

	if (at < session->n_components && str_equal(session->component[at].name, file)) {
		session->components_bytes -= session->component[at].body_bytes;
		session->components_bytes += body_bytes;
		session->component[at].body_bytes = body_bytes;
		return 0;
	}
	name = strdup(file);
	if (!name)
		return -ENOMEM;
	grown = reallocarray(session->component, session->n_components + 1, sizeof(*grown));
	if (!grown) {
		free(name);
		return -ENOMEM;
	}
	session->component = grown;
	memmove(grown + at + 1, grown + at, (session->n_components - at) * sizeof(*grown));
	grown[at] = (struct session_component){.name = name, .body_bytes = body_bytes};
	session->n_components++;
	session->components_bytes += body_bytes;
	return 0;
}

void session_component_remove(struct session *session, const char *file)
{
	size_t at = component_place(session, file);

	if (at == session->n_components || !str_equal(session->component[at].name, file))
		return;
	session->components_bytes -= session->component[at].body_bytes;
	free(session->component[at].name);
	session->n_components--;
	memmove(session->component + at, session->component + at + 1,
		(session->n_components - at) * sizeof(*session->component));
}

int session_log_note(struct session *session, const char *code, const char *message, usec_t now)
{
	char id[ID_TEXT_BYTES];
	json_t *entry;
	int r;

	id_format(&session->id, id);
	entry = json_pack("{s:s, s:s, s:f, s:[], s:{s:s}, s:n, s:s}", "stage", "log", "message",
			  message, "timestamp", (double)now / (double)USEC_PER_SEC, "asset_key",
			  "metadata", "code", code, "run_id", "session_id", id);
	r = session_log_append(session, entry);
	json_decref(entry);
	return r;
}

int session_log_append(struct session *session, json_t *entry)
{
	if (!entry || json_array_append(session->log_summary, entry) < 0)
		return -ENOMEM;
	while (json_array_size(session->log_summary) > SESSION_LOG_SUMMARY)
		(void)json_array_remove(session->log_summary, 0);
	return 0;
}
