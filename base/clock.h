/*
 * Time. Domain code takes `now` as an argument; only loops and mains ask the clock.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef uint64_t usec_t;

#define USEC_PER_MS     1000ull
#define USEC_PER_SEC    1000000ull
#define USEC_PER_MINUTE (60ull * USEC_PER_SEC)
#define USEC_NEVER      UINT64_MAX

usec_t clock_boottime(void);              /* runs while suspended; deadlines */
usec_t clock_realtime(void);              /* since the epoch; rows and frames */
usec_t clock_add(usec_t at, usec_t span); /* saturates at USEC_NEVER */

/* Later than the year 9999 is shown as its last microsecond.
 * ISO 8601 of naive UTC with microseconds and no zone: 2026-11-29T13:28:06.116877 (26 characters).
 */
#define CLOCK_ISO_BYTES 27
void clock_format_iso(usec_t realtime, char text[CLOCK_ISO_BYTES]);
/* The same form, fraction of 0 to 6 digits accepted, 'T' or a space, years 1970 to 9999. 0 or
 * -EINVAL. */
int clock_parse_iso(const char *text, usec_t *ret_realtime);
