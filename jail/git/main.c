/*
 * sandbox-git GIT-ARGUMENT…: run git, with its HTTP done here (include/sandboxd/git.h).
 *
 * Theory. In a session everything runs under one id, and what runs there is hostile: a hook, a
 * filter, or what was left in the background reads the environment, the descriptors and the memory
 * of every process of that id that the kernel calls dumpable, through /proc. This one is not: its
 * file, a sealed memfd, can be executed and not read, so it is born so, and pid 1's hidepid then
 * hides it altogether. The credential comes on standard input, is read to its end before git is
 * started, and is in no other process, argument, variable or file; git gets a socket, on which it
 * finds a server that needs none. What else gets hold of that socket can ask for this one
 * repository while the call lasts, and change the one ref that the caller pushes (serve.c).
 *
 * Runs as `user` under the policy of commands.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/io.h"

#include "jail/git/serve.h"

#define GIT_PROGRAM "/usr/bin/git"
#define REQUEST_MAX_BYTES                                                                          \
	(sizeof(struct git_request) + GIT_URL_MAX_BYTES + GIT_USERNAME_MAX_BYTES +                 \
	 GIT_PASSWORD_MAX_BYTES + GIT_REF_MAX_BYTES + GIT_CA_MAX_BYTES)

static int take_text(const char **at, const char *end, size_t size, char *dest, size_t dest_bytes)
{
	if (size > (size_t)(end - *at) || size >= dest_bytes || memchr(*at, '\0', size))
		return -EBADMSG;
	memcpy(dest, *at, size);
	dest[size] = '\0';
	*at += size;
	return 0;
}

static int take_request(const char *data, size_t size, struct http_request *request)
{
	const char *end = data + size;
	const char *at = data + sizeof(struct git_request);
	struct git_request head;
	int r;

	if (size < sizeof(head))
		return -EBADMSG;
	memcpy(&head, data, sizeof(head));
	if (head.magic != GIT_REQUEST_MAGIC || head.zero != 0 || head.service == 0 ||
	    head.service >= GIT_SERVICE_MAX_ || head.url_bytes == 0)
		return -EBADMSG;
	request->service = (enum git_service)head.service;
	r = take_text(&at, end, head.url_bytes, request->url, sizeof(request->url));
	if (r >= 0)
		r = take_text(&at, end, head.username_bytes, request->username,
			      sizeof(request->username));
	if (r >= 0)
		r = take_text(&at, end, head.password_bytes, request->password,
			      sizeof(request->password));
	if (r >= 0)
		r = take_text(&at, end, head.ref_bytes, request->ref, sizeof(request->ref));
	if (r < 0 || head.ca_bytes != (size_t)(end - at))
		return -EBADMSG;
	if (head.ca_bytes > 0) {
		request->ca = strndup(at, head.ca_bytes);
		request->ca_bytes = request->ca ? strlen(request->ca) : 0;
		if (!request->ca)
			return -ENOMEM;
	}
	return 0;
}

static int read_request(struct http_request *request)
{
	char *data = NULL;
	size_t size = 0;
	int null_fd;
	int r;

	r = io_read_file(STDIN_FILENO, REQUEST_MAX_BYTES, &data, &size);
	if (r < 0)
		return r;
	r = take_request(data, size, request);
	explicit_bzero(data, size);
	free(data);
	if (r < 0)
		return r;
	null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null_fd < 0)
		return -errno;
	r = dup2(null_fd, STDIN_FILENO) < 0 ? -errno : 0;
	(void)fd_close(null_fd);
	return r;
}

/* The copy of our memory that the child has until its exec is not dumpable either. */
static _Noreturn void become_git(int fd, char *argv[], char *envp[])
{
	char name[] = "git";

	argv[0] = name;
	(void)signal(SIGPIPE, SIG_DFL);
	if (fd == GIT_TRANSPORT_FD ? fcntl(fd, F_SETFD, 0) >= 0 : dup2(fd, GIT_TRANSPORT_FD) >= 0)
		(void)execve(GIT_PROGRAM, argv, envp);
	_exit(http_say(GIT_EXIT_REQUEST, "git cannot be started"));
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return GIT_EXIT_REQUEST;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : GIT_EXIT_REQUEST;
}

static int run(const struct http_request *request, char *argv[], char *envp[])
{
	int pair[2];
	pid_t pid;
	int code;
	int status;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return http_say(GIT_EXIT_REQUEST, "no socket");
	pid = fork();
	if (pid < 0)
		return http_say(GIT_EXIT_REQUEST, "no process");
	if (pid == 0)
		become_git(pair[1], argv, envp);
	(void)fd_close(pair[1]);
	code = serve(request, pair[0]);
	(void)fd_close(pair[0]);
	status = wait_for(pid);
	return code != 0 ? code : status;
}

int main(int argc, char *argv[], char *envp[])
{
	static char *no_environment[] = {NULL};
	struct http_request request = {.ca = NULL}; /* no service yet */
	const struct rlimit no_core = {0};
	int code;

	if (argc < 2) {
		(void)fprintf(stderr, "usage: sandbox-git GIT-ARGUMENT...\n");
		return 2;
	}
	/* What the libraries would believe of it is the session's word. */
	environ = no_environment;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &no_core) < 0 ||
	    signal(SIGPIPE, SIG_IGN) == SIG_ERR || read_request(&request) < 0)
		return http_say(GIT_EXIT_REQUEST, "the request is wrong");
	code = run(&request, argv, envp);
	free(request.ca);
	explicit_bzero(&request, sizeof(request));
	return code;
}
