#include "tests/bench/stats.h"

#include <errno.h>
#include <time.h>

int stats_init(struct stats *stats, size_t max)
{
	double *sample = calloc(max, sizeof(*sample));

	if (!sample)
		return -ENOMEM;
	*stats = (struct stats){.sample = sample, .max = max};
	return 0;
}

void stats_done(struct stats *stats)
{
	free(stats->sample);
	*stats = (struct stats){0};
}

void stats_add(struct stats *stats, double value)
{
	if (stats->n < stats->max)
		stats->sample[stats->n++] = value;
}

static int compare_double(const void *a, const void *b)
{
	const double x = *(const double *)a;
	const double y = *(const double *)b;

	return (x > y) - (x < y);
}

double stats_quantile(struct stats *stats, double q)
{
	size_t at;

	if (stats->n == 0)
		return 0.0;
	qsort(stats->sample, stats->n, sizeof(*stats->sample), compare_double);
	at = (size_t)(q * (double)(stats->n - 1) + 0.5);
	return stats->sample[at];
}

void stats_print(FILE *out, const char *key, struct stats *stats)
{
	(void)fprintf(
		out,
		"  \"%s\": {\"n\": %zu, \"p50\": %.1f, \"p95\": %.1f, \"p99\": %.1f, \"min\": %.1f}",
		key, stats->n, stats_quantile(stats, 0.5), stats_quantile(stats, 0.95),
		stats_quantile(stats, 0.99), stats_quantile(stats, 0.0));
}

double bench_now_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}
