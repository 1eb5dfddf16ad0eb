/*
 * Request bodies, checked: JSON text in, a small struct of plain values out. What is wrong comes
 * back as the items of a 422 answer {type, loc, msg}; they never quote the input.
 *
 * Every parser: 0; SPEC_E_INVALID and *ret_errors is a new array of items (the caller owns the
 * reference); -ENOMEM. The struct is untouched unless 0 is returned. An empty text, `null` and `{}`
 * are the same where all fields are optional.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/id.h"
#include "base/session_name.h"

#include "sandboxd/limits.h"
#include "sandboxd/plan.h"
#include "sandboxd/policy_image.h"
#include "sandboxd/template.h"
#include "sandboxd/wire.h"
#include "sandboxd/worker.h"

#define SPEC_E_INVALID 1

#define SPEC_ORIGIN_MAX       64
/* A workspace, or what stands for one: "user:" and the user. */
#define SPEC_ORGANIZATION_MAX (IDENTITY_MAX + 5)

/* SHA-256 in hexadecimal digits, with its NUL. */
#define SPEC_DIGEST_BYTES 65

#define SPEC_TIMEOUT_MAX_MS (24u * 3600u * 1000u)

struct spec_options {
	const char *env_prefix; /* of the endpoint variables, which `envs` may not name; or NULL */
	bool ignore_unknown_fields; /* configuration: unknown_fields = ignore */
	uint32_t ttl_max_minutes;   /* 0: TTL_MAX_MINUTES (dagster), AGENT_TTL_MAX_MINUTES (/v1) */
	const struct api_config *config; /* what endpoints and rules may name; NULL: anything */
};

/* Rules of what a session may reach beside its endpoints. */
struct spec_egress {
	char **allow; /* owned; texts of egress_rule.h */
	size_t n_allow;
};
#define SPEC_EGRESS_NULL ((struct spec_egress){0})
void spec_egress_done(struct spec_egress *egress);

/* What a caller of /v1 says of a sandbox beside what its processes get. */
#define SPEC_METADATA_MAX    16  /* members */
#define SPEC_VALUE_MAX       256 /* bytes of a member's value */
#define SPEC_IDEMPOTENCY_MAX 128
#define SPEC_PROVIDER_MAX    32
struct spec_runtime {
	json_t *metadata;  /* owned object of texts, or NULL */
	json_t *workspace; /* owned {"include": [path], "exclude": [pattern]}, or NULL */
	json_t *snapshots; /* owned array (snapshots.h), or NULL; ours, not the caller's */
	char project[IDENTITY_MAX + 1];                 /* of the body only; "": not given */
	char provider[SPEC_PROVIDER_MAX + 1];           /* the same */
	char idempotency_key[SPEC_IDEMPOTENCY_MAX + 1]; /* "": none */
	char idempotency_digest[SPEC_DIGEST_BYTES];     /* of the body that came with it */
	char template[TEMPLATE_NAME_BYTES];             /* "": TEMPLATE_BASE */
};
#define SPEC_RUNTIME_NULL ((struct spec_runtime){0})
void spec_runtime_done(struct spec_runtime *runtime);
/* All but the project as text for the row, and back. NULL: no memory. The caller frees. */
char *spec_runtime_format(const struct spec_runtime *runtime);
void spec_runtime_restore(struct spec_runtime *runtime, const char *text);

/* POST {API_PREFIX_DAGSTER}/sessions and POST {API_PREFIX_RUNTIME}. */
struct spec_create {
	char profile[POLICY_NAME_BYTES]; /* "component" for Dagster; /v1: default "agent" */
	uint32_t ttl_minutes;            /* always set */
	char *endpoint[ENDPOINTS_N];     /* NULL: the caller gave none; secret-like, never shown */
	char **env;                      /* NAME=VALUE, NULL terminated, or NULL */
	size_t n_env;
	char **secret; /* names, or NULL */
	size_t n_secrets;
	char name[SESSION_NAME_MAX + 1];              /* "": none */
	char organization[SPEC_ORGANIZATION_MAX + 1]; /* "": not given */
	struct spec_egress egress;
	struct spec_runtime runtime; /* /v1 */
};
#define SPEC_CREATE_NULL ((struct spec_create){0})
void spec_create_done(struct spec_create *spec);

/* {ttl_minutes?: 1..720, env_overrides?: {six names only: text}, env?: {NAME: text}, secrets?:
 * [name], name?: text, egress?: {allow: [rule]}}
 */
MUST_USE int spec_parse_session(const char *text, size_t size, const struct spec_options *options,
				struct spec_create *ret_spec, json_t **ret_errors);
/* {profile?: text, env?, envs?: {NAME: text}, secrets?: [name], ttl?: seconds, rounded up to
 * minutes, timeout_ms?: the same in milliseconds, name?: text, egress?: {allow: [rule]},
 * organization_uuid?, project_uuid?, idempotency_key?, template?: text, metadata?: {KEY: text},
 * workspace?: {include: [path], exclude?: [pattern]}} */
MUST_USE int spec_parse_sandbox(const char *text, size_t size, const struct spec_options *options,
				struct spec_create *ret_spec, json_t **ret_errors);

/* PATCH {API_PREFIX_DAGSTER}/sessions/{id}: {ttl_minutes: 1..720}. */
MUST_USE int spec_parse_ttl(const char *text, size_t size, const struct spec_options *options,
			    uint32_t *ret_minutes, json_t **ret_errors);

/* POST {API_PREFIX_RUNTIME}/{id}/timeout: {timeout_ms | ttl}, rounded up to minutes. */
MUST_USE int spec_parse_timeout(const char *text, size_t size, const struct spec_options *options,
				uint32_t *ret_minutes, json_t **ret_errors);

/* POST .../components. The name is as the client sent it: component_name_check judges it later
 * (400, not 422), after the session was found. */
struct spec_component {
	char *name; /* name_length bytes and a NUL; NUL bytes inside are possible */
	size_t name_length;
	char *body; /* UTF-8 without NUL, at most COMPONENT_BODY_MAX_BYTES */
	size_t body_length;
	char origin[SPEC_ORIGIN_MAX + 1]; /* row of the connection it is written from; "": none */
};
#define SPEC_COMPONENT_NULL ((struct spec_component){0})
void spec_component_done(struct spec_component *spec);
MUST_USE int spec_parse_component(const char *text, size_t size, const struct spec_options *options,
				  struct spec_component *ret_spec, json_t **ret_errors);

/* POST .../airbyte: {airbyte_connection_id: text}. *ret_id is owned. */
MUST_USE int spec_parse_airbyte(const char *text, size_t size, const struct spec_options *options,
				char **ret_id, json_t **ret_errors);

/* PUT .../airbyte-connections/{id}. */
struct spec_airbyte {
	char *name;
	char *source_id; /* NULL: none, as the other two */
	char *destination_id;
	char *streams_json; /* array of names */
};
#define SPEC_AIRBYTE_NULL ((struct spec_airbyte){0})
void spec_airbyte_done(struct spec_airbyte *spec);
MUST_USE int spec_parse_airbyte_put(const char *text, size_t size,
				    const struct spec_options *options,
				    struct spec_airbyte *ret_spec, json_t **ret_errors);

/* POST .../commands: {argv | cmd, cwd?, envs?, timeout_ms?, user?, stdin?, stdin_open?,
 * background?, hold_output?, on_disconnect?, pty?: {rows, cols}, max_output?}. cmd is text for
 * /bin/sh. */
struct spec_command {
	char **argv; /* NULL terminated, n_argv >= 1 */
	size_t n_argv;
	char *cwd;  /* NULL: the default, /session */
	char **env; /* NAME=VALUE, NULL terminated, or NULL */
	size_t n_env;
	uint32_t timeout_ms; /* 0: not given */
	uint16_t program;    /* enum wire_program; a body says none but WIRE_PROGRAM_ARGV */
	bool is_root;
	bool background;
	bool hold_output; /* of one in the background: until somebody reads */
	bool on_disconnect_keep;
	bool stdin_open;       /* more of it comes later */
	bool has_credential;   /* in stdin_text; no body says so */
	uint32_t max_output;   /* bytes; 0: not given */
	struct wire_size size; /* of a terminal; 0: none */
	char *stdin_text;      /* NULL: none */
	size_t stdin_length;
};
#define SPEC_COMMAND_NULL ((struct spec_command){0})
void spec_command_done(struct spec_command *spec);
/* {signal: text or number, scope?: group|leader|tree} */
MUST_USE int spec_parse_signal(const char *text, size_t size, const struct spec_options *options,
			       struct wire_signal *ret_signal, json_t **ret_errors);
/* {rows, cols} */
MUST_USE int spec_parse_size(const char *text, size_t size, const struct spec_options *options,
			     struct wire_size *ret_size, json_t **ret_errors);
/* POST .../stdin as JSON: {text | data (base64), eof?} */
struct spec_stdin {
	char *data; /* owned, or NULL */
	size_t size;
	bool eof;
};
MUST_USE int spec_parse_stdin(const char *text, size_t size, const struct spec_options *options,
			      struct spec_stdin *ret_stdin, json_t **ret_errors);
MUST_USE int spec_parse_command(const char *text, size_t size, const struct spec_options *options,
				struct spec_command *ret_spec, json_t **ret_errors);

/* A place in a session: relative to one of its folders. */
struct spec_file_path {
	uint16_t root; /* enum wire_file_root */
	char text[FILE_PATH_BYTES];
};
/* One file operation. Paths and roots are in path and to; the rest of head is as wire.h says. */
struct spec_file {
	struct wire_file head;
	struct spec_file_path path;
	struct spec_file_path to;
};
#define SPEC_FILE_MODE_NONE UINT32_MAX
struct spec_file spec_file(uint16_t op); /* nothing is said about it */
/* Absolute below /session or /tmp, or relative to /session; text has a NUL behind length. NULL, or
 * what is wrong with it. */
const char *spec_file_path(const char *text, size_t length, struct spec_file_path *ret_path);
MUST_USE bool spec_file_mode(const char *text, uint32_t *ret_mode); /* octal digits */
/* The value of a query parameter as it was sent (%41, +), with a NUL. False: it is malformed, or
 * does not fit. */
MUST_USE bool spec_query_decode(const char *raw, char *dest, size_t dest_bytes, size_t *ret_length);
/* POST .../files/{mkdir,move,copy,chmod}: {path, mode?}, {from, to, replace?}, {from, to, replace?,
 * recursive?}, {path, mode}. */
MUST_USE int spec_parse_file(const char *text, size_t size, const struct spec_options *options,
			     uint16_t op, struct spec_file *spec, json_t **ret_errors);

/* POST .../restore: {snapshot_id, sandbox_uuid?, replace?}. */
struct spec_restore {
	char snapshot[ID_TEXT_BYTES];
	char sandbox[ID_TEXT_BYTES]; /* whose it is; "": the one of the path */
	bool replaces;
};
MUST_USE int spec_parse_restore(const char *text, size_t size, const struct spec_options *options,
				struct spec_restore *ret_spec, json_t **ret_errors);

/* PUT .../egress: {allow: [rule]}. */
MUST_USE int spec_parse_egress(const char *text, size_t size, const struct spec_options *options,
			       struct spec_egress *ret_egress, json_t **ret_errors);

/* A route without a body accepts none, `{}` and `null`. */
MUST_USE int spec_parse_empty(const char *text, size_t size, const struct spec_options *options,
			      json_t **ret_errors);

/* One item, for errors found elsewhere (query parameters): loc is [where, field], or [where] with
 * field NULL. Appends to *errors, which is made where it is NULL. 0 or -ENOMEM. */
MUST_USE int spec_error_add(json_t **errors, const char *type, const char *where, const char *field,
			    const char *msg);

/* The plan of a launch: the profile's default limits; the supervisor checks and enforces it. */
struct plan spec_plan(const struct id *session, uint32_t profile_index,
		      const struct policy_profile *profile);
/* Index of a session profile by name in a checked image, or -1. */
int spec_find_profile(const struct policy_image_header *image, const char *name);
