/*
 * Where snapshots are kept: a folder in the worker's state directory.
 *
 *   snapshots/SANDBOX-ID.tar.zst        whole, on the disk, and never written to again
 *   snapshots/SANDBOX-ID.tar.zst.enc    the same, encrypted (snapshot_cipher.h)
 *   snapshots/SANDBOX-ID….part          being written, or left by a worker that died
 *
 * A name is made from the sandbox's id and the snapshot's alone; what is encrypted is bound to it.
 * A reference is what a row keeps: {"kind":"dir-tar","name":…,"bytes":…,"digest":…}, and "key" with
 * the id of the key of one that is encrypted; the digest, BLAKE2b-256 in hexadecimal, is of the
 * bytes as they are in the file, and is looked at before what was read of it is believed.
 *
 * Of one in the object store (snapshot_remote.h) it is {"kind":"s3-tar","key":…,"bytes":…,
 * "digest":…}, and "encryption_key"; the last part of the object's key is the name. The platform's
 * own rows have the first two alone, of a tar in gzip that nothing tells more of.
 */
#pragma once

#include <jansson.h>
#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"

#include "sandboxd/s3.h"
#include "supervisor/api/store/snapshot_cipher.h"

#define SNAPSHOT_NAME_BYTES   96
#define SNAPSHOT_DIGEST_BYTES 32
#define SNAPSHOT_DIGEST_TEXT  (2 * SNAPSHOT_DIGEST_BYTES + 1)

struct snapshot_store {
	int dir_fd; /* owned; -1: none */
};

struct snapshot_reference {
	char name[SNAPSHOT_NAME_BYTES];
	uint64_t bytes;
	uint8_t digest[SNAPSHOT_DIGEST_BYTES];
	char key_id[SNAPSHOT_KEY_ID_BYTES]; /* "": it is not encrypted */
	char key[S3_KEY_BYTES];             /* of its object; "": it is a file of the folder */
	bool is_unknown; /* the object is the platform's: no name, size or digest */
};

/* state_fd stays the caller's. 0 or -errno. */
MUST_USE int snapshot_store_open(struct snapshot_store *store, int state_fd);
void snapshot_store_close(struct snapshot_store *store);

/* A file while it is written or read. */
struct snapshot_file {
	const struct snapshot_store *store;
	int fd;
	struct snapshot_reference reference;
	uint64_t max_bytes;
	uint64_t flushed; /* on the way to the disk */
	uint64_t synced;  /* there */
	crypto_generichash_state hash;
	struct snapshot_sealed *sealed; /* owned; NULL: it is not encrypted */
};
#define SNAPSHOT_FILE_NULL ((struct snapshot_file){.fd = -1})

/* key: NULL: it is not encrypted. 0; -EEXIST: there is one of that name; -errno. */
MUST_USE int snapshot_write_begin(struct snapshot_file *file, const struct snapshot_store *store,
				  const struct id *sandbox, const struct id *snapshot,
				  const struct snapshot_key *key, uint64_t max_bytes);
/* 0; -EDQUOT: more than max_bytes; -ENOSPC; -errno. */
MUST_USE int snapshot_write(struct snapshot_file *file, const void *data, size_t size);
/* Nothing more comes. As snapshot_write. */
MUST_USE int snapshot_write_last(struct snapshot_file *file);
/* Then: some more of it is on the disk, so that the end has little to wait for. 1: there is more;
 * 0; or -errno. */
MUST_USE int snapshot_write_sync(struct snapshot_file *file);
/* All of it is on the disk under its name, and file->reference says what it is. 0 or -errno. */
MUST_USE int snapshot_write_end(struct snapshot_file *file);

/* fd: what is read, from its beginning, which becomes the file's. key: NULL, or that of the
 * reference. 0; -EBADMSG: another size than the reference says, or not encrypted with that key;
 * -errno. */
MUST_USE int snapshot_read_begin(struct snapshot_file *file,
				 const struct snapshot_reference *reference,
				 const struct snapshot_key *key, int fd);
/* The file of a reference, for that: a descriptor, or -errno. */
MUST_USE int snapshot_open(const struct snapshot_store *store,
			   const struct snapshot_reference *reference);
/* A new file of the folder, without a name: a descriptor, or -errno. */
MUST_USE int snapshot_new_unnamed(const struct snapshot_store *store);
/* Bytes of what was written; 0: it was read to its end, and is what the reference says; -EBADMSG:
 * it is not. */
MUST_USE ssize_t snapshot_read(struct snapshot_file *file, void *data, size_t size);

/* At any time, also after a failure: a part that did not become whole is removed. */
void snapshot_file_done(struct snapshot_file *file);
/* What is not there is as good. After a crash it may be there again, and is swept. 0 or -errno. */
MUST_USE int snapshot_remove(const struct snapshot_store *store, const char *name);

/* Each file of the folder: whether it is whole, whose it is and when it was written. False: it is
 * to be removed. Returns how many were, or -errno. */
struct snapshot_entry {
	const char *name;
	struct id sandbox;
	bool is_part;
	usec_t written_at; /* realtime */
};
typedef bool (*snapshot_seen)(void *userdata, const struct snapshot_entry *entry);
MUST_USE int snapshot_sweep(const struct snapshot_store *store, snapshot_seen seen, void *userdata);

/* New reference, or NULL without memory. */
json_t *snapshot_reference_format(const struct snapshot_reference *reference);
/* sandbox: whose it has to be; others may write rows, too. The platform's objects do not say whose
 * they are. 0; -EBADMSG: none of ours, or another sandbox's. */
MUST_USE int snapshot_reference_parse(json_t *object, const struct id *sandbox,
				      struct snapshot_reference *ret_reference);
/* The sandbox of a file's name, or of the last part of an object's key. 0 or -EBADMSG. */
MUST_USE int snapshot_name_parse(const char *name, struct id *ret_sandbox);
