/*
 * The answer to a foreground command: one JSON object a line, output as base64.
 *
 *   {"type":"start","pid":7}
 *   {"type":"stdout","data":"…"}   {"type":"stderr","data":"…"}
 *   {"type":"exit","code":0,"signal":null,"timed_out":false,"truncated":false,…}
 *   {"type":"error","code":"…","step":"exec","errno":"ENOENT","detail":"…"}
 *
 * The last line is `exit` or `error`, never both; a stream without one was cut. Output counts as
 * out of our hands when the client's buffer has taken it. While that is full nothing is settled,
 * the shim's ring fills, and the kernel stops the command: a slow client slows its command, and
 * costs two bounded buffers. A client that leaves ends its command.
 */
#pragma once

#include "supervisor/api/http/request.h"
#include "supervisor/api/live.h"

/* 0, or -ENOMEM: the request is not answered, the caller cancels the job. */
MUST_USE int command_stream_start(struct request *request, struct live *live, uint32_t wire_job);
