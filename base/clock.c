#include "base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "base/err.h"

#define SECONDS_PER_DAY 86400u

static usec_t clock_read(clockid_t clock)
{
	struct timespec now;
	int r = clock_gettime(clock, &now);

	ASSERT(r == 0 && now.tv_sec >= 0);
	return (usec_t)now.tv_sec * USEC_PER_SEC + (usec_t)now.tv_nsec / 1000;
}

usec_t clock_boottime(void)
{
	return clock_read(CLOCK_BOOTTIME);
}

usec_t clock_realtime(void)
{
	return clock_read(CLOCK_REALTIME);
}

usec_t clock_add(usec_t at, usec_t span)
{
	usec_t sum;

	return __builtin_add_overflow(at, span, &sum) ? USEC_NEVER : sum;
}

/*
 * Civil dates are computed here: gmtime_r reads the zone file first, which a worker's empty root
 * and seccomp filter do not give it. Howard Hinnant's method: years begin in March, so that the
 * leap day is the last of a year, and 400 years ("era") have 146 097 days. 719 468 days lie between
 * 0000-03-01 and 1970-01-01.
 */
static void civil_from_days(uint64_t days, unsigned int *ret_year, unsigned int *ret_month,
			    unsigned int *ret_day)
{
	uint64_t z = days + 719468;
	uint64_t era = z / 146097;
	uint64_t day_of_era = z % 146097;
	uint64_t year_of_era =
		(day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
	uint64_t day_of_year =
		day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	uint64_t month_from_march = (5 * day_of_year + 2) / 153;

	*ret_day = (unsigned int)(day_of_year - (153 * month_from_march + 2) / 5 + 1);
	*ret_month =
		(unsigned int)(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
	*ret_year = (unsigned int)(year_of_era + era * 400 + (*ret_month <= 2));
}

static uint64_t days_from_civil(unsigned int year, unsigned int month, unsigned int day)
{
	uint64_t y = month <= 2 ? year - 1 : year;
	uint64_t year_of_era = y % 400;
	uint64_t month_from_march = month > 2 ? month - 3 : month + 9;
	uint64_t day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
	uint64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

	return y / 400 * 146097 + day_of_era - 719468;
}

/* 9999-12-31T23:59:59.999999: what comes later is shown as this. */
#define LAST_USEC 253402300799999999ull

void clock_format_iso(usec_t realtime, char text[CLOCK_ISO_BYTES])
{
	usec_t shown = realtime < LAST_USEC ? realtime : LAST_USEC;
	uint64_t seconds = shown / USEC_PER_SEC;
	unsigned int of_day = (unsigned int)(seconds % SECONDS_PER_DAY);
	unsigned int year, month, day;
	int n;

	civil_from_days(seconds / SECONDS_PER_DAY, &year, &month, &day);
	n = snprintf(text, CLOCK_ISO_BYTES, "%04u-%02u-%02uT%02u:%02u:%02u.%06u", year % 10000,
		     month % 100, day % 100, of_day / 3600, of_day / 60 % 60, of_day % 60,
		     (unsigned int)(shown % USEC_PER_SEC));
	ASSERT(n == CLOCK_ISO_BYTES - 1);
}

/* Exactly n digits, then `after` ('\0': nothing is asked of what follows). */
static int take_digits(const char **at, unsigned int n, char after, unsigned int *ret_value)
{
	unsigned int value = 0;

	for (unsigned int i = 0; i < n; i++) {
		char c = (*at)[i];

		if (c < '0' || c > '9')
			return -EINVAL;
		value = value * 10 + (unsigned int)(c - '0');
	}
	*at += n;
	if (after != '\0') {
		if (**at != after)
			return -EINVAL;
		(*at)++;
	}
	*ret_value = value;
	return 0;
}

static int take_fraction(const char *at, unsigned int *ret_usec)
{
	unsigned int value = 0;
	unsigned int n = 0;

	if (*at == '\0') {
		*ret_usec = 0;
		return 0;
	}
	if (*at++ != '.')
		return -EINVAL;
	for (; at[n] >= '0' && at[n] <= '9'; n++) {
		if (n == 6)
			return -EINVAL;
		value = value * 10 + (unsigned int)(at[n] - '0');
	}
	if (at[n] != '\0')
		return -EINVAL;
	for (; n < 6; n++)
		value *= 10;
	*ret_usec = value;
	return 0;
}

static bool date_valid(unsigned int year, unsigned int month, unsigned int day)
{
	static const unsigned char days[12] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	if (year < 1970 || month < 1 || month > 12 || day < 1 || day > days[month - 1])
		return false;
	return month != 2 || day != 29 || leap;
}

int clock_parse_iso(const char *text, usec_t *ret_realtime)
{
	unsigned int year, month, day, hour, minute, second, usec;
	const char *at = text;
	uint64_t seconds;

	if (take_digits(&at, 4, '-', &year) < 0 || take_digits(&at, 2, '-', &month) < 0 ||
	    take_digits(&at, 2, '\0', &day) < 0)
		return -EINVAL;
	if (*at != 'T' && *at != ' ')
		return -EINVAL;
	at++;
	if (take_digits(&at, 2, ':', &hour) < 0 || take_digits(&at, 2, ':', &minute) < 0 ||
	    take_digits(&at, 2, '\0', &second) < 0 || take_fraction(at, &usec) < 0)
		return -EINVAL;
	if (!date_valid(year, month, day) || hour > 23 || minute > 59 || second > 59)
		return -EINVAL;
	seconds = days_from_civil(year, month, day) * SECONDS_PER_DAY + (uint64_t)hour * 3600 +
		  (uint64_t)minute * 60 + second;
	*ret_realtime = seconds * USEC_PER_SEC + usec;
	return 0;
}
