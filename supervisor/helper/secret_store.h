/*
 * The sealed store of secrets as one file: a header, rows of fixed size, sealed values. Pure but
 * for libsodium's randomness; files and locks are seal.c's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/err.h"

#include "sandboxd/secret.h"

#define SECRET_STORE_MAGIC         0x53435354u
#define SECRET_STORE_VERSION       1
#define SECRET_STORE_MAX_BYTES     (16ul * 1024 * 1024) /* of values */
#define SECRET_FILE_MAX_BYTES      (20ul * 1024 * 1024) /* with rows and header */
#define SECRET_KEY_BYTES           32
/* Encoded forms are searched as values of their own. */
#define SECRET_ENCODINGS_MAX_BYTES 4096

/* Who keeps the key: what the header asks for. */
enum secret_key_kind {
	SECRET_KEY_FILE = 1, /* a file of ours beside the store */
	SECRET_KEY_HOST = 2, /* the host's key of systemd's credentials */
};

struct secret_key {
	uint8_t bytes[SECRET_KEY_BYTES];
};

struct secret_store_header {
	uint32_t magic;
	uint16_t version;
	uint16_t key_kind; /* enum secret_key_kind */
	uint32_t n;
	uint32_t row_bytes;
	uint64_t generation; /* one more with each write */
	uint8_t mac[32];     /* of the above */
};
_Static_assert(sizeof(struct secret_store_header) == 56, "a file format");

struct secret_row {
	char name[SECRET_NAME_BYTES]; /* NUL padded, as the other texts */
	char variable[SECRET_NAME_BYTES];
	uint8_t flags; /* enum secret_record_flags */
	uint8_t n_workspaces;
	uint32_t value_bytes;
	uint64_t offset;     /* of the sealed value in the file */
	uint64_t created_at; /* seconds since 1970 */
	uint8_t nonce[24];
	uint8_t tag[16];
	char workspace[SECRET_WORKSPACES_MAX][IDENTITY_MAX + 1];
	uint8_t mac[32]; /* of the above, the row's place and the header's generation */
};
_Static_assert(sizeof(struct secret_row) == 1408, "a file format");

struct secret_store {
	const uint8_t *data; /* the whole file; not owned */
	size_t size;
	struct secret_store_header header;
	struct secret_key seal_key;
	struct secret_key mac_key;
};

/* Kind of key that a file asks for, before it is opened: an enum secret_key_kind, or -EBADMSG. An
 * empty file: 0. */
MUST_USE int secret_store_key_kind(const uint8_t *data, size_t size);

/*
 * Look at a file of `size` bytes; an empty one is an empty store. oldest: the generation that was
 * written last. 0; -EBADMSG: the header was changed, or the key is another; -ESTALE: an older file
 * lies in its place.
 */
MUST_USE int secret_store_open(struct secret_store *store, const uint8_t *data, size_t size,
			       const struct secret_key *key, uint64_t oldest);
void secret_store_close(struct secret_store *store); /* wipes the keys */

/* Row i. 0; -EBADMSG: it was changed, is cut off, or is an older one put back; *ret_row then holds
 * what is there, printable at most in its name. */
MUST_USE int secret_store_row(const struct secret_store *store, uint32_t i,
			      struct secret_row *ret_row);
/* The row of that name; as secret_store_row, or -ENOENT. */
MUST_USE int secret_store_find(const struct secret_store *store, const char *name, uint32_t *ret_i,
			       struct secret_row *ret_row);
/* value: row->value_bytes of room. 0 or -EBADMSG. */
MUST_USE int secret_store_unseal(const struct secret_store *store, const struct secret_row *row,
				 uint8_t *value);
bool secret_row_usable(const struct secret_row *row, const struct secret_request *request);

struct secret_change {
	const char *name;
	const struct secret_row *row; /* NULL: removed only */
	const uint8_t *value;
};

/*
 * The file that follows: all rows but that of the changed name, and its row, if it has one. The
 * row's name, variable, flags, workspaces, value_bytes and created_at are the caller's. A damaged
 * row stays damaged, by its name. 0; -ENOSPC: too many, or too large together; -ENOMEM.
 */
MUST_USE int secret_store_write(const struct secret_store *store, enum secret_key_kind kind,
				const struct secret_change *change, struct buf *ret_file,
				struct err *err);
