/*
 * Snapshots of a session's workspace: made by sandbox-archive inside (sandboxd/archive.h), carried
 * as the output of a command and written as it comes, so that nothing is held here but what is on
 * its way; and put back the same way. Everything inside is hostile: what a snapshot holds is
 * believed by nobody, only that it is what was written.
 *
 * A reference is an object for a row: as of store/snapshot_store.h, and with `include` and
 * `exclude` of the workspace as it was.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/id.h"

#include "sandboxd/worker.h"

struct app;
struct buf;
struct live;
struct request;
struct session;

struct snapshot_result {
	/*
	 * 0; -EPIPE: the tree ended; -ECANCELED; -ETIME; -EFBIG: more than one may have; -EDQUOT:
	 * more than the organisation may keep; -ENOSPC: no room where it goes; -ENODATA: nothing is
	 * at the paths; -EROFS: where it goes cannot be written; -ENOENT: its file is not here;
	 * -EBADMSG: it is not what was written; -EEXIST: there is something already; -ENOTSUP: it
	 * is in an object store, and none is configured; -EREMOTEIO: that cannot be used
	 * now; -ENXIO: it is not in there; -ENOKEY: there is no key to encrypt it with, or not the
	 * one that it was encrypted with; other -errno.
	 */
	int error;
	struct id id;           /* of one that was made, and */
	json_t *reference;      /* its reference; borrowed */
	uint64_t bytes;         /* of its file */
	uint64_t content_bytes; /* of files, without holes */
	uint64_t n_entries;
	uint64_t n_left_out; /* sockets and the like, what cannot be read, other mounts */
	uint64_t n_changed;  /* files that were written to meanwhile */
};
/* session: NULL: it is gone. Never called from inside the call that began it, or the link. */
typedef void (*snapshot_done)(void *userdata, struct session *session,
			      const struct snapshot_result *result);

/* Both: 0 and done follows, once; -EBUSY: one of the session is under way; -EPIPE: it has no tree;
 * -ENOSYS: a tree of an earlier release; -EDQUOT as above; -errno. */
MUST_USE int snapshot_make(struct live *live, snapshot_done done, void *userdata);
/* Into folders where nothing of it is, or in place of what is there. The file is read twice: it
 * is checked before the first byte goes in. owner: the sandbox whose row has the reference, and
 * whose file it has to be. */
MUST_USE int snapshot_restore(struct live *live, const struct id *owner, json_t *reference,
			      bool replaces, snapshot_done done, void *userdata);
/* done follows, when its program has ended. */
void snapshot_cancel(struct live *live);
/* Of that sandbox; what is not there is as good. 0 or -errno. */
MUST_USE int snapshot_remove_reference(struct app *app, const struct id *owner, json_t *reference);

/* Those of a session whose row is closed. */
void snapshots_remove(struct app *app, const struct id *owner, const json_t *references);
/* The keys of the configuration, which are overwritten there, in place of the former ones. 0 or
 * -ENOMEM. */
MUST_USE int snapshots_take_keys(struct app *app, struct api_config *config);
/* {id: {configured, snapshots}} of every key that is configured or that a row speaks of. New. */
json_t *snapshot_keys_describe(const struct app *app);
/* A line of the log for each of them that is not configured. */
void snapshots_tell_missing_keys(const struct app *app);
/* For a reference (NULL: none is needed) of that session's. False: the request was answered. */
bool snapshot_key_is_there(struct request *request, const struct session *owner, json_t *reference);
/* 0 or -errno. */
MUST_USE int snapshots_start(struct app *app);
/* Files that no row speaks of any more. */
void snapshots_sweep(struct app *app);
MUST_USE int snapshots_append_metrics(struct buf *text, const struct app *app);
/* At the end: what is under way is -ECANCELED. While the requests that wait for it are there. */
void snapshots_give_up(struct app *app);
void snapshots_stop(struct app *app);
