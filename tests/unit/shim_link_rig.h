/*
 * A link over a socketpair, whose other end, the shim, is the test.
 */
#pragma once

#include "supervisor/api/link/shim_link.h"

struct rig {
	sd_event *event;
	struct shim_link *link;
	struct flow flow;
	struct id session;
	uint8_t *scratch;
	int shim_fd;
	/* what was heard */
	unsigned int n_started;
	unsigned int n_output;
	unsigned int n_exited;
	unsigned int n_failed;
	unsigned int n_put_done;
	unsigned int n_known;
	unsigned int n_lost;
	int lost_error;
	uint64_t last_number;
};

void rig_open(struct rig *rig, bool adopted, uint64_t acked);
void rig_close(struct rig *rig);
void turn(struct rig *rig);

/* The shim says. */
void say(struct rig *rig, uint16_t type, uint32_t job, uint64_t number, const void *payload,
	 size_t size);
void say_hello(struct rig *rig, uint64_t sent);
void say_stats(struct rig *rig, uint64_t n_held);
void say_stats_of(struct rig *rig, uint32_t n_jobs, uint64_t n_held);

/* The next frame that the link sent; its type, or 0 where there is none. */
uint16_t hear(struct rig *rig, struct wire_header *ret_header, uint8_t *ret_payload,
	      size_t payload_bytes);

uint32_t start_command(struct rig *rig);
/* HELLO, a command, and its STARTED. */
void start_running(struct rig *rig, uint32_t *ret_job);
