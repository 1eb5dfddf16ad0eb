#include "supervisor/api/metrics/histogram.h"

#include "base/auto.h"
#include "base/err.h"

static const struct bound {
	usec_t us;
	const char *text; /* no floating point on the way to a reader */
} bounds[] = {
	{50,       "0.00005"},
        {100,      "0.0001" },
        {250,      "0.00025"},
        {500,      "0.0005" },
        {1000,     "0.001"  },
	{2500,     "0.0025" },
        {5000,     "0.005"  },
        {10000,    "0.01"   },
        {25000,    "0.025"  },
        {50000,    "0.05"   },
	{100000,   "0.1"    },
        {500000,   "0.5"    },
        {1000000,  "1"      },
        {5000000,  "5"      },
        {10000000, "10"     },
};
_Static_assert(ARRAY_SIZE(bounds) == HISTOGRAM_BUCKETS, "one bound per bucket");

void histogram_add(struct histogram *histogram, usec_t took_us)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(bounds) && took_us > bounds[i].us)
		i++;
	histogram->n[i]++;
	histogram->sum_us += took_us;
}

uint64_t histogram_count(const struct histogram *histogram)
{
	uint64_t count = 0;

	for (size_t i = 0; i < ARRAY_SIZE(histogram->n); i++)
		count += histogram->n[i];
	return count;
}

const char *histogram_bound(size_t index)
{
	ASSERT(index < ARRAY_SIZE(bounds));
	return bounds[index].text;
}
