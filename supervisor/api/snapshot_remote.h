/*
 * The object store of snapshots. A snapshot is a file of this host first and goes there behind; to
 * be put back it is fetched into a file that has no name. What speaks to the store is a helper of
 * the supervisor's, one for each job (sandboxd/s3.h): its credential is never here.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/id.h"

#include "sandboxd/s3.h"

struct app;
struct buf;
struct session;
struct snapshot_reference;
struct snapshot_transfer;

/*
 * error: 0; -EREMOTEIO: not now; -ENXIO: the object is not there; -EBADMSG: it has another size;
 * -EFBIG: it is larger than a snapshot may be; -ENOTSUP: no store is configured; -ENOSPC, -EROFS:
 * its file on this host; -EPIPE: the supervisor is gone; -ECANCELED: the worker ends. reference: of
 * what was sent; borrowed. Never called from inside the call that began it.
 */
typedef void (*snapshot_transferred)(void *userdata, int error, const struct s3_report *report,
				     json_t *reference);

/* Snapshots that are made now go there. */
bool snapshot_goes_away(const struct app *app);
/*
 * The file of a reference of this host's goes there, and the reference that comes back says so; the
 * file is then gone. 0 and done follows once, unless it is cancelled; -ENOENT: there is no such
 * file; -errno. *ret_transfer until then.
 */
MUST_USE int snapshot_upload(struct app *app, const struct id *owner, json_t *reference,
			     snapshot_transferred done, void *userdata,
			     struct snapshot_transfer **ret_transfer);
/* One of this sandbox's is on its way there, or waits for its turn. */
bool snapshot_is_sent(const struct app *app, const struct id *owner);
/* Of files on their way there of all sessions for which counts(session, asker) is true, but for
 * those that are staged (struct live). */
uint64_t snapshots_sent_bytes(const struct app *app, const struct session *asker,
			      bool (*counts)(const struct session *session,
					     const struct session *asker));
/* Into *ret_fd, a new file without a name, the caller's, whose content is there with done. As
 * above.
 */
MUST_USE int snapshot_fetch(struct app *app, const struct snapshot_reference *reference,
			    snapshot_transferred done, void *userdata, int *ret_fd,
			    struct snapshot_transfer **ret_transfer);
/* struct s3_object of each object of this instance's into *ret_fd, as above; with an error, some of
 * them. It is not cancelled. */
MUST_USE int snapshot_list(struct app *app, snapshot_transferred done, void *userdata, int *ret_fd);
/* done does not follow. Accepts NULL, returns NULL. */
struct snapshot_transfer *snapshot_transfer_cancel(struct snapshot_transfer *transfer);
/* Nobody waits for it: what stays is found by snapshots_sweep_remote where it is ours. */
void snapshot_remove_remote(struct app *app, const char *key);
/* Objects of this instance that no row speaks of any more, and uploads that were never ended. */
void snapshots_sweep_remote(struct app *app);
/* What it is about is given up. */
void snapshots_sweep_remote_end(struct app *app);
/* {store, failure}: where snapshots go, and why the object store did not do what it was asked last.
 * New. */
json_t *snapshot_store_describe(const struct app *app);
MUST_USE int snapshots_append_remote_metrics(struct buf *text, const struct app *app);
/* Nothing of it goes on: -ECANCELED. */
void snapshots_drop_remote(struct app *app);
