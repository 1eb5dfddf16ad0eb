/*
 * The api worker as a whole: what main makes once and every part of the worker right of http/ and
 * link/ shares. One loop, one thread. What happens in a turn is written to the store in one
 * transaction at its end, then acknowledged to the shims, then answered.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/err.h"
#include "base/list.h"

#include "policy/image.h"
#include "sandboxd/launch.h"
#include "sandboxd/worker.h"
#include "supervisor/api/http/server.h"
#include "supervisor/api/jobs/job.h"
#include "supervisor/api/link/supervisor_client.h"
#include "supervisor/api/metrics/metrics.h"
#include "supervisor/api/metrics/readiness.h"
#include "supervisor/api/session/registry.h"
#include "supervisor/api/session/summary.h"
#include "supervisor/api/store/audit_file.h"
#include "supervisor/api/store/snapshot_store.h"
#include "supervisor/api/store/store.h"

#define APP_LAUNCH_TIMEOUT  (30 * USEC_PER_SEC)
#define APP_REQUEST_TIMEOUT (10 * USEC_PER_SEC)
#define APP_KILL_TIMEOUT    (30 * USEC_PER_SEC)
#define APP_REBUILD_TIMEOUT (60 * USEC_PER_SEC) /* longer than a launch may take */
#define APP_TICK            (5 * USEC_PER_SEC)
#define APP_HEARTBEAT       (15 * USEC_PER_SEC)
#define APP_MAX_STREAMS     1024u

enum app_server {
	APP_SERVER_CONTROL,
	APP_SERVER_OPERATOR,
	APP_SERVER_MAX_,
};

enum app_phase {
	APP_PHASE_GREETING, /* HELLO and ADOPT are under way; no socket is served */
	APP_PHASE_SERVING,
	APP_PHASE_STOPPING, /* nothing new is accepted; streams get their ends */
	APP_PHASE_LEAVING,  /* nothing new is accepted; sessions and tasks are the next worker's */
	APP_PHASE_MAX_,
};

struct app_counters {
	uint64_t n_created;
	uint64_t n_launch_failures;
	uint64_t n_ended;
	uint64_t n_tasks;
	uint64_t n_commands;
	uint64_t n_demotions; /* frozen sessions that gave their memory back */
	uint64_t n_resumes[SUSPENSION_RESUMED_MAX_];
	uint64_t n_snapshots_made;
	uint64_t n_snapshots_restored;
	uint64_t n_snapshots_not_made;
	uint64_t n_snapshots_not_restored;
	struct transfer_counters {
		uint64_t n_done;
		uint64_t n_failed;
	} transfers[S3_ACTION_MAX_];
};

struct canary;
struct celery;
struct egress_hub;
struct names;
struct platform;
struct provider;
struct snapshot_remote_sweep;

struct app {
	enum app_phase phase;
	sd_event *event;
	struct api_config *config; /* changed in place by a reload: readers keep their pointers */
	struct launch_config config_state;
	struct image policy;
	struct launch_hello facts;
	struct launch_facts service; /* as it is now */
	struct readiness readiness;
	struct metrics metrics;
	struct audit_file audit;
	struct snapshot_store snapshots;
	struct snapshot_keys *snapshot_keys; /* NULL: not read yet */
	struct list snapshot_runs;           /* snapshot.c */
	struct list transfers;               /* snapshot_remote.c */
	uint32_t n_transfers_running;
	const char *transfer_failure;               /* why the last one failed; NULL: it did not */
	struct snapshot_remote_sweep *remote_sweep; /* NULL: none is under way */
	usec_t remote_sweep_at;                     /* boottime: the next one, not before */
	uint64_t n_audit_skipped;                   /* refusals beyond the rate, not said so yet */
	usec_t refusal_due;    /* boottime: when the next refusal would come if they came evenly */
	uint64_t n_audit_owed; /* lines that were lost and not said so yet */
	struct registry registry;
	struct job_table tasks;
	struct names *names; /* NULL: a client of no server */
	struct store *store;
	struct supervisor_client *supervisor;
	struct supervisor_client *engine; /* provider_docker.c; NULL: none yet */
	uint32_t n_engine_links;
	bool engine_asked; /* what lives there, and it was not said: nothing is made meanwhile */
	sd_event_source *engine_waits; /* for the first of these at the start */
	void (*engine_linked)(struct app *app);
	struct egress_hub *egress;
	struct canary *canary;
	struct celery *celery;     /* NULL: not configured */
	struct platform *platform; /* NULL: none is configured */
	struct http_server *server[APP_SERVER_MAX_];
	struct http_counters http_counters;
	struct app_counters counters;
	struct summary_context summary;
	uint8_t *scratch;      /* of the shim links */
	struct list lives;     /* struct live */
	struct list forgotten; /* struct live: freed at the end of the turn */
	struct list crediting; /* struct live: acknowledged at the end of the turn */
	struct list streams;   /* struct task_stream */
	struct list cancels;   /* struct cancel_waiter */
	struct list command_streams;
	struct list event_streams; /* events.c */
	struct list file_watches;  /* file_watch.c */
	/* Output that waits for its command's end, in all answers. */
	size_t command_answer_bytes;
	size_t command_bytes; /* kept output of commands, of all sessions */
	struct list puts;     /* struct component_put, until the store has them */
	struct list airbyte;  /* struct asked, until the store has answered */
	struct list lookups;  /* task_lookup.c: wait for a task to appear */
	uint32_t n_lookups;
	sd_event_source *lookup_timer; /* NULL: none has waited yet */
	struct list adopting;          /* struct adoptee, between ADOPT and the first request */
	size_t adopts_from;            /* which of the providers is asked what lives */
	sd_event_source *deadline_timer;
	sd_event_source *tick_timer;
	sd_event_source *store_timer;
	sd_event_source *retention_timer;
	bool has_taken;          /* a session in lives is another instance's by now */
	uint32_t n_lease_checks; /* of sessions, after the lease was lost, not answered yet */
	usec_t lease_told;       /* lease.c: 0: nothing yet */
	bool counts_frames;      /* quotas: the store is telling them */
	usec_t stop_at;          /* boottime */
	uint8_t redis_key[32];   /* redis.c */
	usec_t redis_look_at;    /* boottime */
	struct id redis_after;   /* the last session whose user was looked for */
	usec_t redis_measure_at;
	bool redis_unmeasured;   /* it was said that nothing is measured */
	struct list redis_drops; /* redis.c: not answered yet */
	struct list kills_owed;  /* sessions.c: of what has no session here */
	struct buf redis_owed;   /* struct id: their keys could not be dropped yet */
	size_t max_descriptors;
	size_t n_descriptors_fixed;
};

/* Whom a request's answer waits for: survives the request. */
struct answer_to {
	struct http_server *server; /* NULL: nobody */
	uint64_t request;
};
#define ANSWER_TO_NULL ((struct answer_to){0})

struct request;
struct answer_to answer_to(const struct request *request);
struct request *answer_get(const struct answer_to *to); /* NULL: the client left */

/* All descriptors by number (worker.h); names is NULL or becomes the app's. Runs until the service
 * stops; the exit status. */
MUST_USE int app_run(struct api_config *config, struct image *policy, struct names *names);

/* sessions.c */

/* The one place where a session's state changes: applies the event and does what follows. */
void sessions_event(struct app *app, struct session *session, enum session_event event,
		    enum session_reason reason);
/* After HELLO: asks for what lives, adopts or cleans up, then calls app_serve. */
MUST_USE int sessions_adopt(struct app *app);
/* The provider's process has ended: of its sessions each loses its handle, and waits as a dormant
 * one for sessions_adopt_late. The provider must not be reachable. */
void sessions_unlink(struct app *app, const struct provider *provider);
/* What the provider says after that, or after the start: with more 1 of a sandbox that lives, fd
 * (or -1) is its handle and becomes ours; then once that this was all. */
void sessions_adopt_late(struct app *app, const struct provider *provider,
			 const struct launch_msg *answer, int fd);
void sessions_gone(struct app *app, const struct id *id, const struct launch_gone *gone);
/* Its provider, which was asked something of it, has nothing of it any more. gone: how it ended;
 * NULL: that is not known. */
void sessions_tree_gone(struct app *app, struct session *session, const struct launch_gone *gone);
void sessions_expire(struct app *app); /* and arms the timer for the next one */
/* For whoever changes a deadline on the way through the sessions: none but its own may be forgotten
 * there. */
void sessions_arm_deadline(struct app *app);
/* Asks again for the end of each session whose end was asked for and did not come, and ends trees
 * whose shim does not answer: requests wait for it. */
void sessions_end_again(struct app *app);
void sessions_drop_owed(struct app *app); /* the next worker finds them again */
/* Out of the registry at once; freed at the end of the turn. */
void sessions_forget(struct app *app, struct session *session);
/* The service stops: every tree ends, the rows stay open. That of a suspended one whose snapshot is
 * under way is left for sessions_stop_rest, which is called until none is. */
void sessions_stop_all(struct app *app);
void sessions_stop_rest(struct app *app, bool at_once);
size_t sessions_with_tree(const struct app *app); /* or with a rest of one */

/* session_writes.c */

/* A line of ours in log_summary, and in its row. */
void sessions_note(struct app *app, struct session *session, const char *code, const char *message);
void sessions_write_log(struct app *app, const struct session *session);
void sessions_write_status(struct app *app, const struct session *session);
/* Its rules and its variables. */
void sessions_write_egress(struct app *app, const struct session *session);
void sessions_write_registry(struct app *app, const struct session *session);
/* Every write about a session goes through one of these: they keep persisted and degraded true. */
store_done sessions_write_done(void);
void *sessions_write(struct app *app, const struct id *session);
/* What the store said of one write. session: NULL where it is gone. *is_degraded: of this write,
 * false before its first answer. */
void sessions_note_write(struct session *session, enum store_result result, bool *is_degraded);
/* End of a turn: sessions that are another instance's are ended here, without their rows. */
void sessions_drop_taken(struct app *app);

/* lease.c; after it: the supervisor hears until when sessions may run. */
void lease_tell(struct app *app);
/* The end of a stop: sessions that any other host can go on with. */
void lease_give_back(struct app *app);
/* A row that another program has written. 0 or -errno; the session is dormant. */
MUST_USE int sessions_adopt_row(struct app *app, const struct store_session *row);
void app_serve(struct app *app);

/* command_stream.c */

void command_streams_heartbeat(struct app *app, usec_t now);

/* tasks.c */

void tasks_next(struct app *app, struct session *session); /* start what may start */
void tasks_fail(struct app *app, struct session *session, const char *code, const char *message);
/* The worker ends and the next one goes on with them. */
void tasks_leave(struct session *session);
/* A task that an earlier worker left unended: it goes on where its session's tree lives, else it
 * ends with this code. */
void tasks_take(struct app *app, const struct store_task *task, const char *code,
		const char *message);
/* The session is another instance's by now, and so is what its tasks say. */
void tasks_give_up(struct app *app, struct session *session);
/* Tells running tasks that their session expires soon. */
void tasks_warn(struct app *app);
/* The session's shim has answered for what runs: its tasks go on, in order. */
void tasks_go_on(struct app *app, struct session *session);
void tasks_heartbeat(struct app *app, usec_t now);
void tasks_wake_all(struct app *app);
void task_lookups_drop(struct app *app);

/* airbyte.c: as components_drop(). */
void airbyte_drop_asked(struct app *app);
