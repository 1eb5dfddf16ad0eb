/*
 * Samples of one measured thing, in microseconds.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/auto.h"

struct stats {
	double *sample; /* owned */
	size_t n;
	size_t max;
};

MUST_USE int stats_init(struct stats *stats, size_t max);
void stats_done(struct stats *stats);
void stats_add(struct stats *stats, double value); /* beyond max: dropped */
double stats_quantile(struct stats *stats, double q);
/* "key": {"n":…,"p50":…,"p95":…,"p99":…,"min":…} */
void stats_print(FILE *out, const char *key, struct stats *stats);

double bench_now_us(void); /* CLOCK_MONOTONIC */
