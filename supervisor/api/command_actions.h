/*
 * What the routes of commands and the other work in a session share.
 */
#pragma once

#include <stdbool.h>

struct request;
struct session;

/* Processor time of the day. False: it was answered. */
bool command_may_work(struct request *request, const struct session *session);
