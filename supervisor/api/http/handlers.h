/*
 * The handlers that the route table names. Each judges the body first (422), then looks for the
 * session (404), then hands over to an action.
 */
#pragma once

#include <stdbool.h>

struct request;
struct session;

/* Find the session of the path, and act on it. */
void handle_in_session(struct request *request,
		       void (*act)(struct request *request, struct session *session));

/* Of a stream: lines, which a WebSocket's messages are too; else events. */
bool handler_gives_lines(const struct request *request);

void handle_session_create(struct request *request);
void handle_session_list(struct request *request);
void handle_session_get(struct request *request);
void handle_session_delete(struct request *request);
void handle_session_ttl(struct request *request);
void handle_session_component(struct request *request);
void handle_session_load(struct request *request);
void handle_session_execute(struct request *request);
void handle_janitor(struct request *request);
void handle_janitor_plan(struct request *request);
void handle_session_tasks(struct request *request);
void handle_session_denials(struct request *request);
void handle_session_egress(struct request *request);
void handle_session_egress_set(struct request *request);

void handle_sandbox_delete(struct request *request);
void handle_sandbox_list(struct request *request);
void handle_sandbox_events(struct request *request);
void handle_sandbox_timeout(struct request *request);

void handle_session_airbyte(struct request *request);
void handle_airbyte_list(struct request *request);
void handle_airbyte_put(struct request *request);
void handle_airbyte_drop(struct request *request);

void handle_task_get(struct request *request);
void handle_task_cancel(struct request *request);
void handle_task_stream(struct request *request);

void handle_sandbox_create(struct request *request);
void handle_sandbox_get(struct request *request);
void handle_sandbox_command(struct request *request);
void handle_command_list(struct request *request);
void handle_command_get(struct request *request);
void handle_command_wait(struct request *request);
void handle_command_stream(struct request *request);
void handle_command_attach(struct request *request);
void handle_command_stdin(struct request *request);
void handle_command_signal(struct request *request);
void handle_command_resize(struct request *request);
void handle_file_get(struct request *request);
void handle_file_put(struct request *request);
void handle_file_remove(struct request *request);
void handle_file_list(struct request *request);
void handle_file_stat(struct request *request);
void handle_file_watch(struct request *request);
void handle_file_mkdir(struct request *request);
void handle_file_move(struct request *request);
void handle_file_copy(struct request *request);
void handle_file_chmod(struct request *request);
void handle_git(struct request *request); /* of all of them: the route says which */
void handle_sandbox_suspend(struct request *request);
void handle_sandbox_resume(struct request *request);
void handle_snapshot_create(struct request *request);
void handle_snapshot_list(struct request *request);
void handle_snapshot_delete(struct request *request);
void handle_snapshot_restore(struct request *request);
void handle_sandbox_proof(struct request *request);
void handle_sandbox_trace(struct request *request);
void handle_sandbox_stats(struct request *request);

void handle_log_level_get(struct request *request);
void handle_log_level_set(struct request *request);
void handle_healthz(struct request *request);
void handle_readyz(struct request *request);
void handle_metrics(struct request *request);
void handle_openapi(struct request *request);
void handle_capabilities(struct request *request);
void handle_config(struct request *request);
void handle_quota(struct request *request);
