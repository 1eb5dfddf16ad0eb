/*
 * TLS on a connected, non-blocking socket (OpenSSL). The server's certificate must be one that the
 * host's authorities vouch for, and name the server.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/auto.h"

#include "sandboxd/worker.h"

struct redis_tls_trust; /* the authorities, read once */
struct redis_tls;

/* 0; -ENOMEM; -EIO: they cannot be read. */
MUST_USE int redis_tls_trust_new(struct redis_tls_trust **ret_trust);
struct redis_tls_trust *redis_tls_trust_free(struct redis_tls_trust *trust); /* accepts NULL */

/* The socket stays the caller's. 0 or -ENOMEM. */
MUST_USE int redis_tls_new(const struct redis_tls_trust *trust, int fd,
			   const struct redis_server *server, struct redis_tls **ret_tls);
struct redis_tls *redis_tls_free(struct redis_tls *tls); /* accepts NULL, returns NULL */

/* 0: both agree; -EAGAIN; -EKEYREJECTED: its certificate; -EPROTO. */
MUST_USE int redis_tls_greet(struct redis_tls *tls);
/* As recv and send without a signal, but for the error: bytes, 0 at the end, -EAGAIN, -EIO. */
MUST_USE ssize_t redis_tls_read(struct redis_tls *tls, void *data, size_t size);
MUST_USE ssize_t redis_tls_write(struct redis_tls *tls, const void *data, size_t size);
bool redis_tls_wants_write(const struct redis_tls *tls); /* -EAGAIN: until the socket takes more */
bool redis_tls_has_more(const struct redis_tls *tls); /* read, and not asked for: no event comes */
