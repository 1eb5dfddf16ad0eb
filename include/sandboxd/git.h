/*
 * sandbox-git: git's transport inside a session, with a credential that git never has.
 *
 *   sandbox-git GIT-ARGUMENT…      struct git_request and its texts on standard input
 *
 * It runs git, whose one allowed transport is the socket GIT_TRANSPORT_FD, and speaks smart HTTP
 * itself, to the URL of the request and to no other. Its exit status is git's, or one of enum
 * git_exit.
 */
#pragma once

#include <stdint.h>

#define GIT_REQUEST_MAGIC 0x53424749u

#define GIT_URL_MAX_BYTES      2048u
#define GIT_USERNAME_MAX_BYTES 255u
#define GIT_PASSWORD_MAX_BYTES 8192u
#define GIT_REF_MAX_BYTES      255u
#define GIT_CA_MAX_BYTES       (128ul * 1024)

/* What `url.<this>.insteadOf` makes of the request's URL: the descriptor and a word for git. */
#define GIT_TRANSPORT_FD  3
#define GIT_TRANSPORT_URL "fd::3/sandbox"

enum git_service {
	GIT_SERVICE_FETCH = 1, /* git-upload-pack, protocol version 2 */
	GIT_SERVICE_PUSH,      /* git-receive-pack; changes `ref` alone */
	GIT_SERVICE_MAX_,
};

/* Followed by the texts in the order of their sizes, without NUL. */
struct git_request {
	uint32_t magic;
	uint32_t service; /* enum git_service */
	uint32_t url_bytes;
	uint32_t username_bytes; /* 0 with password_bytes 0: no credential */
	uint32_t password_bytes;
	uint32_t ref_bytes; /* GIT_SERVICE_PUSH: refs/heads/… */
	uint32_t ca_bytes;  /* PEM; 0: the session's own authorities */
	uint32_t zero;
};
_Static_assert(sizeof(struct git_request) == 32, "wire");

enum git_exit {
	GIT_EXIT_REQUEST = 100,   /* the request is wrong, or memory is short */
	GIT_EXIT_AUTH = 101,      /* 401 or 403 */
	GIT_EXIT_NOT_FOUND = 102, /* 404 */
	GIT_EXIT_CONNECT = 103,   /* no connection, or it broke */
	GIT_EXIT_TLS = 104,       /* the server's certificate is not good */
	GIT_EXIT_REDIRECT = 105,  /* it leads to another host */
	GIT_EXIT_SERVER = 106,    /* any other answer */
	GIT_EXIT_PROTOCOL = 107,  /* no git server of this kind */
	GIT_EXIT_REF = 108,       /* git would do more than change the request's ref */
	GIT_EXIT_MAX_,
};
