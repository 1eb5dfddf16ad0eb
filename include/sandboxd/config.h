/*
 * Ranges and defaults of the configuration. sandboxd-config checks them and names the option; the
 * supervisor checks them again in its answer, because the reader has parsed text and is therefore
 * not believed.
 */
#pragma once

#include "sandboxd/limits.h"
#include "sandboxd/plan.h"

#define CONFIG_FILE_MAX_BYTES  262144
#define CONFIG_ERROR_MAX_BYTES 4096 /* what the supervisor reads of the reader's complaints */

#define CONFIG_SESSIONS_MAX     20000u
#define CONFIG_LAUNCH_RATE_MAX  100000u
#define CONFIG_RESERVE_MAX      256u
#define CONFIG_EGRESS_MAX       16u
#define CONFIG_TOTAL_MEMORY_MAX (1ull << 46)
#define CONFIG_TOTAL_PIDS_MAX   (1u << 22)
#define CONFIG_GID_MAX          (UINT32_MAX - 1) /* UINT32_MAX itself: leave the group alone */
#define CONFIG_UID_MAX          (UINT32_MAX - 1)
#define CONFIG_QUEUE_MAX        SESSION_QUEUE_MAX_JOBS
#define CONFIG_KEEP_MIN_S       60u
#define CONFIG_KEEP_MAX_S       (10ull * 366 * 24 * 3600)
#define CONFIG_JANITOR_MIN_S    1u
#define CONFIG_JANITOR_MAX_S    3600u

/* Endpoints, in the order of endpoint_default[]. */
#define CONFIG_ENDPOINT_NAMES                                                                      \
	{                                                                                          \
		"iceberg_rest_uri", "iceberg_warehouse", "polaris_base_url",                       \
			"alpha_vantage_base_url", "datahub_gms_url", "kafka_bootstrap"             \
	}
