/*
 * Theory. The sockets of a session's network end with the supervisor that held them: connections
 * are then refused, and stay so until they are made again here. One child does it for all adopted
 * sessions, since it must enter one network namespace after the other and a process that could not
 * come back would be no supervisor. It enters by the pidfds of the shims, which were compared with
 * their records; what it sends is believed only with a link in the namespace that the record
 * proved.
 *
 * While the sockets are bound, for some microseconds, every port of the namespace is free for all:
 * no capability for it is kept. A program that waits for that moment and takes the resolver's port,
 * or the listener's, has no network and harms nobody else: what it binds is in its own namespace,
 * the sk_lookup program is asked before it, and a bind of ours that fails is said in the log.
 *
 * Runs at the start, waits, and fails no start: a session without its sockets is one without a
 * network, which is said in the log.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/sockmsg.h"

#include "sandboxd/kernel.h"
#include "supervisor/netns.h"
#include "supervisor/session_state.h"
#include "supervisor/sklookup.h"

#define TIMEOUT_MS 10000

struct restored {
	uint8_t session[ID_BYTES];
	int32_t error; /* 0: NETNS_FDS descriptors came with it */
};

/* One of a release that made no networks keeps having none. */
static bool had_network(const struct session *session)
{
	return (session->proof.in_force & PROOF_EGRESS) != 0;
}

static int restore_one(int socket_fd, const struct session *session)
{
	struct restored restored = {.error = 0};
	int fds[NETNS_FDS] = {-1, -1, -1};

	memcpy(restored.session, session->plan.session, ID_BYTES);
	if (setns(session->pid_fd, CLONE_NEWNET) < 0)
		restored.error = -errno;
	else
		restored.error = netns_sockets(session->host->ipv6, &SKLOOKUP_NULL, fds);
	int r = sockmsg_send(socket_fd, &restored, sizeof(restored), fds,
			     restored.error == 0 ? ARRAY_SIZE(fds) : 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		(void)fd_close(fds[i]);
	return r;
}

static _Noreturn void run_child(int socket_fd, const struct host *host)
{
	LIST_FOR_EACH (link, &host->adopted) {
		const struct session *session = LIST_ENTRY(link, struct session, link);

		if (had_network(session) && restore_one(socket_fd, session) < 0)
			_exit(1);
	}
	_exit(0);
}

static struct session *find(const struct host *host, const uint8_t id[ID_BYTES])
{
	LIST_FOR_EACH (link, &host->adopted) {
		struct session *session = LIST_ENTRY(link, struct session, link);

		if (memcmp(session->plan.session, id, ID_BYTES) == 0)
			return session;
	}
	return NULL;
}

/* 1: one message more; 0: the end; -errno. */
static int take_one(const struct host *host, int socket_fd)
{
	struct pollfd answer = {.fd = socket_fd, .events = POLLIN};
	struct restored restored;
	int fds[NETNS_FDS];

	if (poll(&answer, 1, TIMEOUT_MS) != 1)
		return -ETIMEDOUT;
	ssize_t n = sockmsg_recv(socket_fd, &restored, sizeof(restored), fds, NETNS_FDS);
	if (n <= 0)
		return (int)n;
	struct session *session =
		(size_t)n == sizeof(restored) ? find(host, restored.session) : NULL;
	if (session && restored.error == 0 &&
	    !sklookup_holds(fds[NETNS_LINK], session->proof.ns_inode[HOST_NS_NET]))
		restored.error = -ESTALE;
	if (session && restored.error == 0) {
		memcpy(session->net_fd, fds, sizeof(fds));
		return 1;
	}
	for (size_t i = 0; i < NETNS_FDS; i++)
		(void)fd_close(fds[i]);
	if (!session)
		return -EPROTO;
	log_line(LOG_LEVEL_ERROR, &(struct log_context){.session = &session->id},
		 "an adopted session has no network any more", "errno=%d", -restored.error);
	return 1;
}

static int take_all(const struct host *host, int socket_fd)
{
	int r;

	do {
		r = take_one(host, socket_fd);
	} while (r > 0);
	return r;
}

static int restore_all(const struct host *host)
{
	int fds[2];
	int pid_fd = -1;
	int r = sockmsg_pair(fds, 0);

	if (r < 0)
		return r;
	AUTO_CLOSE int our_fd = fds[0];
	struct clone_args args = {
		.flags = CLONE_PIDFD,
		.pidfd = (uintptr_t)&pid_fd,
		.exit_signal = SIGCHLD,
	};
	pid_t pid = kernel_clone3(&args);
	if (pid == 0)
		run_child(fds[1], host);
	r = pid < 0 ? -errno : 0;
	(void)fd_close(fds[1]); /* so that the child's end is the end */
	if (r < 0)
		return r;
	AUTO_CLOSE int owned_pid_fd = pid_fd;
	r = take_all(host, our_fd);
	/* At the end of its work, or in the way. */
	(void)kernel_pidfd_send_signal(owned_pid_fd, SIGKILL);
	if (waitid(P_PIDFD, (id_t)owned_pid_fd, &(siginfo_t){0}, WEXITED) < 0 && r == 0)
		r = -errno;
	return r;
}

void netns_restore(const struct host *host)
{
	size_t n = 0;

	LIST_FOR_EACH (link, &host->adopted)
		n += had_network(LIST_ENTRY(link, struct session, link));
	int r = n > 0 ? restore_all(host) : 0;
	if (r < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "networks of adopted sessions are not restored",
			 "errno=%d", -r);
}
