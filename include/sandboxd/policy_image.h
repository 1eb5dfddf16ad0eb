/*
 * The compiled policy: one read-only file made by sandbox-policyc at build time. The supervisor
 * maps it, checks every offset once (policy/image.c), gives workers the same file, and cuts one
 * struct session_policy per session profile out of it for the shims.
 */
#pragma once

#include <stdint.h>

#define POLICY_IMAGE_MAGIC   0x49425350u
#define POLICY_IMAGE_VERSION 2
#define POLICY_MAX_PROFILES  16
#define POLICY_NAME_BYTES    24
#define POLICY_MAX_BPF       4096 /* instructions; the kernel's own limit (BPF_MAXINSNS) */

enum policy_kind {
	POLICY_KIND_SESSION = 1, /* filter[COMMAND] and filter[SHIM] are used */
	POLICY_KIND_WORKER = 2,  /* filter[WORKER] is used */
};

enum policy_filter {
	POLICY_FILTER_COMMAND, /* taken by the spawner, inherited by every command */
	POLICY_FILTER_SHIM, /* taken by pid 1 after the nursery is forked; no command inherits it */
	POLICY_FILTER_HELPER, /* taken by the file helper */
	POLICY_FILTER_WORKER, /* taken by a worker of ours */
	POLICY_FILTER_MAX_,
};

struct policy_span {
	uint32_t offset; /* from the start of the image, multiple of 8 */
	uint32_t n;      /* instructions (struct sock_filter); 0: none */
};

/* Default limits of a session profile; the api worker fills a plan from them. */
struct policy_limits {
	uint64_t tmpfs_bytes;
	uint64_t tmpfs_inodes;
	uint64_t memory_bytes;
	uint64_t output_rate_bytes;
	uint64_t output_max_bytes;
	uint32_t max_pids;
	uint32_t max_files;
	uint32_t cpu_pct;
	uint32_t cpu_weight;
	uint32_t max_ptys;
	uint32_t ttl_minutes;
	uint32_t ttl_max_minutes;
	uint32_t load_timeout_s;
	uint32_t execute_timeout_s;
	uint32_t command_timeout_s;
	uint32_t zero[2];
};
_Static_assert(sizeof(struct policy_limits) == 88, "image");

enum policy_proc {
	POLICY_PROC_SUBSET = 1, /* procfs with subset=pid */
	POLICY_PROC_MASKED = 2, /* everything at its top level that is not listed is covered */
};

/* May a command ask for uid 0 of the session's user namespace? */
enum policy_root {
	POLICY_ROOT_REFUSED = 1,
	POLICY_ROOT_ALLOWED = 2,
};

struct policy_profile {
	char name[POLICY_NAME_BYTES]; /* NUL padded */
	uint32_t kind;                /* enum policy_kind */
	uint32_t proc;                /* enum policy_proc; session profiles */
	uint32_t root;                /* enum policy_root; session profiles */
	uint32_t zero;
	struct policy_span filter[POLICY_FILTER_MAX_];
	struct policy_limits limits;
	uint8_t hash[32]; /* BLAKE2b-256 of the profile's fields above (hash zero) and its filters'
			     bytes */
};
_Static_assert(sizeof(struct policy_profile) == 192, "image");

struct policy_image_header {
	uint32_t magic;
	uint16_t version;
	uint16_t header_bytes; /* sizeof(struct policy_image_header) */
	uint32_t total_bytes;
	uint32_t n_profiles;
	struct policy_profile profile[POLICY_MAX_PROFILES];
};

/* What a shim gets (SHIM_FD_POLICY): offsets count from the start of this struct. */
struct session_policy {
	uint32_t magic; /* POLICY_IMAGE_MAGIC */
	uint16_t version;
	uint16_t header_bytes;
	uint32_t total_bytes;
	uint32_t zero;
	struct policy_span filter[POLICY_FILTER_MAX_];
};
