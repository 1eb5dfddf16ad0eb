/*
 * What sandboxd-provider and sandbox-contain agree on: how our shim lives in the container of a
 * foreign engine.
 *
 * The container's first process is `sandbox-contain start SESSION PROFILE MAX_FILES`, which becomes
 * the shim. `sandbox-contain connect`, run by the engine beside it, carries the frames of wire.h
 * between its standard streams and the shim: each message is its length, 32 bits in host order, and
 * so many bytes.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/limits.h"

/* Our programs and the policy, read-only, one mount each. */
#define CONTAIN_DIR        "/.sandboxd"
/* A tmpfs that only uid 0 enters; commands are never that. */
#define CONTAIN_SOCKET_DIR "/.sandboxd-socket"
#define CONTAIN_SOCKET     CONTAIN_SOCKET_DIR "/shim"

/* Of the shim and what is not a command's: neither that of commands nor uid 0. */
#define CONTAIN_SHIM_ID 65533

/* A message on the streams. */
#define CONTAIN_HEAD_BYTES    4
#define CONTAIN_MESSAGE_BYTES (CONTAIN_HEAD_BYTES + WIRE_FRAME_MAX_BYTES)
