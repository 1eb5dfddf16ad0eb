/*
 * A WebSocket to a command. To the client: standard output (of a terminal: all output) as binary
 * messages, every other event as one text message, as command_stream.h has them. From the client:
 * binary messages are standard input, text messages are {"type":"eof"}, {"type":"resize","rows",
 * "cols"} or {"type":"signal","signal","scope"?}. What the command does not read is not read from
 * the client either.
 */
#pragma once

#include "supervisor/api/command.h"

/* kills: the end of the connection is the command's, and the command waits for its reader. 0, or
 * -ENOMEM: the request is not answered. */
MUST_USE int command_attach(struct request *request, struct command *command, uint64_t after,
			    bool kills);
