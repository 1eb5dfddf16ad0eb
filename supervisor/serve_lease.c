/*
 * Theory. Where several hosts share a store, a host whose lease is over may have lost any session
 * to another one, which makes its tree anew: what runs here must have stopped by then. Only the api
 * worker knows of leases, and it may have died or hang when one ends; so it says ahead until when
 * sessions may run, and the end comes from a timer here. Frozen they can go on where nobody took
 * them, and a kill of one that was taken reaches it all the same.
 *
 * A supervisor that is started again meanwhile may have no worker for as long as the store is away.
 * So the end stands in a file as well, which is gone when no session is left.
 *
 * A session that is launched later has no row that another host could have found before the store
 * was away: it is not stopped.
 */
#include <errno.h>
#include <unistd.h>

#include "base/log.h"

#include "supervisor/serve_state.h"
#include "supervisor/session.h"

#define AGAIN (1 * USEC_PER_SEC)

static int on_end(void *userdata, uint32_t events)
{
	struct serve *serve = userdata;
	unsigned int n_failed = 0;

	(void)events;
	LIST_FOR_EACH (link, &serve->all)
		n_failed += session_hold(LIST_ENTRY(link, struct serve_session, all_link)->session,
					 true) < 0;
	if (serve->n_sessions > 0)
		log_line(LOG_LEVEL_WARNING, NULL,
			 "the lease is over, sessions stand still until it is renewed",
			 "sessions=%u failed=%u", serve->n_sessions, n_failed);
	if (n_failed > 0)
		loop_timer_set(serve->lease, clock_add(clock_boottime(), AGAIN));
	return 0;
}

void serve_lease(struct serve *serve, usec_t until)
{
	int fd = serve->options.lease_fd;

	if (fd >= 0 && pwrite(fd, &until, sizeof(until), 0) != (ssize_t)sizeof(until))
		log_line(LOG_LEVEL_ERROR, NULL, "the next supervisor will not know of the lease",
			 "errno=%d", errno);
	if (until > clock_boottime())
		LIST_FOR_EACH (link, &serve->all)
			/* One that is ending is thawed by its kill. */
			(void)!session_hold(
				LIST_ENTRY(link, struct serve_session, all_link)->session, false);
	loop_timer_set(serve->lease, until);
}

int serve_lease_init(struct serve *serve)
{
	int fd = serve->options.lease_fd;
	usec_t until = USEC_NEVER;

	if (fd >= 0 && pread(fd, &until, sizeof(until), 0) != (ssize_t)sizeof(until))
		until = USEC_NEVER; /* no supervisor was told of one */
	return loop_add_timer(serve->options.loop, until, on_end, serve, &serve->lease);
}
