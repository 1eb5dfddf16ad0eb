/*
 * An interpreter of classic BPF over struct seccomp_data, so that filters are tested as data. It
 * knows the instructions that the kernel accepts in a seccomp filter and refuses the rest.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

struct seccomp_data;
struct sock_filter;

/* What the kernel's own check refuses: unknown instructions, loads outside the data, jumps outside
 * the program, a last instruction that is no return. 0 or -EINVAL. */
MUST_USE int bpfsim_check(const struct sock_filter *program, size_t n);

/* Run a program that bpfsim_check accepted. ret_action: the SECCOMP_RET_ value; ret_n_executed may
 * be NULL. 0, or -EINVAL where the kernel would end with an error. */
MUST_USE int bpfsim_run(const struct sock_filter *program, size_t n,
			const struct seccomp_data *data, uint32_t *ret_action,
			size_t *ret_n_executed);
