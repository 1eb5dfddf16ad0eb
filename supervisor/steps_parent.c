/*
 * The supervisor's half of a launch: one table, run in one go, without waiting for the child.
 *
 * The order has reasons. The socket is bound and the record is complete before the clone, so that
 * whoever finds the session's group later also finds both. The groups have their limits before
 * anything can be in them. The plan lies in the socket when the child is cloned, so that the child
 * need not sleep for it. The clone goes straight into the v2 group, so that cgroup.kill reaches the
 * child and all it forks from its first instruction on (E3); the v1 groups, made while the child
 * makes its namespaces, it joins itself, before it makes anything that they should count.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "sandboxd/wire.h"
#include "supervisor/prove.h"
#include "supervisor/record.h"
#include "supervisor/session_state.h"
#include "supervisor/weaken.h"

/* The shim takes one connection at a time; while it is frozen it takes none, and each api worker
 * that dies meanwhile leaves a dead one here. */
#define LISTEN_BACKLOG   1024
#define START_TIMEOUT_US (10 * USEC_PER_SEC)

static int step_user_ids(struct session *session, struct err *err)
{
	return userns_take(&session->host->reserve, &session->userns, err);
}

int session_socket_address(const struct session *session, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	/* The runtime directory is no longer below our root: through its descriptor. */
	return str_format(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/%s.sock",
			  session->host->sockets_fd, session->name);
}

/* Only where layers are idmapped at all is the session's root an owner that matters. */
static int step_template(struct session *session, struct err *err)
{
	const struct template_wish wish = {
		.name = session->template,
		.id_base = session->userns.base,
		.userns_fd = session->host->probes & KERNEL_STATE_IDMAP ? session->userns.fd : -1,
	};

	if (wish.name[0] == '\0')
		return 0;
	return template_use_take(&wish, &session->template_use, err);
}

static int step_listener(struct session *session, struct err *err)
{
	struct sockaddr_un address;

	int r = session_socket_address(session, &address);
	if (r < 0)
		return r;
	session->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (session->listen_fd < 0)
		return err_fail(err, -errno, "listener", "socket");
	if (bind(session->listen_fd, &address, sizeof(address)) < 0)
		return err_fail(err, -errno, "listener", "bind");
	session->has_socket = true;
	if (listen(session->listen_fd, LISTEN_BACKLOG) < 0)
		return err_fail(err, -errno, "listener", "listen");
	return 0;
}

static int step_group(struct session *session, struct err *err)
{
	struct stat st;
	int r = cgroup_make(&session->host->cgroup, session->name, &session->group_fd);

	if (r < 0)
		return err_fail(err, r, "group", "make the v2 group");
	session->has_group = true;
	if (fstat(session->group_fd, &st) < 0)
		return err_fail(err, -errno, "group", "stat the v2 group");
	session->group_id = st.st_ino;
	return 0;
}

void session_fill_record(const struct session *session, struct record *ret_record)
{
	*ret_record = (struct record){
		.magic = RECORD_MAGIC,
		.version = RECORD_VERSION,
		.size = sizeof(*ret_record),
		.group_id = session->group_id,
		.born_at_us = session->begun_at,
		.id_base = session->userns.base,
		.state = RECORD_STATE_STARTING,
		.wire_version = WIRE_VERSION,
		.release = SANDBOXD_VERSION,
		.plan = session->plan,
	};
	_Static_assert(sizeof(SANDBOXD_VERSION) <= RECORD_RELEASE_BYTES, "fits with its NUL");
	memcpy(ret_record->instance, session->host->idblock.instance, RECORD_INSTANCE_BYTES);
}

static int step_record(struct session *session, struct err *err)
{
	struct record record;

	session_fill_record(session, &record);
	session->record_fd = record_write(session->host->sockets_fd, session->name, &record);
	if (session->record_fd < 0)
		return err_fail(err, session->record_fd, "record", "write");
	session->has_record = true;
	return 0;
}

static void take_clock(struct session *session)
{
	struct host *host = session->host;

	for (int i = 0; i < HOST_CLOCKS; i++) {
		if (host->clocks_used & (1ull << i))
			continue;
		host->clocks_used |= 1ull << i;
		host->clocks[i] = (struct steps_clock){0};
		session->clock = i;
		return;
	}
}

/* What the child has a copy of, and the supervisor no further use for. */
static void close_child_ends(struct session *session)
{
	session->listen_fd = fd_close(session->listen_fd);
	session->group_fd = fd_close(session->group_fd);
	session->child_plan_fd = fd_close(session->child_plan_fd);
	session->child_ready_fd = fd_close(session->child_ready_fd);
	template_use_close(&session->template_use);
	sklookup_close(&session->lookup);
}

static uint32_t shim_flags(const struct policy_profile *profile, bool has_template)
{
	uint32_t flags = profile->root == POLICY_ROOT_ALLOWED ? SHIM_PARAMS_ROOT_COMMANDS : 0;

	if (has_template)
		flags |= SHIM_PARAMS_TEMPLATE;
	if (weakened(WEAKEN_CAPS) || weakened(PLANT_CAP))
		flags |= SHIM_PARAMS_WEAK_CAPS;
	if (weakened(PLANT_ROOT_CAP))
		flags |= SHIM_PARAMS_WEAK_ROOT_CAP;
	if (weakened(PLANT_FD))
		flags |= SHIM_PARAMS_WEAK_FD;
	if (weakened(PLANT_LANDLOCK))
		flags |= SHIM_PARAMS_WEAK_LANDLOCK;
	return flags;
}

/* Test builds: what fails is a session of the test's. */
static const char *fail_step_of(const struct session *session)
{
	return session->plan.flags & PLAN_CANARY ? NULL : session->host->fail_step;
}

/* Where copies cannot be idmapped as their originals are, they would seem to be nobody's. */
static uint8_t choose_usr_set(struct session *session, uint32_t idmap)
{
	struct host *host = session->host;
	bool differ = (idmap & KERNEL_USR_IDMAP) && !(idmap & KERNEL_TMPFS_IDMAP);

	if (differ || !usr_copies_current(&host->usr_mask.copies, "/u"))
		return 0;
	return usr_copies_take(&host->usr_use);
}

/* Everything the child needs, as values: it formats, looks up and allocates nothing. */
static int prepare_child(struct session *session, struct steps_child *child)
{
	struct host *host = session->host;
	const struct plan *plan = &session->plan;
	const struct policy_profile *profile = image_profile(&host->image, plan->profile);
	bool has_template = session->template_use.tree_fd >= 0;

	session->lookup = lookup_reserve_take(&host->lookups);
	*child = (struct steps_child){
		.expected = {.plan = *plan,  .id_base = session->userns.base},
		.params =
			{
                             .magic = PLAN_MAGIC,
                             .version = PLAN_VERSION,
                             .size = sizeof(struct shim_params),
                             .user_id = SESSION_USER_ID,
                             .group_id = SESSION_USER_ID,
                             .max_files = plan->max_files,
                             .flags = shim_flags(profile, has_template),
                             .landlock_abi = host->landlock_abi,
                             .ring_bytes = (uint64_t)SHIM_RING_BYTES,
			     },
		.begun_at = session->begun_at,
 /* The last one is scratch for launches beyond the traced ones. */
		.clock = &host->clocks[session->clock == SESSION_NO_CLOCK ? HOST_CLOCKS
									  : session->clock],
		.plan_fd = session->child_plan_fd,
		.parent_plan_fd = session->plan_fd,
		.ready_fd = session->child_ready_fd,
		.listen_fd = session->listen_fd,
		.secrets_fd = session->secrets_fd,
		.policy_fd = host->session_policy_fd[plan->profile],
		.loader_fd = plan->flags & PLAN_CANARY ? host->canary_fd : host->loader_fd,
		.git_fd = host->git_fd,
		.archive_fd = host->archive_fd,
		.template_fd = session->template_use.record_fd,
		.shim_fd = host->shim_fd,
		.ipv6 = host->ipv6,
		.lookup = session->lookup,
		.fail_step = fail_step_of(session),
		.userns_fd = -1,
		.params_fd = -1,
	};
	/* Nobody else can be an owner that matters. */
	if (profile->root == POLICY_ROOT_ALLOWED)
		child->idmap = host->probes & (KERNEL_USR_IDMAP | KERNEL_TMPFS_IDMAP);
	memcpy(child->params.session, plan->session, ID_BYTES);
	child->cgroup = &host->cgroup;
	int r = str_format(child->tasks, sizeof(child->tasks), "%s/tasks", session->name);
	if (r < 0)
		return r;
	r = mountns_prepare(&child->mountns, plan, session->userns.base,
			    profile->proc == POLICY_PROC_SUBSET, &host->proc_mask);
	if (r < 0)
		return r;
	child->mountns.template_fd = session->template_use.tree_fd;
	if (has_template)
		return 0;
	session->usr_set = choose_usr_set(session, child->idmap);
	return mountns_prepare_usr(&child->mountns, session->usr_set);
}

/* Barrier, data and descriptor in one message. It waits for the child, not the child for it: a
 * process that sleeps and is woken again costs more than everything the parent does meanwhile. */
static int step_plan(struct session *session, struct err *err)
{
	struct steps_plan plan = {.plan = session->plan, .id_base = session->userns.base};
	int plan_fds[2] = {-1, -1};
	int ready_fds[2] = {-1, -1};

	int r = sockmsg_pair(plan_fds, 0);
	if (r < 0)
		return err_fail(err, r, "send-plan", "socketpair");
	session->plan_fd = plan_fds[0];
	session->child_plan_fd = plan_fds[1];
	if (pipe2(ready_fds, O_CLOEXEC) < 0)
		return err_fail(err, -errno, "send-plan", "pipe");
	session->ready_fd = ready_fds[0];
	session->child_ready_fd = ready_fds[1];
	r = sockmsg_send(session->plan_fd, &plan, sizeof(plan), &session->userns.fd, 1);
	if (r < 0)
		return err_fail(err, r, "send-plan", "send");
	session->userns.fd = fd_close(session->userns.fd);
	return 0;
}

/*
 * The PID namespace; the others are the child's to make, but for user (joined later, prepared).
 * exit_signal 0: no SIGCHLD, and no wait() of anybody else can reap a session.
 */
static int step_clone(struct session *session, struct err *err)
{
	struct steps_child child;
	int pid_fd = -1;

	int r = prepare_child(session, &child);
	if (r < 0)
		return err_fail(err, r, "clone", "prepare the child");
	struct clone_args args = {
		.flags = (uint64_t)(CLONE_NEWPID | CLONE_PIDFD) | CLONE_INTO_CGROUP,
		.pidfd = (uintptr_t)&pid_fd,
		.cgroup = (uint32_t)session->group_fd,
	};
	pid_t pid = kernel_clone3(&args);
	if (pid == 0)
		steps_child_run(&child);
	if (pid < 0)
		return err_fail(err, -errno, "clone", "clone3");
	session->pid = pid;
	session->pid_fd = pid_fd;
	close_child_ends(session);
	return 0;
}

static int step_watch(struct session *session, struct err *err)
{
	struct loop *loop = session->host->loop;

	int r = loop_add(loop, session->pid_fd, EPOLLIN, session_on_pid, session,
			 &session->pid_source);
	if (r == 0)
		r = loop_add(loop, session->ready_fd, EPOLLIN, session_on_ready, session,
			     &session->ready_source);
	if (r == 0)
		r = loop_add_timer(loop, clock_add(session->begun_at, START_TIMEOUT_US),
				   session_on_timer, session, &session->timer);
	return r < 0 ? err_fail(err, r, "watch", "add to the loop") : 0;
}

/* It is in that group from birth. */
static int step_limits(struct session *session, struct err *err)
{
	return cgroup_limit(&session->host->cgroup, true, session->name, &session->plan, err);
}

/* Groups of version 1 take as long to make as the child takes for its namespaces, which it makes
 * meanwhile; it is in none of them before it was told that they have their limits. */
static int step_limits_v1(struct session *session, struct err *err)
{
	const uint8_t go = STEPS_GO;
	int r = cgroup_limit(&session->host->cgroup, false, session->name, &session->plan, err);

	if (r < 0)
		return r;
	r = sockmsg_send(session->plan_fd, &go, sizeof(go), NULL, 0);
	/* The child has ended, before it read all or after: its step stands in the ready pipe. */
	if (r == -EPIPE || r == -ECONNRESET)
		return 0;
	return r < 0 ? err_fail(err, r, "limits-v1", "tell the child") : 0;
}

/* While the child works on the other processor: what it can no longer change. */
static int step_prove_early(struct session *session, struct err *err)
{
	(void)err;
	prove_early(session);
	return 0;
}

static const struct step {
	const char *name;
	int (*run)(struct session *session, struct err *err);
	int condition; /* when the step says so, this error instead of LAUNCH_E_STEP; 0: never */
	enum launch_error error;
} steps[] = {
	{"user-ids",    step_user_ids,    -EBUSY,  LAUNCH_E_IDS     },
	{"template",    step_template,    -ENOENT, LAUNCH_E_TEMPLATE},
	{"listener",    step_listener,    0,       LAUNCH_E_STEP    },
	{"group",       step_group,       0,       LAUNCH_E_STEP    },
	{"limits",      step_limits,      0,       LAUNCH_E_STEP    },
	{"record",      step_record,      0,       LAUNCH_E_STEP    },
	{"send-plan",   step_plan,        0,       LAUNCH_E_STEP    },
	{"clone",       step_clone,       0,       LAUNCH_E_STEP    },
	{"limits-v1",   step_limits_v1,   0,       LAUNCH_E_STEP    },
	{"watch",       step_watch,       0,       LAUNCH_E_STEP    },
	{"prove-early", step_prove_early, 0,       LAUNCH_E_STEP    },
};

void session_crash_point(const struct session *session, const char *step)
{
	const char *crash_step = session->host->crash_step;

	/* Not over and over: what is adopted has seen one crash. */
	if (crash_step && !session->is_adopted && !(session->plan.flags & PLAN_CANARY) &&
	    str_equal(crash_step, step))
		(void)kill(getpid(), SIGKILL);
}

int steps_parent_take_net(struct session *session)
{
	struct steps_net net;
	int fds[NETNS_FDS];

	/* It was sent before the byte on the ready pipe, so this never waits. */
	ssize_t n = sockmsg_recv(session->plan_fd, &net, sizeof(net), fds, NETNS_FDS);
	if (n < 0)
		return (int)n;
	for (size_t i = 0; i < NETNS_FDS; i++)
		session->net_fd[i] = fds[i];
	if ((size_t)n != sizeof(net) || session->net_fd[NETNS_FDS - 1] < 0 ||
	    memcmp(net.session, session->plan.session, ID_BYTES) != 0)
		return -EPROTO;
	session->plan_fd = fd_close(session->plan_fd);
	return 0;
}

int steps_parent_run(struct session *session, enum launch_error *ret_error, struct err *err)
{
	const char *fail_step = fail_step_of(session);

	take_clock(session);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int r = fail_step && str_equal(fail_step, steps[i].name)
				? err_fail(err, -EIO, steps[i].name, "made to fail")
				: steps[i].run(session, err);
		if (r < 0) {
			*ret_error = LAUNCH_E_STEP;
			if (r == steps[i].condition)
				*ret_error = steps[i].error;
			if (r == -EMFILE || r == -ENFILE)
				*ret_error = LAUNCH_E_DESCRIPTORS;
			return r;
		}
		session_crash_point(session, steps[i].name);
		session_trace_step(session, steps[i].name, session_elapsed_us(session), 0);
	}
	return 0;
}

int steps_parent_undo(struct session *session)
{
	struct host *host = session->host;
	char socket_name[ID_TEXT_BYTES + 8];

	close_child_ends(session);
	session_close_net(session);
	session->plan_fd = fd_close(session->plan_fd);
	session->ready_fd = fd_close(session->ready_fd);
	if (session->has_socket &&
	    str_format(socket_name, sizeof(socket_name), "%s.sock", session->name) == 0) {
		/* Our own 0700 directory: nobody else removes it, and a rest goes at the next
		 * start. */
		(void)unlinkat(host->sockets_fd, socket_name, 0);
		session->has_socket = false;
	}
	if (session->has_record)
		record_remove(host->sockets_fd, session->name);
	session->has_record = false;
	session->record_fd = fd_close(session->record_fd);
	if (session->has_group) {
		int r = cgroup_remove(&host->cgroup, session->name);
		if (r < 0)
			return r;
		session->has_group = false;
	}
	if (session->clock != SESSION_NO_CLOCK)
		host->clocks_used &= ~(1ull << session->clock);
	session->clock = SESSION_NO_CLOCK;
	/* Last: the block rests from the moment when nothing carries its ids any more. */
	userns_release(&host->reserve, &session->userns);
	return 0;
}
