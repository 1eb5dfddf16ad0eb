/*
 * Sockets of c-ares are in an epoll of our own as it says (its socket callback comes before a
 * close), beside a timer for its timeouts. It closes them whenever nothing is asked, so ports
 * change.
 */
#include "base/name_lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/err.h"
#include "base/fd.h"

#define TRIES      3
#define MAX_EVENTS 16

struct name_lookup {
	ares_channel channel;
	int epoll_fd;
	int timer_fd;
};

static void set_timer(struct name_lookup *lookup)
{
	struct timeval wait;
	const struct timeval *next = ares_timeout(lookup->channel, NULL, &wait);
	struct itimerspec timer = {0};

	if (next) {
		timer.it_value.tv_sec = next->tv_sec;
		/* None is "off". */
		timer.it_value.tv_nsec = next->tv_usec * 1000 + 1;
	}
	/* It refuses bad numbers only. */
	ASSERT(timerfd_settime(lookup->timer_fd, 0, &timer, NULL) == 0);
}

static void watch(void *userdata, ares_socket_t fd, int readable, int writable)
{
	const struct name_lookup *lookup = userdata;
	struct epoll_event event = {
		.events = (readable ? (uint32_t)EPOLLIN : 0) | (writable ? (uint32_t)EPOLLOUT : 0),
		.data = {.fd = fd},
	};

	/* Where it cannot be watched, its timeout comes. */
	if (event.events == 0)
		(void)epoll_ctl(lookup->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	else if (epoll_ctl(lookup->epoll_fd, EPOLL_CTL_MOD, fd, &event) < 0 && errno == ENOENT)
		(void)epoll_ctl(lookup->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

int name_lookup_fd(const struct name_lookup *lookup)
{
	return lookup->epoll_fd;
}

void name_lookup_process(struct name_lookup *lookup)
{
	struct epoll_event events[MAX_EVENTS];
	int n = epoll_wait(lookup->epoll_fd, events, MAX_EVENTS, 0);

	for (int i = 0; i < n; i++) {
		uint32_t what = events[i].events;
		int fd = events[i].data.fd;
		bool is_timer = fd == lookup->timer_fd;

		/* It looks at its deadlines each time. */
		ares_process_fd(
			lookup->channel,
			!is_timer && what & (EPOLLIN | EPOLLERR | EPOLLHUP) ? fd : ARES_SOCKET_BAD,
			!is_timer && what & EPOLLOUT ? fd : ARES_SOCKET_BAD);
	}
	set_timer(lookup);
}

void name_lookup_ask(struct name_lookup *lookup, const char *name, ares_addrinfo_callback done,
		     void *userdata)
{
	static const struct ares_addrinfo_hints hints = {
		.ai_flags = ARES_AI_NOSORT, /* that would try to connect */
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
	};

	ares_getaddrinfo(lookup->channel, name, NULL, &hints, done, userdata);
	set_timer(lookup);
}

bool name_lookup_has_server(const struct name_lookup *lookup, const struct egress_address *address)
{
	struct ares_addr_node *servers = NULL;
	bool found = false;

	/* Without memory: as if it were one. */
	if (ares_get_servers(lookup->channel, &servers) != ARES_SUCCESS)
		return true;
	for (const struct ares_addr_node *at = servers; at && !found; at = at->next)
		found = (uint32_t)at->family == address->family &&
			memcmp(&at->addr, address->bytes, at->family == AF_INET ? 4 : 16) == 0;
	if (servers)
		ares_free_data(servers);
	return found;
}

static int add_timer(struct name_lookup *lookup)
{
	struct epoll_event event = {.events = EPOLLIN};

	lookup->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (lookup->epoll_fd < 0)
		return -errno;
	lookup->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (lookup->timer_fd < 0)
		return -errno;
	event.data.fd = lookup->timer_fd;
	return epoll_ctl(lookup->epoll_fd, EPOLL_CTL_ADD, lookup->timer_fd, &event) < 0 ? -errno
											: 0;
}

static int open_channel(struct name_lookup *lookup, int timeout_ms)
{
	char lookups[] = "fb"; /* the hosts file, then name servers */
	struct ares_options options = {
		.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
		.timeout = timeout_ms,
		.tries = TRIES,
		.lookups = lookups,
		.sock_state_cb = watch,
		.sock_state_cb_data = lookup,
	};
	int status = ares_init_options(&lookup->channel, &options,
				       ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
					       ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB);

	if (status == ARES_SUCCESS)
		return 0;
	lookup->channel = NULL;
	return status == ARES_ENOMEM ? -ENOMEM : -EIO;
}

int name_lookup_new(int timeout_ms, struct name_lookup **ret_lookup)
{
	struct name_lookup *lookup = calloc(1, sizeof(*lookup));
	int r;

	if (!lookup)
		return -ENOMEM;
	lookup->epoll_fd = lookup->timer_fd = -1;
	r = add_timer(lookup);
	if (r >= 0)
		r = open_channel(lookup, timeout_ms);
	if (r < 0) {
		name_lookup_free(lookup);
		return r;
	}
	*ret_lookup = lookup;
	return 0;
}

struct name_lookup *name_lookup_free(struct name_lookup *lookup)
{
	if (!lookup)
		return NULL;
	if (lookup->channel)
		ares_destroy(lookup->channel);
	lookup->timer_fd = fd_close(lookup->timer_fd);
	lookup->epoll_fd = fd_close(lookup->epoll_fd);
	free(lookup);
	return NULL;
}
