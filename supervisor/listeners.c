/*
 * Sockets are passed by the LISTEN_FDS protocol, from systemd and from our keeper alike, so that
 * the supervisor has one way to start. The keeper's own socket is a third name in the same list.
 */
#include "supervisor/listeners.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/num.h"
#include "base/sockmsg.h"
#include "base/str.h"

#define MAX_PASSED 8
#define BACKLOG    1024

/* NULL when unset or longer than a variable of this protocol can be. */
static const char *protocol_variable(const char *name)
{
	/* One thread, and nobody calls setenv. */
	const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe) */

	return text && strlen(text) < 256 ? text : NULL;
}

static int passed_count(void)
{
	const char *pid_text = protocol_variable("LISTEN_PID");
	const char *n_text = protocol_variable("LISTEN_FDS");
	uint32_t pid;
	uint32_t n;

	if (!pid_text || !n_text)
		return 0;
	if (num_parse_u32(pid_text, 1, INT32_MAX, &pid) < 0 || (pid_t)pid != getpid())
		return 0;
	if (num_parse_u32(n_text, 0, MAX_PASSED, &n) < 0)
		return 0;
	return (int)n;
}

bool listeners_are_passed(void)
{
	return passed_count() > 0;
}

static int socket_option(int fd, int option)
{
	int value = -1;
	socklen_t size = sizeof(value);

	if (getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0)
		return -errno;
	return value;
}

static int check_listener(int fd, const char *name, struct err *err)
{
	if (socket_option(fd, SO_DOMAIN) != AF_UNIX || socket_option(fd, SO_TYPE) != SOCK_STREAM ||
	    socket_option(fd, SO_ACCEPTCONN) != 1)
		return err_fail(err, -EINVAL, "listen",
				"passed descriptor `%s` is no listening Unix stream socket", name);
	sockmsg_refuse_fds(fd);
	return 0;
}

static int *place_of(struct listeners *listeners, const char *name, size_t length)
{
	struct place {
		const char *name;
		int *fd;
	} places[] = {
		{"control",  &listeners->control_fd },
		{"operator", &listeners->operator_fd},
		{"keeper",   &listeners->keeper_fd  },
	};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (strlen(places[i].name) == length && memcmp(places[i].name, name, length) == 0)
			return places[i].fd;
	}
	return NULL;
}

int listeners_take(struct listeners *listeners, struct err *err)
{
	const char *names = protocol_variable("LISTEN_FDNAMES");
	int n = passed_count();
	int r;

	if (n > 0 && !names)
		return err_fail(err, -EINVAL, "listen", "LISTEN_FDNAMES is missing");
	for (int i = 0; i < n; i++) {
		size_t length = strcspn(names, ":");
		int *place = place_of(listeners, names, length);

		if (!place || *place >= 0)
			return err_fail(err, -EINVAL, "listen",
					"passed sockets are named control and operator, each once");
		*place = LISTENERS_FIRST_FD + i;
		r = fd_set_cloexec(*place, 1);
		if (r < 0)
			return err_fail(err, r, "listen", "passed descriptor %d", *place);
		names += length;
		if (*names == ':')
			names++;
	}
	if (listeners->control_fd >= 0) {
		r = check_listener(listeners->control_fd, "control", err);
		if (r < 0)
			return r;
	}
	if (listeners->operator_fd >= 0)
		return check_listener(listeners->operator_fd, "operator", err);
	return 0;
}

static int remove_stale(int dir_fd, const char *name)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	if (unlinkat(dir_fd, name, 0) < 0)
		return -errno;
	return 0;
}

/* The address goes through the directory's descriptor: whatever the length of the path is. */
static int make_listener(int dir_fd, const char *name, mode_t mode, int *ret_fd)
{
	AUTO_CLOSE int fd = -1;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	mode_t old_mask;
	int r;

	r = remove_stale(dir_fd, name);
	if (r < 0)
		return r;
	r = str_format(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dir_fd,
		       name);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* By umask, not by a later chmod: the socket is never open to anybody else. */
	old_mask = umask(0777 & ~mode);
	r = bind(fd, &address, sizeof(address)) < 0 ? -errno : 0;
	(void)umask(old_mask);
	if (r < 0)
		return r;
	/* A client that pushes descriptors could stop the api worker, see base/sockmsg.c. */
	sockmsg_refuse_fds(fd);
	if (listen(fd, BACKLOG) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int listeners_make(struct listeners *listeners, struct err *err)
{
	int r;

	if (listeners->control_fd < 0) {
		r = make_listener(listeners->runtime_fd, LISTENERS_CONTROL, 0660,
				  &listeners->control_fd);
		if (r < 0)
			return err_fail(err, r, "listen", "make %s", LISTENERS_CONTROL);
		listeners->made_here = true;
	}
	if (listeners->operator_fd < 0) {
		r = make_listener(listeners->runtime_fd, LISTENERS_OPERATOR, 0600,
				  &listeners->operator_fd);
		if (r < 0)
			return err_fail(err, r, "listen", "make %s", LISTENERS_OPERATOR);
		listeners->made_here = true;
	}
	return 0;
}

int listeners_set_group(const struct listeners *listeners, unsigned int gid, struct err *err)
{
	/* systemd's socket unit has SocketGroup= for this. */
	if (!listeners->made_here && listeners->keeper_fd < 0)
		return 0;
	if (fchownat(listeners->runtime_fd, LISTENERS_CONTROL, (uid_t)-1, gid,
		     AT_SYMLINK_NOFOLLOW) < 0)
		return err_fail(err, -errno, "listen", "give %s to its group", LISTENERS_CONTROL);
	return 0;
}

void listeners_done(struct listeners *listeners)
{
	if (listeners->made_here) {
		/* Already gone is as good. */
		(void)unlinkat(listeners->runtime_fd, LISTENERS_CONTROL, 0);
		(void)unlinkat(listeners->runtime_fd, LISTENERS_OPERATOR, 0);
	}
	listeners->control_fd = fd_close(listeners->control_fd);
	listeners->operator_fd = fd_close(listeners->operator_fd);
	listeners->keeper_fd = fd_close(listeners->keeper_fd);
	listeners->runtime_fd = fd_close(listeners->runtime_fd);
}
