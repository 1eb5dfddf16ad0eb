/*
 * Both ends of the network's bench. One program, so that a session, this side of a loopback and
 * whatever else is compared run the same calls.
 *
 * usage: bench-net serve ADDRESS PORT...
 *        bench-net stream ADDRESS PORT CONNECTIONS MIB      prints the seconds
 *        bench-net connect ADDRESS PORT N                   prints the microseconds of each
 *        bench-net request ADDRESS PORT N HOST              likewise
 *        bench-net differing ADDRESS PORT N HOST            likewise, each for another path
 *        bench-net idle ADDRESS PORT N                      holds them until its input ends
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"

#define BLOCK      (256u << 10)
#define EVENTS     64
#define N_MAX      1000000u
#define REQUEST    512
#define IS_STARTED UINT64_C(1) << 32 /* of epoll_data: a connection, not a listener */

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
};

static char block[BLOCK];

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "bench-net: %s: %s\n", what, strerror(errno)); /* NOLINT: one thread */
	_exit(EXIT_FAILURE);
}

static uint32_t number(const char *text, uint32_t max)
{
	uint32_t value;

	if (num_parse_u32(text, 1, max, &value) < 0) {
		errno = EINVAL;
		fail(text);
	}
	return value;
}

static union address address_of(const char *address, const char *port)
{
	union address found = {.v4.sin_family = AF_INET};

	found.v4.sin_port = htons((uint16_t)number(port, UINT16_MAX));
	if (inet_pton(AF_INET, address, &found.v4.sin_addr) != 1) {
		errno = EINVAL;
		fail(address);
	}
	return found;
}

static int dial(const union address *address)
{
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, &address->any, sizeof(address->v4)) < 0)
		fail("connect");
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static void send_all(int fd, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t n = send(fd, data, size, MSG_NOSIGNAL);

		if (n <= 0)
			fail("send");
		data += n;
		size -= (size_t)n;
	}
}

/* A request is one read of a few bytes and gets an answer; all else is thrown away. */
static void serve_connection(int fd)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
	ssize_t n = recv(fd, block, sizeof(block), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0)
		(void)close(fd);
	else if (n <= REQUEST && block[0] == 'G')
		(void)!send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void watch(int epoll_fd, int fd, uint64_t flags)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)fd | flags};

	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		fail("epoll_ctl");
}

static _Noreturn void serve(int n_ports, char **words)
{
	const int on = 1;
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event[EVENTS];

	for (int i = 0; i < n_ports; i++) {
		union address address = address_of(words[0], words[i + 1]);
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (bind(fd, &address.any, sizeof(address.v4)) < 0 || listen(fd, SOMAXCONN) < 0)
			fail("listen");
		watch(epoll_fd, fd, 0);
	}
	(void)!write(STDOUT_FILENO, "ready\n", 6);
	for (;;) {
		int n = epoll_wait(epoll_fd, event, EVENTS, -1);

		for (int i = 0; i < n; i++) {
			int fd = (int)(uint32_t)event[i].data.u64;

			if (event[i].data.u64 & IS_STARTED) {
				serve_connection(fd);
				continue;
			}
			fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
			if (fd < 0)
				fail("accept");
			(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
			watch(epoll_fd, fd, IS_STARTED);
		}
	}
}

/* The other end has read it all when it closes. */
static _Noreturn void stream_one(const union address *address, uint64_t bytes)
{
	int fd = dial(address);

	for (uint64_t sent = 0; sent < bytes; sent += sizeof(block))
		send_all(fd, block, sizeof(block));
	(void)shutdown(fd, SHUT_WR);
	if (recv(fd, block, 1, 0) != 0)
		fail("recv");
	_exit(EXIT_SUCCESS);
}

static int stream(const union address *address, uint32_t n, uint64_t bytes)
{
	usec_t begin = clock_boottime();
	int failed = 0;

	for (uint32_t i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid < 0)
			fail("fork");
		if (pid == 0)
			stream_one(address, bytes / n);
	}
	for (uint32_t i = 0; i < n; i++) {
		int status;

		failed |= wait(&status) < 0 || status != 0;
	}
	printf("%.6f\n", (double)(clock_boottime() - begin) / USEC_PER_SEC);
	return failed;
}

static void ask(int fd, const char *host, uint32_t n)
{
	char text[REQUEST];
	int size = snprintf(text, sizeof(text), "GET /%u HTTP/1.1\r\nHost: %s\r\n\r\n", n, host);

	send_all(fd, text, (size_t)size);
	if (recv(fd, block, sizeof(block), 0) <= 0)
		fail("answer");
}

/* From the connect to the first byte of an answer: inside, connect(2) alone asks nobody. */
static int time_connects(const union address *address, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		usec_t begin = clock_boottime();
		int fd = dial(address);

		ask(fd, "bench", 0);
		printf("%llu\n", (unsigned long long)(clock_boottime() - begin));
		(void)close(fd);
	}
	return EXIT_SUCCESS;
}

static int time_requests(const union address *address, uint32_t n, const char *host, uint32_t step)
{
	int fd = dial(address);

	for (uint32_t i = 0; i < n; i++) {
		usec_t begin = clock_boottime();

		ask(fd, host, i * step);
		printf("%llu\n", (unsigned long long)(clock_boottime() - begin));
	}
	return EXIT_SUCCESS;
}

static int hold(const union address *address, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		ask(dial(address), "bench", 0);
	(void)!write(STDOUT_FILENO, "ready\n", 6);
	while (read(STDIN_FILENO, block, sizeof(block)) > 0)
		;
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct rlimit files;
	union address address;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	if (argc >= 4 && strcmp(argv[1], "serve") == 0)
		serve(argc - 3, argv + 2);
	if (argc < 5)
		return EXIT_FAILURE;
	address = address_of(argv[2], argv[3]);
	if (argc == 6 && strcmp(argv[1], "stream") == 0)
		return stream(&address, number(argv[4], EVENTS),
			      (uint64_t)number(argv[5], N_MAX) << 20);
	if (argc == 5 && strcmp(argv[1], "connect") == 0)
		return time_connects(&address, number(argv[4], N_MAX));
	if (argc == 6 && strcmp(argv[1], "request") == 0)
		return time_requests(&address, number(argv[4], N_MAX), argv[5], 0);
	if (argc == 6 && strcmp(argv[1], "differing") == 0)
		return time_requests(&address, number(argv[4], N_MAX), argv[5], 1);
	if (argc == 5 && strcmp(argv[1], "idle") == 0)
		return hold(&address, number(argv[4], N_MAX));
	return EXIT_FAILURE;
}
