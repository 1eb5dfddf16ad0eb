/*
 * What a command says as a stream, one JSON object an event, as lines or server-sent events:
 *
 *   {"type":"start","pid":7,"command_id":"…"}
 *   {"type":"stdout","seq":4,"text":"…"}   {"type":"stderr","seq":8,"data":"base64"}
 *   {"type":"dropped","detail":"…"}        older output was not kept
 *   {"type":"suspended"}   {"type":"resumed"}  its sandbox stands still, or goes on
 *   {"type":"exit","seq":12,"code":0,"signal":null,"timed_out":false,"truncated":false,…}
 *   {"type":"error","seq":12,"code":"…","detail":"…"}
 *
 * The last one is `exit` or `error`, never both; a stream without one was cut.
 */
#pragma once

#include "supervisor/api/command.h"

struct command_stream_options {
	uint64_t after; /* seq; 0: from the beginning, with `start` */
	bool as_lines;
	bool pacing; /* the command is this request's */
};

/* 0, or -ENOMEM: the request is not answered. */
MUST_USE int command_stream_start(struct request *request, struct command *command,
				  const struct command_stream_options *options);
