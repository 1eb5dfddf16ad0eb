/*
 * A histogram with fixed buckets, from 50 µs to 10 s. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

#define HISTOGRAM_BUCKETS 15

struct histogram {
	uint64_t n[HISTOGRAM_BUCKETS + 1]; /* of each bucket alone; the last: above all bounds */
	uint64_t sum_us;
};

void histogram_add(struct histogram *histogram, usec_t took_us);
uint64_t histogram_count(const struct histogram *histogram);
/* Upper bound of a bucket in seconds, as text ("0.00005"). index < HISTOGRAM_BUCKETS. */
const char *histogram_bound(size_t index);
