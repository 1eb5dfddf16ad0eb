/*
 * The events of a command, one JSON object a line or a message: what it writes goes to the caller,
 * its end becomes an exit status.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"

struct command_output {
	/* Negative ends the command. */
	int (*write)(void *userdata, int fd, const char *data, size_t length);
	void *userdata;
};

struct command_events {
	const struct command_output *output;
	int exit_status; /* -1 until the exit line came */
	bool json;       /* print the events themselves */
	bool quiet;      /* the caller says itself that the time was up */
	bool timed_out;  /* of the exit line */
	bool started;
};

/* The object that says why it did not start or end. One that never started gets the status that
 * env(1) gives; one that ran lost its session. */
void command_events_failed(struct command_events *events, const json_t *line);
/* One event. Usable as client_line; userdata is the struct. 0, or negative: as output's write. */
MUST_USE int command_events_line(void *userdata, const char *text, size_t length);
