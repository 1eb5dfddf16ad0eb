/*
 * A session that has, or had, a shim: its connection and what runs on it. The session object is the
 * domain's; this is the adapters' half of it (session->link).
 */
#pragma once

#include "base/list.h"

#include "supervisor/api/app.h"
#include "supervisor/api/link/shim_link.h"

struct live;
struct activity;
struct provider;
struct event_log;
struct rebuild;
struct suspend;
struct suspend_persist;
struct row_close;

enum activity_end {
	ACTIVITY_EXITED,   /* exit_info */
	ACTIVITY_FAILED,   /* failed */
	ACTIVITY_PUT_DONE, /* a file is in place */
	ACTIVITY_LOST,     /* the session ended first; no number */
	ACTIVITY_END_MAX_,
};

struct activity_result {
	enum activity_end end;
	const struct wire_exit *exit_info; /* ACTIVITY_EXITED */
	const struct wire_failed *failed;  /* ACTIVITY_FAILED */
	uint64_t number;                   /* to be settled; 0 for ACTIVITY_LOST */
};

/* What one kind of work does with what comes from the shim. `ended` is the last call: the activity
 * is out of the list and the kind frees it. Output must be settled (live_settle), now or later. */
struct activity_ops {
	void (*started)(struct activity *activity, int32_t pid); /* may be NULL */
	void (*output)(struct activity *activity, uint64_t number, bool is_stderr,
		       const uint8_t *data, size_t size);
	void (*taken)(struct activity *activity, const struct wire_taken *taken); /* may be NULL */
	/* What a file operation found. May be NULL. */
	void (*file_data)(struct activity *activity, const uint8_t *data, size_t size);
	void (*ended)(struct activity *activity, const struct activity_result *result);
};

/* First member of each kind. */
struct activity {
	struct list link; /* live->activities */
	const struct activity_ops *ops;
	struct live *live;
	uint32_t wire_job;
	int32_t pid;         /* in the session; 0: not known */
	char program[16];    /* argv[0] without its path, cut: a caller's word; "": none */
	uint64_t came_bytes; /* of output, since the last look (denials_output.c) */
};

enum live_redis {
	LIVE_REDIS_NONE,    /* not configured, or the server could not give one */
	LIVE_REDIS_PENDING, /* it is being made */
	LIVE_REDIS_READY,
};

struct live {
	struct list link;   /* app->lives or app->forgotten */
	struct list credit; /* app->crediting: numbers were settled in this turn; or alone */
	struct app *app;
	struct session *session;
	const struct provider *provider;
	struct shim_link *shim; /* NULL: not yet, or not any more */
	struct list activities;
	struct list event_streams; /* events.c */
	struct event_log *events;  /* events.c; NULL: none so far */
	struct list commands;      /* struct command (command.h), the oldest first */
	size_t command_bytes;      /* that are kept of them */
	usec_t output_since;       /* boottime of the last look at how much output came */
	struct list waiters;       /* struct end_waiter: told when nothing of the session is left */
	struct creation *creation;
	struct row_close *row_close;     /* session_close.c */
	struct list tree_waiters;        /* rebuild.c: requests that need a process tree */
	struct rebuild *rebuild;         /* under way, or how the last one failed */
	struct suspend *suspend;         /* suspend.c: under way */
	uint32_t suspend_steps;          /* counts what it asked for */
	struct snapshot_run *snapshot;   /* snapshot.c: one is made or put back; NULL */
	struct suspend_persist *persist; /* suspend_persist.c: under way */
	uint32_t n_persists;
	int persist_error;       /* of the last one that failed, until one succeeds */
	uint64_t persist_failed; /* the generation of that */
	usec_t persist_at;       /* boottime: not again before, unless somebody asks for it */
	json_t *staged; /* owned; reference of a file that has yet to go to the object store */
	uint64_t staged_generation;
	uint32_t n_resends;         /* in vain, up to a bound */
	usec_t used_at;             /* boottime: idle.c */
	usec_t made_at;             /* boottime */
	uint64_t believed_cpu_us;   /* since then, of a provider elsewhere: quotas.c */
	usec_t rebuilding_since;    /* boottime */
	uint32_t tree;              /* counts the trees of this session in this worker */
	uint32_t policy_generation; /* of the network policy that was made last */
	enum live_redis redis;      /* its user there */
	bool redis_over;            /* over its bound there: the user may not write */
	bool restored_waits;        /* for that: then those who wait for the tree go on */
	bool policy_in_force;
	bool policy_too_big;         /* the last one was, and its session was told */
	bool policy_owed;            /* it waits for the egress worker to be there, or to read */
	sd_event_source *lost_timer; /* its handle has ended: what follows; NULL */
	int lost_error;
	uint32_t engine_link; /* app->n_engine_links when its handle came */
	bool kill_asked;      /* and not answered yet */
	bool kill_later;      /* the shim ended by itself: only if nobody says so */
	bool adopted;
	/* Its handle ended with its provider's process, and what lives there was not said since. */
	bool is_away;
	bool is_parted; /* LAUNCH_PART was asked for, and LAUNCH_JOIN not answered since */
	/* Its row says that its tree is, or would be, half filled: nobody may go on with it. */
	bool is_incomplete;
	bool taken; /* it is another instance's by now: ends with the turn */
};

MUST_USE int live_new(struct app *app, struct session *session, struct live **ret_live);
struct live *live_free(struct live *live); /* nothing may be active; returns NULL */
static inline struct live *live_of(const struct session *session)
{
	return session->link;
}

/* fd becomes the link's. 0 or -errno. */
MUST_USE int live_connect(struct live *live, int fd);
/* The activity is in the list from now on; its number was given by shim_link_exec or _put. */
void live_add(struct live *live, struct activity *activity, const struct activity_ops *ops,
	      uint32_t wire_job);
/* The command is of that program. */
void live_name(struct live *live, uint32_t wire_job, const char *program);
/* Of the command whose first process that is, or NULL. */
const char *live_program(const struct live *live, int32_t pid);
void live_settle(struct live *live, uint64_t number);
/* The activity's client left: nothing more is heard of it, and it is ended. */
void live_give_up(struct activity *activity);
/* The `output` of a kind that has none, as a file that is put: settled at once. */
void activity_ignore_output(struct activity *activity, uint64_t number, bool is_stderr,
			    const uint8_t *data, size_t size);
/* Its handle has ended: the tree does, too, or its provider's process has. */
void live_lost(struct live *live, int error);
/* Its provider's process has ended, and with it the handle: as sessions_unlink. Not from inside a
 * callback of the link. */
void live_unlink(struct live *live);
/* End everything that runs with ACTIVITY_LOST. */
void live_end_all(struct live *live);
/* Nothing is left of the tree; nothing may be active. Not from inside a callback of the link. */
void live_drop_tree(struct live *live);
