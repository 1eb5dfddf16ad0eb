/*
 * What sandboxd-provider and sandbox-contain agree on: how our shim lives in the container of a
 * foreign engine.
 *
 * The container's first process is `sandbox-contain start SESSION PROFILE MAX_FILES`, which leaves
 * a relay and becomes the shim. `sandbox-contain connect`, run by the engine beside it, carries
 * bytes between its standard streams and the relay: a tether (base/tether.h) whose caller is
 * sandboxd-provider and whose messages are the frames of wire.h.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/limits.h"

/* Our programs and the policy, read-only, one mount each. */
#define CONTAIN_DIR        "/.sandboxd"
/* A tmpfs that only uid 0 enters; commands are never that. */
#define CONTAIN_SOCKET_DIR "/.sandboxd-socket"
#define CONTAIN_SOCKET     CONTAIN_SOCKET_DIR "/shim"
#define CONTAIN_RELAY      CONTAIN_SOCKET_DIR "/relay"

/* Of the shim and what is not a command's: neither that of commands nor uid 0. */
#define CONTAIN_SHIM_ID 65533
