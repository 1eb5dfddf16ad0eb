/*
 * Inside of struct session: for the launch engine's own files only.
 */
#pragma once

#include "base/list.h"

#include "supervisor/host_state.h"
#include "supervisor/netns.h"
#include "supervisor/session.h"
#include "supervisor/template_use.h"

#define SESSION_NO_CLOCK (-1)

struct session {
	struct list link; /* host->sessions, then host->dead */
	struct host *host;
	struct id id;
	char name[ID_TEXT_BYTES]; /* of its groups, and with ".sock" of its socket */
	struct plan plan;
	struct session_events events;
	void *userdata;
	enum session_state state;

	uint8_t usr_set;      /* of usr_copies.h */
	struct userns userns; /* fd only until the child has it; base until the end */
	int clock;            /* index in host->clocks, SESSION_NO_CLOCK */
	bool has_group;
	bool has_socket;
	bool has_record;
	bool is_adopted; /* no child of ours: it is watched, not reaped */
	bool is_held;    /* session_hold; while STARTING it has no effect yet */
	uint64_t group_id;
	int record_fd;          /* until it is live */
	int listen_fd;          /* until the clone */
	int group_fd;           /* until the clone */
	struct sklookup lookup; /* as well */
	int plan_fd;            /* until it is live: the child sends its sockets through it */
	int net_fd[NETNS_FDS];  /* LIVE and FROZEN; -1: it has no network */
	char request_id[LAUNCH_REQUEST_BYTES]; /* "": none, or it was adopted */
	int secrets_fd;                        /* not ours: while the steps run */
	const char *template;                  /* as well; "": none */
	struct template_use template_use;      /* until the clone */
	int child_plan_fd;                     /* until the clone, as the next */
	int child_ready_fd;
	int ready_fd; /* until the shim is confined */
	int pid;
	int pid_fd;
	int events_fd; /* cgroup.events, while ENDING */
	struct loop_source *pid_source;
	struct loop_source *ready_source;
	struct loop_source *events_source;
	struct loop_source *timer;
	int mover_fd; /* session_part.c: its processes are being moved; pidfd */
	struct loop_source *mover_source;
	session_parted *parted; /* told at its end, or NULL */
	void *parted_userdata;
	bool is_parted;

	bool announced; /* `started` with success was told */
	bool kill_asked;
	bool reaped;
	bool drained;
	uint32_t n_retries; /* of removing the groups */
	int wait_status;
	uint64_t cpu_us; /* at its end, as the next two */
	uint32_t oom_kills;
	uint32_t forks_refused;
	enum launch_error error; /* of the launch */
	struct err err;

	usec_t begun_at;
	struct launch_trace trace;
	struct launch_proof proof;
};

/* Add a line to the trace; silently full. */
void session_trace_step(struct session *session, const char *name, uint32_t us, uint32_t side);
uint32_t session_elapsed_us(const struct session *session);

/*
 * steps_parent.c: run the parent's steps up to the plan message. On failure err names the step;
 * session->pid_fd >= 0 then says that a child exists and must be ended from the loop.
 */
MUST_USE int steps_parent_run(struct session *session, enum launch_error *ret_error,
			      struct err *err);
/* Take back what the steps made and no child holds: socket, groups, ids. */
MUST_USE int steps_parent_undo(struct session *session);

/* Take the sockets that the child has made. 0 or -errno; what came is closed by the undo. */
MUST_USE int steps_parent_take_net(struct session *session);
void session_close_net(struct session *session);

struct sockaddr_un;
/* Where the session's shim listens. 0 or -ENAMETOOLONG. */
MUST_USE int session_socket_address(const struct session *session, struct sockaddr_un *address);

/* Without memory: NULL. STARTING, nothing open, in no list. */
struct session *session_alloc(struct host *host, const struct plan *plan);
struct record;
/* What the session's record says, as it is now. */
void session_fill_record(const struct session *session, struct record *ret_record);

/* Test builds: end this process if it was asked to die here. */
void session_crash_point(const struct session *session, const char *step);

/* session_part.c: end what moves its processes. session.c goes on when it has ended. */
void session_part_stop(struct session *session);
void session_moved(struct session *session);

/* session.c: callbacks that the `watch` step puts into the loop. */
int session_on_pid(void *userdata, uint32_t events);
int session_on_ready(void *userdata, uint32_t events);
int session_on_timer(void *userdata, uint32_t events);
