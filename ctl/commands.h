/*
 * One function per command of sandboxctl. Each returns the exit status.
 */
#pragma once

#include "ctl/client.h"
#include "ctl/options.h"

int command_run(struct client *client, const struct options *options);
int command_exec(struct client *client, const struct options *options);
int command_create(struct client *client, const struct options *options);
int command_ls(struct client *client, const struct options *options);
int command_show(struct client *client, const struct options *options);
int command_write(struct client *client, const struct options *options);
int command_load(struct client *client, const struct options *options);
int command_execute(struct client *client, const struct options *options);
int command_logs(struct client *client, const struct options *options);
int command_rm(struct client *client, const struct options *options);
int command_janitor(struct client *client, const struct options *options);
int command_trace(struct client *client, const struct options *options);
int command_proof(struct client *client, const struct options *options);
int command_doctor(struct client *client, const struct options *options);
int command_version(struct client *client, const struct options *options);

/* Shared by create and run. 0 with a reply of status 201 or another, as client_perform. */
MUST_USE int session_create(struct client *client, const struct options *options,
			    struct client_reply *reply);
/* The id in a summary of either prefix, or NULL. */
const char *session_id(const json_t *summary);
/* Follow a task's frames to the end. */
int task_follow(struct client *client, const struct options *options, const char *task_id,
		size_t n_assets);
/* Run one command in a session: its output goes to the callbacks of `output`. */
struct command_output {
	void (*write)(void *userdata, int fd, const char *data, size_t length);
	void *userdata;
};
int command_in_session(struct client *client, const char *session, json_t *request,
		       const struct command_output *output);
