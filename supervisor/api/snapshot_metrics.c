/* What is counted of snapshots. */
#include "supervisor/api/metrics/metrics.h"
#include "supervisor/api/session/snapshots.h"
#include "supervisor/api/snapshot_state.h"

static int append_kept(struct buf *text, const struct app *app)
{
	struct snapshots_sum plain = {0};
	struct snapshots_sum encrypted = {0};
	int r;

	LIST_FOR_EACH (entry, &app->lives)
		snapshots_sum(LIST_ENTRY(entry, struct live, link)->session, &plain, &encrypted);
	r = metrics_append(text, "snapshots", "gauge", "Snapshots that are kept.",
			   (const struct metrics_value[]){
				   {"encrypted=\"no\"",  plain.n    },
				   {"encrypted=\"yes\"", encrypted.n},
        },
			   2);
	if (r < 0)
		return r;
	return metrics_append(text, "snapshot_bytes", "gauge", "Their files.",
			      (const struct metrics_value[]){
				      {"encrypted=\"no\"",  plain.bytes    },
				      {"encrypted=\"yes\"", encrypted.bytes},
        },
			      2);
}

int snapshots_append_metrics(struct buf *text, const struct app *app)
{
	const struct app_counters *counters = &app->counters;
	int r = append_kept(text, app);

	if (r >= 0)
		r = metrics_append(text, "snapshot_runs_total", "counter",
				   "Snapshots that were made, or put back.",
				   (const struct metrics_value[]){
					   {"what=\"make\"",    counters->n_snapshots_made    },
					   {"what=\"restore\"", counters->n_snapshots_restored},
                },
				   2);
	if (r < 0)
		return r;
	r = snapshots_append_remote_metrics(text, app);
	if (r < 0)
		return r;
	return metrics_append(text, "snapshot_failures_total", "counter",
			      "Snapshots that were not.",
			      (const struct metrics_value[]){
				      {"what=\"make\"",    counters->n_snapshots_not_made    },
				      {"what=\"restore\"", counters->n_snapshots_not_restored},
        },
			      2);
}
