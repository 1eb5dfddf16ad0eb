/*
 * A WebSocket (RFC 6455) to the service: the opening handshake on a connection of its own, frames
 * by libwslay. The caller polls the descriptor beside its others. Like every answer, messages may
 * come from a session.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <wslay/wslay.h>

#include "base/buf.h"

#include "ctl/client.h"

/* A negative return ends the channel and is passed up. */
typedef int (*channel_message)(void *userdata, bool is_binary, const uint8_t *data, size_t size);

struct channel {
	int fd;
	wslay_event_context_ptr wslay;
	struct buf early; /* what came behind the handshake's head */
	channel_message message;
	void *userdata;
	int result; /* of message */
	bool ended; /* the other side closed */
};
#define CHANNEL_NULL ((struct channel){.fd = -1, .early = BUF_NULL((size_t)64 * 1024)})

/* What the service takes as one message is longer. */
#define CHANNEL_SEND_MAX_BYTES ((size_t)8 * 1024)

/* Connect and shake hands. 0 and reply->status 101, or with another status: it was refused, as the
 * reply says; else as client_perform. */
MUST_USE int channel_open(struct channel *channel, struct client *client, const char *path,
			  struct client_reply *reply);
void channel_close(struct channel *channel);

/* For poll(2). */
short channel_events(const struct channel *channel);
/* Bytes that wait for the socket. */
size_t channel_queued(const struct channel *channel);
MUST_USE int channel_send(struct channel *channel, bool is_binary, const void *data, size_t size);
/* Read and write what can be. 0; -ENODATA: it was closed in order; -EPIPE: it was cut; or what
 * message returned. */
MUST_USE int channel_run(struct channel *channel);
