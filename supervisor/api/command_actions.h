/*
 * What the routes of commands and the other work in a session share.
 */
#pragma once

#include <stdbool.h>

struct live;
struct request;
struct session;
struct spec_command;

/* Processor time of the day. False: it was answered. */
bool command_may_work(struct request *request, const struct session *session);
/* Whether its profile has root commands, where it asks for that. False: it was answered. */
bool command_may_be_root(struct request *request, const struct live *live,
			 const struct spec_command *spec);
