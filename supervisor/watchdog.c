#include "supervisor/watchdog.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"

#include "supervisor/notify.h"

#define SIGNS_PER_PERIOD 3 /* one may come late */

static bool read_number(const char *name, uint64_t *ret_value)
{
	/* One thread and nobody calls setenv. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *text = getenv(name);

	return text && num_parse_u64(text, 1, UINT64_MAX / 2, ret_value) == 0;
}

usec_t watchdog_period(void)
{
	uint64_t period = 0;
	uint64_t pid = 0;

	if (!read_number("WATCHDOG_USEC", &period))
		return 0;
	if (read_number("WATCHDOG_PID", &pid) && pid != (uint64_t)getpid())
		return 0;
	return period;
}

static int on_timer(void *userdata, uint32_t events)
{
	struct watchdog *watchdog = userdata;

	(void)events;
	(void)notify_send(watchdog->notify, "WATCHDOG=1");
	loop_timer_set(watchdog->timer, clock_add(clock_boottime(), watchdog->interval));
	return 0;
}

int watchdog_start(struct watchdog *watchdog, struct loop *loop, const struct notify *notify,
		   struct err *err)
{
	usec_t period = watchdog_period();
	int r;

	*watchdog = (struct watchdog){
		.notify = notify,
		.interval = period / SIGNS_PER_PERIOD,
	};
	if (watchdog->interval == 0)
		return 0;
	r = loop_add_timer(loop, clock_boottime(), on_timer, watchdog, &watchdog->timer);
	if (r < 0)
		return err_fail(err, r, "watchdog", "timer");
	return 0;
}

void watchdog_done(struct watchdog *watchdog)
{
	watchdog->timer = loop_remove(watchdog->timer);
}
