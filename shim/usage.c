#include "shim/usage.h"

#include <stdint.h>
#include <sys/resource.h>

#include "base/clock.h"

#include "shim/message.h"

static uint64_t usage_us(const struct timeval *time)
{
	return (uint64_t)time->tv_sec * USEC_PER_SEC + (uint64_t)time->tv_usec;
}

void usage_fill(const struct rusage *usage, struct message *message)
{
	message->user_us = usage_us(&usage->ru_utime);
	message->system_us = usage_us(&usage->ru_stime);
	message->max_rss_kib = (uint64_t)usage->ru_maxrss;
}
