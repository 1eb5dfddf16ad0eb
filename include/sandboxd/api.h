/*
 * HTTP names that the api worker and sandboxctl share.
 */
#pragma once

#define API_PREFIX_DAGSTER "/dagster/sandbox"
#define API_PREFIX_RUNTIME "/v1/sandboxes"
#define API_VERSION        "1"

#define API_DETAIL_SESSION_NOT_FOUND "sandbox session not found"
#define API_DETAIL_SANDBOX_NOT_FOUND "sandbox not found"
#define API_DETAIL_AIRBYTE_NOT_FOUND "airbyte connection not found"
#define API_DETAIL_COMPONENT_NAME    "invalid component name"
#define API_DETAIL_AUTHENTICATION    "Authentication required"

#define API_SCOPE_DATA_READ     "data:read"
#define API_SCOPE_DATA_WRITE    "data:write"
#define API_SCOPE_SANDBOX_READ  "sandbox:read"
#define API_SCOPE_SANDBOX_WRITE "sandbox:write"
#define API_SCOPE_ADMIN         "platform:admin"

/*
 * Operations per session, for sandboxctl (operator socket, or platform:admin):
 *
 * GET /v1/sandboxes/{id}/proof   what the supervisor read back after the launch
 *   {"session_id", "id_base", "shim_pid",
 *    "wanted": ["ns_mnt", ...], "in_force": [...], "limits_missing": [...],
 *    "namespaces": {"mnt": {"session": INODE, "host": INODE}, "net", "pid", "ipc", "uts", "cgroup",
 *                   "user"},
 *    "capabilities": {"shim": "0000000000000000", "spawner": "..."},
 *    "limits": {"memory_bytes", "pids", "cpu_pct"}}
 *   Names are those of enum launch_proof_bit in lower case without PROOF_.
 * GET /v1/sandboxes/{id}/trace   {"session_id", "steps": [{"name", "us", "side"}, ...]}
 *   side is "parent", "child" or "shim".
 */
