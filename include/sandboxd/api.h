/*
 * HTTP names that the api worker and sandboxctl share.
 */
#pragma once

#define API_PREFIX_DAGSTER "/dagster/sandbox"
#define API_PREFIX_RUNTIME "/v1/sandboxes"
#define API_VERSION        "1"

#define API_DETAIL_SESSION_NOT_FOUND "sandbox session not found"
#define API_DETAIL_SANDBOX_NOT_FOUND "sandbox not found"
#define API_DETAIL_COMPONENT_NAME    "invalid component name"
#define API_DETAIL_AUTHENTICATION    "Authentication required"

#define API_SCOPE_DATA_READ     "data:read"
#define API_SCOPE_DATA_WRITE    "data:write"
#define API_SCOPE_SANDBOX_READ  "sandbox:read"
#define API_SCOPE_SANDBOX_WRITE "sandbox:write"
#define API_SCOPE_ADMIN         "platform:admin"
