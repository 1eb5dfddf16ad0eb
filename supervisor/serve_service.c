/*
 * Theory. An egress worker cannot reach a Unix socket of this host: its root is empty. It asks for
 * a connection to one that the operator listed, by host_service_id, and gets the connected socket.
 * A child makes it: the path is looked up anew each time, so a service may make its socket again,
 * and without a symbolic link. The child connects under the egress worker's id with the group of
 * the socket (never root's), so that a service sees nobody it would trust for being root, and one
 * that admits its group needs no other mode. A full backlog is an error, not a wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/host_service.h"
#include "base/path.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "supervisor/host.h"
#include "supervisor/serve_state.h"
#include "supervisor/signals.h"

#define SECONDS 5u /* a file system that hangs */

struct service_dial {
	struct list link; /* serve->service_dials */
	struct serve *serve;
	struct serve_client *client; /* NULL: it has ended */
	struct launch_msg request;
	int socket_fd;
	int pid_fd;
	struct loop_source *source;
};

/* --- the child: its exit status is an errno --------------------------------------------------- */

static int become(uid_t id, gid_t group)
{
	if (setgroups(0, NULL) < 0 || setresgid(group, group, group) < 0 ||
	    setresuid(id, id, id) < 0)
		return -errno;
	/* As in worker_spawn.c: a copy of our memory, under a worker's id. */
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}

static int connect_to(int mounts_fd, int socket_fd, const char *path, uid_t id)
{
	union {
		struct sockaddr any;
		struct sockaddr_un local;
	} address = {.local.sun_family = AF_UNIX};
	AUTO_CLOSE int root_fd = -1;
	AUTO_CLOSE int path_fd = -1;
	struct stat st;
	int r;

	/* The supervisor's own root has nothing of the host. */
	if (setns(mounts_fd, CLONE_NEWNS) < 0)
		return -errno;
	root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return -errno;
	path_fd = path_open_beneath(root_fd, path + 1, O_PATH | O_NOFOLLOW, 0);
	if (path_fd < 0)
		return path_fd;
	if (fstat(path_fd, &st) < 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	r = become(id, st.st_gid == 0 ? id : st.st_gid);
	if (r < 0)
		return r;
	r = str_format(address.local.sun_path, sizeof(address.local.sun_path), "/proc/self/fd/%d",
		       path_fd);
	if (r < 0)
		return r;
	return connect(socket_fd, &address.any, sizeof(address.local)) < 0 ? -errno : 0;
}

static _Noreturn void run_child(int mounts_fd, int socket_fd, const char *path, uid_t id)
{
	int r;

	/* Whatever we were started with, the alarm ends it. */
	r = signals_reset();
	(void)alarm(SECONDS);
	if (r == 0)
		r = connect_to(mounts_fd, socket_fd, path, id);
	_exit(r < 0 && r > -256 ? -r : r < 0);
}

/* --- the supervisor's side -------------------------------------------------------------------- */

static void dial_free(struct service_dial *dial)
{
	dial->source = loop_remove(dial->source);
	dial->pid_fd = fd_close(dial->pid_fd);
	dial->socket_fd = fd_close(dial->socket_fd);
	list_remove(&dial->link);
	free(dial);
}

static int answer_error(struct serve_client *client, const struct launch_msg *request, int r)
{
	struct launch_msg answer = serve_answer(request, LAUNCH_E_STEP);

	(void)err_fail(&answer.u.err, r, "service", "connect");
	peer_send(&client->peer, &answer, -1);
	return 0;
}

static int on_child(void *userdata, uint32_t events)
{
	struct service_dial *dial = userdata;
	siginfo_t info = {0};
	int r = -ETIMEDOUT; /* ended by its alarm */

	(void)events;
	if (waitid(P_PIDFD, (id_t)dial->pid_fd, &info, WEXITED | WNOHANG) < 0)
		r = -errno;
	else if (info.si_code == CLD_EXITED)
		r = -info.si_status;
	if (dial->client && r < 0) {
		(void)answer_error(dial->client, &dial->request, r);
	} else if (dial->client) {
		struct launch_msg answer = serve_answer(&dial->request, LAUNCH_E_NONE);

		peer_send(&dial->client->peer, &answer, TAKE_FD(dial->socket_fd));
	}
	dial_free(dial);
	return 0;
}

static const struct config_host_service *find_service(const struct serve *serve, uint64_t id)
{
	const struct network_config *network;

	if (!serve->options.config)
		return NULL;
	network = &serve->options.config->supervisor.network;
	for (uint32_t i = 0; i < network->n_host_services; i++)
		if (network->host_service[i].path[0] != '\0' &&
		    host_service_id(&network->host_service[i]) == id)
			return &network->host_service[i];
	return NULL;
}

static int start_child(struct service_dial *dial, const struct config_host_service *service)
{
	const uid_t id = host_worker_ids(dial->serve->options.host) + WORKER_ID_EGRESS;
	struct clone_args args = {
		.flags = CLONE_PIDFD,
		.pidfd = (uintptr_t)&dial->pid_fd,
		.exit_signal = SIGCHLD,
	};
	pid_t pid;

	dial->socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (dial->socket_fd < 0)
		return -errno;
	pid = kernel_clone3(&args);
	if (pid == 0)
		run_child(host_mounts_fd(dial->serve->options.host), dial->socket_fd, service->path,
			  id);
	return pid < 0 ? -errno : 0;
}

/* Before anybody watches it, or when nobody will. */
static void end_child(struct service_dial *dial)
{
	if (dial->pid_fd >= 0) {
		(void)kernel_pidfd_send_signal(dial->pid_fd, SIGKILL);
		(void)waitid(P_PIDFD, (id_t)dial->pid_fd, &(siginfo_t){0}, WEXITED);
	}
	dial_free(dial);
}

static uint32_t count(const struct serve_client *client)
{
	uint32_t n = 0;

	LIST_FOR_EACH (link, &client->serve->service_dials)
		n += LIST_ENTRY(link, struct service_dial, link)->client == client;
	return n;
}

int serve_service(struct serve_client *client, const struct launch_msg *request)
{
	struct serve *serve = client->serve;
	const struct config_host_service *service = find_service(serve, request->u.service.id);
	struct service_dial *dial;
	int r;

	if (!service)
		return answer_error(client, request, -ENOENT);
	if (count(client) == LAUNCH_SERVICES_AT_ONCE)
		return answer_error(client, request, -EAGAIN);
	dial = calloc(1, sizeof(*dial));
	if (!dial)
		return answer_error(client, request, -ENOMEM);
	dial->serve = serve;
	dial->client = client;
	dial->request = *request;
	dial->pid_fd = dial->socket_fd = -1;
	list_append(&serve->service_dials, &dial->link);
	r = start_child(dial, service);
	if (r == 0)
		r = loop_add(serve->options.loop, dial->pid_fd, EPOLLIN, on_child, dial,
			     &dial->source);
	if (r < 0) {
		end_child(dial);
		return answer_error(client, request, r);
	}
	return 0;
}

void serve_forget_services(struct serve_client *client)
{
	LIST_FOR_EACH (link, &client->serve->service_dials) {
		struct service_dial *dial = LIST_ENTRY(link, struct service_dial, link);

		if (dial->client != client)
			continue;
		dial->client = NULL;
		/* on_child has its end: here nothing is waited for. */
		(void)kernel_pidfd_send_signal(dial->pid_fd, SIGKILL);
	}
}

void serve_drop_services(struct serve *serve)
{
	while (!list_empty(&serve->service_dials))
		end_child(LIST_ENTRY(serve->service_dials.next, struct service_dial, link));
}
