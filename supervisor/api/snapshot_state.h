/*
 * What the parts of snapshots share: one that is being made or put back.
 */
#pragma once

#include "supervisor/api/live.h"
#include "supervisor/api/snapshot.h"
#include "supervisor/api/snapshot_remote.h"
#include "supervisor/api/store/snapshot_store.h"

enum snapshot_phase {
	SNAPSHOT_PHASE_FETCH,  /* restore: its object becomes a file of this host */
	SNAPSHOT_PHASE_CHECK,  /* restore: the file is read for its digest */
	SNAPSHOT_PHASE_RUN,    /* the program runs */
	SNAPSHOT_PHASE_SYNC,   /* made: it goes to the disk, some of it in each turn */
	SNAPSHOT_PHASE_RETIRE, /* the next turn says how it ended */
};

struct snapshot_run {
	struct activity activity;
	struct list link; /* app->snapshot_runs */
	struct app *app;
	struct id session;
	struct id owner; /* put back: whose it is */
	uint32_t tree;   /* of the session */
	enum snapshot_phase phase;
	bool makes;
	bool replaces;
	bool input_ended;
	int error; /* the first one */
	struct snapshot_file file;
	struct snapshot_reference parsed;   /* put back */
	struct snapshot_transfer *transfer; /* FETCH */
	int fetched_fd;                     /* the object; -1: it is a file of the folder */
	json_t *reference;
	struct buf said; /* on standard error */
	uint64_t sent;
	uint64_t taken;
	sd_event_source *turn;
	struct snapshot_result result;
	snapshot_done done;
	void *userdata;
};

/* 1; 0: it is not encrypted; -ENOKEY: it has to be. */
MUST_USE int snapshot_key_to_write(const struct live *live, struct snapshot_key *ret_key);
/* The same of one that is read; -ENOKEY: not that one. */
MUST_USE int snapshot_key_to_read(const struct app *app, const struct session *owner,
				  const struct snapshot_reference *reference,
				  struct snapshot_key *ret_key);
/* How much of one may be written. 0; -EDQUOT: the organisation's quota is full. */
MUST_USE int snapshot_room(const struct live *live, uint64_t *ret_max);
/* Each began where it had room; all of them together may not. session: the run's. */
MUST_USE bool snapshot_is_over_quota(const struct snapshot_run *run, const struct session *session);
/* For so long a row that speaks of what is kept may be on its way, or come back from another host.
 * session: NULL: it is none of this host's. */
usec_t snapshot_sweep_age(const struct app *app, const struct session *session);
