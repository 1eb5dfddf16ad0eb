/*
 * What sandbox-canary tries in a throw-away session at the start, and what it writes to its output:
 * one struct canary_report. How each must be refused is supervisor/api/canary.c's to say.
 */
#pragma once

#include <stdint.h>

#define CANARY_MAGIC 0x43414e31u

enum canary_check {
	CANARY_USER_NAMESPACE,
	CANARY_MOUNT,
	CANARY_KEYRING,
	CANARY_BPF,
	CANARY_IO_URING,
	CANARY_VSOCK,
	CANARY_ROOT_ID,
	CANARY_SIGNAL_INIT,
	CANARY_TRACE_INIT,
	CANARY_READ_INIT,
	CANARY_WRITE_TEMPLATE,
	CANARY_DESCRIPTORS,
	CANARY_DEVICE,
	CANARY_MAX_,
};

struct canary_report {
	uint32_t magic;
	uint32_t n;                 /* CANARY_MAX_ */
	int32_t error[CANARY_MAX_]; /* errno; 0: it was not refused */
};
