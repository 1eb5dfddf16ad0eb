/*
 * Who is asking: socket peer first, then identity headers. Pure.
 *
 * The peer of the control socket must be in the configured list of trusted peers; only then is what
 * the headers say believed. Whoever the peer is, nobody is authenticated without a user header: a
 * root peer without headers gets 401, and so does a peer that is not trusted, whatever it sends. A
 * header that is not well formed is 400 before any of that, so that a proxy in front which lets a
 * client's own header through is noticed and not obeyed (docs/THREATS.md E5). The operator's socket
 * has one identity of its own and takes no identity header at all.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/buf.h"

#include "sandboxd/limits.h"
#include "sandboxd/worker.h"

enum auth_scope {
	AUTH_DATA_READ = 1u << 0,
	AUTH_DATA_WRITE = 1u << 1,
	AUTH_SANDBOX_READ = 1u << 2,  /* data:read counts as it */
	AUTH_SANDBOX_WRITE = 1u << 3, /* data:write counts as it */
	AUTH_ADMIN = 1u << 4,
	AUTH_ALL = 0x1f,
};

enum auth_field {
	AUTH_FIELD_USER,
	AUTH_FIELD_WORKSPACE,
	AUTH_FIELD_PROJECT,
	AUTH_FIELD_SCOPES,
	AUTH_FIELD_MAX_,
};

/* The headers of one request as they were seen; auth_headers_add for each header. */
struct auth_headers {
	const char *value[AUTH_FIELD_MAX_]; /* not owned; the request's memory */
	size_t length[AUTH_FIELD_MAX_];
	uint32_t n[AUTH_FIELD_MAX_];
	bool underscore; /* a name that equals one of ours but for `_` in place of `-` */
};

struct identity {
	char user[IDENTITY_MAX + 1];
	char workspace[IDENTITY_MAX + 1]; /* "" : none */
	char project[IDENTITY_MAX + 1];   /* "" : none */
	uint32_t scopes;                  /* enum auth_scope */
	bool is_operator;                 /* came in by the operator's socket: sees all */
};

enum auth_result {
	AUTH_OK,
	AUTH_BAD_HEADER,      /* 400 */
	AUTH_UNAUTHENTICATED, /* 401 */
};

/* value may be NULL (an empty header). Compares names without regard to case. */
void auth_headers_add(struct auth_headers *headers, const struct api_config *config,
		      const char *name, const char *value, size_t length);

bool auth_peer_trusted(const struct api_config *config, uint32_t uid);

/* need_user: false on the operations routes, which ask for a trusted peer only; the identity is
 * then empty where no user is named. */
enum auth_result auth_decide(const struct auth_headers *headers, bool peer_trusted,
			     bool is_operator, bool need_user, struct identity *ret_identity);

/* Scopes of `wanted` that the identity lacks. */
uint32_t auth_missing(const struct identity *identity, uint32_t wanted);

/* "missing scope(s): ['data:read', 'data:write']" */
MUST_USE int auth_missing_text(uint32_t missing, struct buf *text);
const char *auth_scope_name(enum auth_scope scope);
