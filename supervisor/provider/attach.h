/*
 * The stream of a command that the engine runs: a connection that is no HTTP any more once the
 * engine has answered.
 */
#pragma once

#include "base/auto.h"
#include "base/loop.h"

struct attach;

/* fd: the stream, non-blocking, from its first byte on; the callee's. Or -errno. */
typedef void (*attach_done)(void *userdata, int fd);

/* exec: as the engine named it, checked (letters and digits). 0 and `done` follows, never from
 * inside; or -errno. */
MUST_USE int attach_start(struct loop *loop, const char *socket_path, const char *exec,
			  attach_done done, void *userdata, struct attach **ret_attach);
/* Before `done`: it does not come. Accepts NULL, returns NULL. */
struct attach *attach_cancel(struct attach *attach);
