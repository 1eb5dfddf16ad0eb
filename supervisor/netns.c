/*
 * Runs as root of the host's user namespace, which owns the new network namespace: nobody inside
 * the session can ever change what is set here. /proc is still the supervisor's; its net sysctls
 * are those of the caller's network namespace.
 */
#include "supervisor/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "sandboxd/limits.h"

/* Connections that wait for the egress worker to accept them, while it is started again, say. */
#define LISTEN_BACKLOG 512

int netns_loopback(void)
{
	struct ifreq request = {.ifr_name = "lo"};
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

int netns_sysctls(void)
{
	/* Ended connections are counted by no control group (B20). */
	return io_write_at(AT_FDCWD, "/proc/sys/net/ipv4/tcp_max_tw_buckets", "4096");
}

/* The first port that may be bound without NET_BIND_SERVICE, which nobody has: neither a session,
 * to which all ports should be free, nor we. */
static int set_first_port(const char *first)
{
	return io_write_at(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", first);
}

bool netns_has_ipv6(void)
{
	AUTO_CLOSE int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0;
}

static int set_option(int fd, int level, int option)
{
	const int on = 1;

	return setsockopt(fd, level, option, &on, sizeof(on)) < 0 ? -errno : 0;
}

/* What bind(2) reads, without a pointer of another type. */
union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* One listener for both families where there are two: bound to an IPv4 address in its IPv6 form. */
static int bind_listener(int fd, bool ipv6)
{
	const union address v4 = {
		.v4 = {
                       .sin_family = AF_INET,
                       .sin_port = htons(SESSION_LISTENER_PORT),
                       .sin_addr = {htonl(SESSION_ADDRESS)},
		       }
        };
	union address v6 = {
		.v6 = {.sin6_family = AF_INET6, .sin6_port = v4.v4.sin_port}
        };
	const int off = 0;

	if (!ipv6)
		return bind(fd, &v4.any, sizeof(v4.v4)) < 0 ? -errno : 0;
	v6.v6.sin6_addr.s6_addr[10] = v6.v6.sin6_addr.s6_addr[11] = 0xff;
	memcpy(&v6.v6.sin6_addr.s6_addr[12], &v4.v4.sin_addr, sizeof(v4.v4.sin_addr));
	if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0)
		return -errno;
	return bind(fd, &v6.any, sizeof(v6.v6)) < 0 ? -errno : 0;
}

/*
 * Accepted sockets inherit REUSEADDR: without it, a connection to port 80 of the world would keep a
 * server of the session from binding its own port 80. REUSEPORT: after our restart the sockets of
 * the former egress worker may not be gone yet; a session's process has another user id and gets
 * nothing by it.
 */
static int share_port(int fd)
{
	int r = set_option(fd, SOL_SOCKET, SO_REUSEADDR);

	return r < 0 ? r : set_option(fd, SOL_SOCKET, SO_REUSEPORT);
}

static int make_listener(bool ipv6)
{
	AUTO_CLOSE int fd =
		socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = share_port(fd);
	if (r == 0)
		r = bind_listener(fd, ipv6);
	if (r < 0)
		return r;
	return listen(fd, LISTEN_BACKLOG) < 0 ? -errno : TAKE_FD(fd);
}

static int make_resolver(void)
{
	const union address address = {
		.v4 = {
                       .sin_family = AF_INET,
                       .sin_port = htons(SESSION_RESOLVER_PORT),
                       .sin_addr = {htonl(SESSION_RESOLVER)},
		       }
        };
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = share_port(fd);
	if (r < 0)
		return r;
	return bind(fd, &address.any, sizeof(address.v4)) < 0 ? -errno : TAKE_FD(fd);
}

/* The link, with a program of its own where none was made ahead. */
static int attach(const struct sklookup *lookup, int netns_fd, int listener_fd)
{
	struct sklookup own = SKLOOKUP_NULL;
	int r;

	if (lookup->program_fd >= 0)
		return sklookup_attach(lookup, netns_fd, listener_fd);
	r = sklookup_make(&own);
	if (r < 0)
		return r;
	r = sklookup_attach(&own, netns_fd, listener_fd);
	sklookup_close(&own);
	return r;
}

int netns_sockets(bool ipv6, const struct sklookup *lookup, int ret_fds[NETNS_FDS])
{
	AUTO_CLOSE int netns_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	AUTO_CLOSE int listener_fd = -1;
	AUTO_CLOSE int resolver_fd = -1;
	int link_fd;
	int r;

	if (netns_fd < 0)
		return -errno;
	r = set_first_port("0");
	if (r < 0)
		return r;
	listener_fd = make_listener(ipv6);
	if (listener_fd < 0)
		return listener_fd;
	resolver_fd = make_resolver();
	if (resolver_fd < 0)
		return resolver_fd;
	r = set_first_port(SESSION_FREE_PORTS_TEXT);
	if (r < 0)
		return r;
	link_fd = attach(lookup, netns_fd, listener_fd);
	if (link_fd < 0)
		return link_fd;
	ret_fds[LAUNCH_NET_LISTENER] = TAKE_FD(listener_fd);
	ret_fds[LAUNCH_NET_RESOLVER] = TAKE_FD(resolver_fd);
	ret_fds[NETNS_LINK] = link_fd;
	return 0;
}
