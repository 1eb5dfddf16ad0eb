/*
 * Secrets on their way into a session: what is asked of sandboxd-helper, what it says about it, and
 * the records that it writes to the session's shim.
 *
 * The api worker knows names only. The supervisor hands the names to the helper and the other end
 * of the helper's output to the shim, and sees no value either.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/limits.h"

#define SECRET_MAGIC   0x53435231u
#define SECRET_VERSION 1

/* A name is [A-Za-z0-9][A-Za-z0-9._-]{0,63}, a variable [A-Z_][A-Z0-9_]{0,63}. */
#define SECRET_NAME_BYTES      65 /* NUL included, of both */
#define SECRET_VALUE_MIN_BYTES 4  /* a shorter one would be masked everywhere */
#define SECRET_VALUE_MAX_BYTES 65536
#define SECRETS_SESSION_MAX    16             /* of one session */
#define SECRETS_SESSION_BYTES  (256ul * 1024) /* their values together */
#define SECRETS_STORE_MAX      1024           /* of one host */
#define SECRET_WORKSPACES_MAX  32             /* that one secret lists */

/* The key of systemd's credentials, where the host has one. */
#define SECRET_HOST_KEY_DIR  "/var/lib/systemd"
#define SECRET_HOST_KEY_FILE "credential.secret"

enum secret_request_flags {
	SECRET_REQUEST_OPERATOR = 1, /* the local operator asks: any secret */
};

/* Part of a launch request; every byte behind a NUL is 0, and so is what is beyond `n`. */
struct secret_request {
	uint32_t n;
	uint32_t flags; /* enum secret_request_flags */
	char workspace[IDENTITY_MAX + 1];
	char zero[3];
	char name[SECRETS_SESSION_MAX][SECRET_NAME_BYTES];
};
_Static_assert(sizeof(struct secret_request) == 1088, "wire");

enum secret_status {
	SECRET_OK,
	SECRET_E_UNKNOWN, /* there is none of that name for this workspace */
	SECRET_E_CORRUPT, /* it is there and cannot be opened: changed, cut off, or rolled back */
	SECRET_E_STORE,   /* the store as a whole cannot be read; no name */
	SECRET_E_TOO_BIG, /* values together are over SECRETS_SESSION_BYTES */
	SECRET_E_MAX_,
};

/* The helper's one word to the supervisor, before it writes any value. */
struct secret_report {
	uint32_t magic; /* SECRET_MAGIC */
	uint16_t version;
	uint16_t status; /* enum secret_status */
	uint32_t index;  /* in secret_request.name, UNKNOWN and CORRUPT */
	uint32_t zero;
};
_Static_assert(sizeof(struct secret_report) == 16, "wire");

/* The stream to the shim: this, then n records, then the end of the file. */
struct secret_stream {
	uint32_t magic; /* SECRET_MAGIC */
	uint16_t version;
	uint16_t n;
	uint32_t bytes; /* of all records */
	uint32_t zero;
};
_Static_assert(sizeof(struct secret_stream) == 16, "wire");

enum secret_record_flags {
	SECRET_RECORD_ENCODINGS = 1, /* mask its base64, hexadecimal and URL forms as well */
};

/* Followed by name, variable and value, without NULs. */
struct secret_record {
	uint16_t name_bytes;
	uint16_t variable_bytes;
	uint32_t value_bytes;
	uint32_t flags; /* enum secret_record_flags */
};
_Static_assert(sizeof(struct secret_record) == 12, "wire");

/* Descriptors of `sandboxd-helper unseal`, beside WORKER_FD_POLICY (worker.h). */
enum helper_fd {
	HELPER_FD_REQUEST = 0, /* struct secret_request, then the end */
	HELPER_FD_RECORDS = 1, /* the pipe to the shim */
	HELPER_FD_STORE = 5,
	HELPER_FD_KEY = 6,        /* the file that the store's header asks for */
	HELPER_FD_HOST_KEY = 7,   /* the host's systemd credential key; /dev/null: none */
	HELPER_FD_GENERATION = 8, /* oldest store that is believed */
	HELPER_FD_REPORT = 9,     /* struct secret_report */
};
