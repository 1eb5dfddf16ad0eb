/*
 * What handlers ask of the rest of the worker. Declared here and done to the right of http/ (in
 * session_find.c, tasks.c, commands.c, ops.c), so that http/ knows neither shim nor store.
 *
 * An action answers the request, now or later. It takes over what a spec owns (the spec is left
 * empty); sessions are borrowed for the call.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/log.h"

#include "supervisor/api/http/request.h"
#include "supervisor/api/session/registry.h"
#include "supervisor/api/session/spec.h"
#include "supervisor/api/session/spec_git.h"
#include "supervisor/api/session/spec_suspend.h"

/* The session of the path, if the caller may see it; else it was answered (404) and NULL. all: a
 * caller with platform:admin sees every session on this route. */
struct session *action_find(struct request *request, bool all);
/* The same for a route that needs the session's process tree. NULL: answered, or the handler runs
 * again when there is one; so it asks before it gives anything of the request away. */
struct session *action_find_tree(struct request *request);
/* Another one that the caller may see, by its id. NULL: nothing was answered. */
const struct session *action_find_other(const struct request *request, const char *id);
/* The same for a delete, which also finds what is being deleted already. */
struct session *action_find_delete(struct request *request);
/* Number of sessions in ret (filter->limit places) or -ENOENT. all: as for action_find. */
MUST_USE int action_list(struct request *request, const struct registry_filter *filter, bool all,
			 struct session **ret);
/* New references or NULL. */
json_t *action_summary(struct request *request, const struct session *session);
json_t *action_sandbox(struct request *request, const struct session *session);

/* The caller may change something now; else it was answered (429). */
bool action_change(struct request *request);

void action_create(struct request *request, struct spec_create *spec, bool dagster);
void action_delete(struct request *request, struct session *session);
/* ttl_minutes: from now on. */
void action_ttl(struct request *request, struct session *session, uint32_t ttl_minutes);
/* The same for a sandbox, whose answer is the sandbox. */
void action_timeout(struct request *request, struct session *session, uint32_t ttl_minutes);
void action_janitor(struct request *request);
void action_janitor_plan(struct request *request);

void action_component(struct request *request, struct session *session,
		      struct spec_component *spec);
/* Writes the component of a connection: id of the row or Airbyte's. */
void action_airbyte(struct request *request, struct session *session, const char *connection);
void action_airbyte_list(struct request *request);
/* The connection of the path, under Airbyte's id, of the caller and his workspace. */
void action_airbyte_put(struct request *request, struct spec_airbyte *spec);
void action_airbyte_drop(struct request *request);
void action_load(struct request *request, struct session *session);
/* How a foreground command is answered. */
enum command_form {
	COMMAND_FORM_LINES,
	COMMAND_FORM_EVENTS,
	COMMAND_FORM_ANSWER,
};
struct command_start {
	enum command_form form;
};
void action_command(struct request *request, struct session *session, struct spec_command *spec,
		    const struct command_start *start);
/* What happens to the session; after: the number that the caller has. */
void action_events(struct request *request, struct session *session, bool as_lines, uint64_t after);
void action_command_list(struct request *request, struct session *session);
void action_command_get(struct request *request, struct session *session);
void action_command_wait(struct request *request, struct session *session, uint32_t timeout_ms);
void action_command_stream(struct request *request, struct session *session, bool as_lines,
			   uint64_t after);
void action_command_attach(struct request *request, struct session *session, uint64_t after,
			   bool kills);
void action_command_stdin(struct request *request, struct session *session, const void *data,
			  size_t size, bool eof);
void action_command_signal(struct request *request, struct session *session,
			   const struct wire_signal *signal);
void action_command_resize(struct request *request, struct session *session,
			   const struct wire_size *size);

/* Runs git; takes the spec over. */
void action_git(struct request *request, struct session *session, struct spec_git *spec);

void action_snapshot(struct request *request, struct session *session);
void action_snapshot_list(struct request *request, struct session *session);
void action_snapshot_delete(struct request *request, struct session *session);
void action_snapshot_restore(struct request *request, struct session *session,
			     const struct spec_restore *spec);

/* Everything about files; a put takes the body as it comes. */
void action_file(struct request *request, struct session *session, const struct spec_file *spec);
/* A stream of what changes in a folder (WIRE_FILE_WATCH). */
void action_file_watch(struct request *request, struct session *session,
		       const struct spec_file *spec, bool as_lines);

void action_execute(struct request *request, struct session *session);
/* The same through the Celery queue. */
void action_execute_queued(struct request *request, const struct session *session);
void action_session_tasks(struct request *request, const struct session *session);
void action_task(struct request *request);        /* state of the path's task */
void action_task_cancel(struct request *request); /* ends it, then the same */
/* is_chat: by the route below /chat/, which has a wait of its own for a task to appear. */
void action_task_stream(struct request *request, bool as_lines, uint32_t after, bool is_chat);

void action_suspend(struct request *request, struct session *session, struct spec_suspend *spec);
void action_resume(struct request *request, struct session *session, struct spec_resume *spec);
void action_proof(struct request *request, struct session *session);
void action_trace(struct request *request, struct session *session);
void action_log_level(struct request *request); /* what it is */
void action_log_level_set(struct request *request, enum log_level level);
void action_healthz(struct request *request);
void action_readyz(struct request *request);
void action_stats(struct request *request, struct session *session);
void action_egress(struct request *request, struct session *session);
/* Takes the rules over. */
void action_egress_set(struct request *request, struct session *session, struct spec_egress *spec);
void action_denials(struct request *request, struct session *session);
void action_metrics(struct request *request);
void action_capabilities(struct request *request);
void action_config(struct request *request);
void action_quota(struct request *request);
