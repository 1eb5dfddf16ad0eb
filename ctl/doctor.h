/*
 * Checks of this host, which need no service: each says ok, degraded or missing, what that costs
 * and what mends it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "ctl/client.h"

#define DOCTOR_TEXT_BYTES 160
#define DOCTOR_ANSWER_MS  5000 /* of the service */

enum doctor_state {
	DOCTOR_OK,
	DOCTOR_DEGRADED, /* works, with a stated cost */
	DOCTOR_MISSING,  /* sandboxd refuses to start */
	DOCTOR_STATE_MAX_,
};

/* A check fills text with what it found. */
typedef enum doctor_state (*doctor_check)(char text[DOCTOR_TEXT_BYTES]);

struct doctor_row {
	const char *name;
	doctor_check check;
	const char *cost; /* printed unless ok */
	const char *mend;
};

void doctor_text(char text[DOCTOR_TEXT_BYTES], const char *format, ...) PRINTF_LIKE(2, 3);
/* A small file's text without its last newline. Length or -errno. */
int doctor_read(const char *path, char *text, size_t text_bytes);

/* Ask the service, if one runs, what the checks of production need; forget it again. */
void doctor_ask_service(struct client *client);
void doctor_forget_service(void);

/* The first two numbers of the kernel's release. 0 or -EINVAL. */
int doctor_release(uint32_t *ret_major, uint32_t *ret_minor);

enum doctor_state doctor_cgroup_tree(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_memory_limit(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_pids_limit(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_cpu_limit(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_io_limit(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_descriptors(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_id_blocks(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_template(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_namespace_counts(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_egress_programs(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_bpf_jit(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_pid_count(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_inotify(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_passrights(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_swap(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_systemd(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_production_names(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_snapshot_store(char text[DOCTOR_TEXT_BYTES]);
enum doctor_state doctor_shared_hosts(char text[DOCTOR_TEXT_BYTES]);
