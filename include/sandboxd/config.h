/*
 * Ranges and defaults of the configuration. sandboxd-config checks them and names the option; the
 * supervisor checks them again in its answer, because the reader has parsed text and is therefore
 * not believed.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/limits.h"
#include "sandboxd/plan.h"

#define CONFIG_FILE_MAX_BYTES  262144 /* all files together */
#define CONFIG_ERROR_MAX_BYTES 4096   /* what the supervisor reads of the reader's complaints */

#define CONFIG_SESSIONS_MAX         20000u
#define CONFIG_LAUNCH_RATE_MAX      100000u
#define CONFIG_CHANGE_RATE_MAX      100000u
#define CONFIG_RESERVE_MAX          256u
#define CONFIG_EGRESS_MAX           16u
#define CONFIG_TOTAL_MEMORY_MAX     (1ull << 46)
#define CONFIG_TOTAL_PIDS_MAX       (1u << 22)
#define CONFIG_GID_MAX              (UINT32_MAX - 1) /* UINT32_MAX itself: leave the group alone */
#define CONFIG_UID_MAX              (UINT32_MAX - 1)
#define CONFIG_QUEUE_MAX            SESSION_QUEUE_MAX_JOBS
#define CONFIG_KEEP_MIN_S           60u
#define CONFIG_KEEP_MAX_S           (10ull * 366 * 24 * 3600)
#define CONFIG_QUOTA_JOBS_MAX       1000000u
#define CONFIG_QUOTA_RATE_MAX       (1ull << 40)
#define CONFIG_NET_BYTES_MAX        (1ull << 40)
#define CONFIG_CONNECTIONS_MAX      65536u
#define CONFIG_CONNECTS_MAX         100000u
#define CONFIG_JANITOR_MIN_S        1u
#define CONFIG_JANITOR_MAX_S        3600u
#define CONFIG_HOLD_MAX_S           60u
#define CONFIG_VISIBILITY_MIN_S     1u
#define CONFIG_VISIBILITY_MAX_S     2592000u /* 30 days */
#define CONFIG_PREFETCH_MAX         256u
#define CONFIG_KEYS_MAX             1000000000u
#define CONFIG_AUDIT_MIN_BYTES      (64ull << 10)
#define CONFIG_AUDIT_MAX_BYTES      (4ull << 30)
#define CONFIG_STORE_MIN_BYTES      (8ull << 20)
#define CONFIG_STORE_MAX_BYTES      (1ull << 40)
#define CONFIG_SNAPSHOT_MIN_BYTES   (64ull << 10)
#define CONFIG_SNAPSHOT_MAX_BYTES   (1ull << 44)
#define CONFIG_SNAPSHOT_MAX_ENTRIES 100000000u

/* Endpoints, in the order of endpoint_default[]. */
#define CONFIG_ENDPOINT_NAMES                                                                      \
	{                                                                                          \
		"iceberg_rest_uri", "iceberg_warehouse", "polaris_base_url",                       \
			"alpha_vantage_base_url", "datahub_gms_url", "kafka_bootstrap"             \
	}
/* enum endpoint_form of each (base/endpoint_value.h). */
#define CONFIG_ENDPOINT_FORMS                                                                      \
	{                                                                                          \
		ENDPOINT_FORM_URL, ENDPOINT_FORM_WAREHOUSE, ENDPOINT_FORM_URL, ENDPOINT_FORM_URL,  \
			ENDPOINT_FORM_URL, ENDPOINT_FORM_BROKERS                                   \
	}

/*
 * What the reader gets on standard input: the configuration's files in the order in which the later
 * one wins, copied so that none can change while it is read. The head is followed by the texts, one
 * behind the other. It begins with a NUL byte, which no text does: the reader takes a bare text
 * too.
 */
#define CONFIG_BUNDLE_MAGIC      0x31464300u
#define CONFIG_DROPINS_MAX       32
#define CONFIG_FILES_MAX         (CONFIG_DROPINS_MAX + 2) /* the file, drop-ins, the next */
/* [api] provider as a variable of the environment has it: the last of the files, of that name. */
#define CONFIG_PROVIDER_VARIABLE "SANDBOX_PROVIDER"
#define CONFIG_FILE_NAME_BYTES   80
#define CONFIG_DROPINS           "conf.d" /* beside the file */
#define CONFIG_DROPIN_SUFFIX     ".conf"
struct config_bundle_file {
	char name[CONFIG_FILE_NAME_BYTES]; /* for complaints: "sandboxd.conf", "conf.d/10-x.conf" */
	uint32_t bytes;
	uint32_t is_readable; /* by others than root: no place for a key */
};
struct config_bundle {
	uint32_t magic;
	uint32_t n_files;
	struct config_bundle_file file[CONFIG_FILES_MAX];
};
