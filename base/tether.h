/*
 * Messages both ways over byte streams that break.
 *
 * Theory. A tether is one conversation; each byte stream that carries it may end anywhere, and
 * another one goes on. Messages of each direction are numbered from 1. A side keeps what it has
 * sent until the other one says that it has taken it, and a new stream begins with a hello both
 * ways that says what was taken last: what is beyond is sent again. So no message is lost, comes
 * twice or out of order, and what is kept is bounded: a far end that takes nothing stops who feeds
 * the tether.
 *
 * The caller names the tether and says hello first. The other side takes whatever name comes: a new
 * one ends what it had, and it begins anew. A caller that begins anew takes another name.
 *
 * No descriptor and no clock: the owner moves the bytes. What comes in is hostile.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ring.h"

#include "sandboxd/limits.h"

#define TETHER_MESSAGE_MAX_BYTES WIRE_FRAME_MAX_BYTES
#define TETHER_KEPT_BYTES        ((size_t)1024 * 1024) /* sent and not taken, headers included */
#define TETHER_IN_BYTES          ((size_t)2 * (TETHER_MESSAGE_MAX_BYTES + TETHER_HEADER_BYTES))
#define TETHER_HEADER_BYTES      16

/* What tether_next found. */
enum tether_found {
	TETHER_NOTHING,
	TETHER_MESSAGE, /* tether_took, once it is out of our hands */
	TETHER_BEGUN,   /* a conversation of another name: what was sent and taken before is void */
};

struct tether {
	uint64_t name; /* 0: no caller yet */
	bool is_caller;
	bool says_hello;     /* as the next bytes of this stream */
	bool is_greeted;     /* the far end's hello came on this stream */
	uint64_t sent;       /* number of the last message put */
	uint64_t acked;      /* the far end took all up to this one */
	uint64_t taken;      /* of the far end's, by us */
	uint64_t told;       /* that we took all up to this one */
	size_t untold_bytes; /* of what it does not know that we took */
	struct ring kept;
	size_t next; /* offset in it of what this stream has not sent yet */
	uint8_t *in; /* TETHER_IN_BYTES */
	size_t in_at;
	size_t in_end;
	uint8_t *out; /* as large: being written to the stream */
	size_t out_at;
	size_t out_end;
};

/* name: of the caller's, random; 0: we are called. 0 or -ENOMEM. */
MUST_USE int tether_init(struct tether *tether, uint64_t name);
void tether_done(struct tether *tether); /* one of zeros is fine */

/* A new stream, before any byte of it; the one before is over. */
void tether_stream(struct tether *tether);

/* A message to the far end, of 1 to TETHER_MESSAGE_MAX_BYTES. 0; -EAGAIN: too much is kept, try
 * again when something was read. The called side has nobody to send to before TETHER_BEGUN. */
MUST_USE int tether_put(struct tether *tether, const void *data, size_t size);
bool tether_may_put(const struct tether *tether); /* one of any size */

/* Bytes to write to the stream now; *ret_data is valid until the next call. Then what was written.
 */
size_t tether_pending(struct tether *tether, const void **ret_data);
void tether_wrote(struct tether *tether, size_t size);

/* Where to read the stream's bytes to, at most so many; 0: tether_next first. Then what was read.
 */
size_t tether_space(struct tether *tether, void **ret_data);
void tether_read(struct tether *tether, size_t size);

/* enum tether_found, or a broken far end: -EPROTO; -ESTALE: it has not what we knew that it had.
 * The same message until tether_took. */
MUST_USE int tether_next(struct tether *tether, const void **ret_data, size_t *ret_size);
void tether_took(struct tether *tether);
