/*
 * sandboxd-egress: the sessions' network. Connects for them, by name and by rule; see worker.h for
 * its objects and inspect.h for the child that reads what sessions write.
 *
 * Start: signals, the inspector's fork (before anything has come from outside), the resolver, which
 * reads its configuration, then the filter, then the greeting.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/sockmsg.h"

#include "policy/confine_worker.h"
#include "sandboxd/launch.h"
#include "sandboxd/worker.h"
#include "supervisor/egress/descriptors.h"
#include "supervisor/egress/inspect.h"
#include "supervisor/egress/relay.h"
#include "supervisor/egress/worker.h"
#include "supervisor/worker_start.h"

/* Runs as the inspector until the worker ends. */
static _Noreturn void be_inspector(int fd)
{
	int r;

	/* The worker is pid 1 of its namespace, which ends with it; this is one more reason. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		_exit(EXIT_FAILURE);
	log_set_format(LOG_FORMAT_RECORD);
	if (confine_fileless_worker(WORKER_FD_POLICY, "worker-inspector") < 0)
		_exit(EXIT_FAILURE);
	/* Everything but the log and its one socket. */
	if (dup2(fd, WORKER_FD_SUPERVISOR) < 0 || fd_close_from(WORKER_FD_SUPERVISOR + 1) < 0)
		_exit(EXIT_FAILURE);
	r = inspector_run(WORKER_FD_SUPERVISOR);
	if (r < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "inspector ends", "errno=%d", -r);
	_exit(r < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* The worker's end of the pair, or -errno. */
static int start_inspector(void)
{
	int fds[2];
	pid_t pid;
	int r;

	r = sockmsg_pair(fds, 0);
	if (r < 0)
		return r;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		be_inspector(fds[1]);
	(void)fd_close(fds[1]);
	return fds[0];
}

static int take_net(struct egress *egress, const struct id *id, int *fds)
{
	struct session *session;

	if (fds[LAUNCH_NET_LISTENER] < 0 || fds[LAUNCH_NET_RESOLVER] < 0)
		return -EPROTO;
	session = sessions_get(egress, id);
	if (!session)
		return -ENOMEM;
	return sessions_open(session, TAKE_FD(fds[LAUNCH_NET_LISTENER]),
			     TAKE_FD(fds[LAUNCH_NET_RESOLVER]));
}

static int take_message(struct egress *egress, const struct launch_msg *msg, int *fds)
{
	struct session *session;
	struct id id;

	memcpy(id.bytes, msg->session, ID_BYTES);
	switch (msg->type) {
	case LAUNCH_EVENT_NET:
		return take_net(egress, &id, fds);
	case LAUNCH_EVENT_NET_GONE:
		session = sessions_find(egress, &id);
		if (session)
			sessions_free(session);
		return 0;
	case LAUNCH_SERVICE + 1:
		return service_answered(egress, msg, TAKE_FD(fds[0]));
	case LAUNCH_EVENT_LINK:
		return fds[0] < 0 ? -EPROTO : api_link_open(egress, TAKE_FD(fds[0]));
	case LAUNCH_EVENT_FACTS:
		if (msg->u.facts.log_level >= LOG_LEVEL_MAX_)
			return -EPROTO;
		log_set_level((enum log_level)msg->u.facts.log_level);
		log_line(LOG_LEVEL_DEBUG, NULL, "log level taken", NULL);
		return 0;
	default:
		return -EPROTO;
	}
}

static int on_supervisor(void *userdata, uint32_t events)
{
	struct egress *egress = userdata;
	struct launch_msg msg;
	int fds[LAUNCH_NET_FDS];
	ssize_t n = sockmsg_recv(WORKER_FD_SUPERVISOR, &msg, sizeof(msg), fds, ARRAY_SIZE(fds));
	int r;

	(void)events;
	if (n == -EAGAIN)
		return 0;
	if (n <= 0) {
		loop_quit(egress->loop, 0); /* the supervisor has ended */
		return n == 0 ? 0 : (int)n;
	}
	r = launch_check(&msg, (size_t)n, 1) < 0 ? -EPROTO : take_message(egress, &msg, fds);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = fd_close(fds[i]);
	return r;
}

static int on_signal(void *userdata, uint32_t events)
{
	struct egress *egress = userdata;

	(void)events;
	loop_quit(egress->loop, 0);
	return 0;
}

/* It is only ever asked and waited for: what comes by itself is its end. */
static int on_inspector(void *userdata, uint32_t events)
{
	(void)userdata;
	(void)events;
	return -EPIPE;
}

static int open_egress(struct egress *egress)
{
	struct rlimit limit;
	int r;

	egress->api.fd = -1;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return -errno;
	egress->max_connections = descriptors_connections(limit.rlim_cur);
	list_init(&egress->resting);
	list_init(&egress->api.queue);
	list_init(&egress->service_dials);
	for (size_t i = 0; i < SESSION_BUCKETS; i++)
		list_init(&egress->sessions[i]);
	r = loop_new(&egress->loop);
	if (r == 0)
		r = loop_add_timer(egress->loop, USEC_NEVER, intakes_on_rested, egress,
				   &egress->resting_timer);
	if (r == 0)
		r = resolver_new(egress->loop, &egress->resolver);
	return r;
}

/* Until TERM or the end of the supervisor (0), or -errno. The process ends then, and what egress
 * still holds with it. */
static int run(struct egress *egress, int signal_fd)
{
	struct loop_source *supervisor = NULL, *signals = NULL, *inspector = NULL;
	int r;

	r = loop_add(egress->loop, WORKER_FD_SUPERVISOR, EPOLLIN, on_supervisor, egress,
		     &supervisor);
	if (r == 0)
		r = loop_add(egress->loop, signal_fd, EPOLLIN, on_signal, egress, &signals);
	if (r == 0)
		r = loop_add(egress->loop, egress->inspector_fd, EPOLLIN, on_inspector, egress,
			     &inspector);
	if (r == 0)
		r = loop_run(egress->loop);
	(void)loop_remove(inspector);
	(void)loop_remove(signals);
	(void)loop_remove(supervisor);
	return r;
}

int main(void)
{
	static struct egress egress;
	struct launch_hello hello;
	int signal_fd;
	int r;

	log_init("sandboxd-egress", LOG_LEVEL_INFO);
	log_set_format(LOG_FORMAT_RECORD); /* the supervisor gives it its form */
	signal_fd = worker_start_signals();
	if (signal_fd < 0)
		return EXIT_FAILURE;
	egress.inspector_fd = start_inspector();
	r = egress.inspector_fd < 0 ? egress.inspector_fd : open_egress(&egress);
	if (r < 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "egress worker cannot start", "errno=%d", -r);
		return EXIT_FAILURE;
	}
	/* The resolver looks into the hosts file for each name. */
	if (confine_reading_worker(WORKER_FD_POLICY, "worker-egress", "/etc") < 0)
		return EXIT_FAILURE;
	r = worker_start_greet(&hello);
	if (r == 0)
		r = run(&egress, signal_fd);
	if (r < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "egress worker ends", "errno=%d", -r);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
