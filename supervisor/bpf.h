/*
 * bpf(2) as far as it is needed: programs of a few dozen instructions, written as instructions.
 * No compiler and no library at run time, nothing pinned: what no descriptor, link or group holds
 * is gone.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <linux/bpf.h>

#include "base/auto.h"

/* Instructions; the operands are those of the kernel's documentation. `to` is a label. */
#define INSN(c, d, s, o, i)                                                                        \
	((struct bpf_insn){                                                                        \
		.code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (int32_t)(i)})
#define INSN_MOV(d, s)           INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define INSN_MOV_K(d, k)         INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, k)
#define INSN_ADD_K(d, k)         INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, k)
#define INSN_AND32_K(d, k)       INSN(BPF_ALU | BPF_AND | BPF_K, d, 0, 0, k)
#define INSN_LOAD32(d, s, o)     INSN(BPF_LDX | BPF_W | BPF_MEM, d, s, o, 0)
#define INSN_LOAD16(d, s, o)     INSN(BPF_LDX | BPF_H | BPF_MEM, d, s, o, 0)
#define INSN_TO_BE16(d)          INSN(BPF_ALU | BPF_END | BPF_TO_BE, d, 0, 0, 16)
#define INSN_STORE32(d, o, s)    INSN(BPF_STX | BPF_W | BPF_MEM, d, s, o, 0)
#define INSN_STORE32_K(d, o, k)  INSN(BPF_ST | BPF_W | BPF_MEM, d, 0, o, k)
#define INSN_IF_EQ32_K(d, k, to) INSN(BPF_JMP32 | BPF_JEQ | BPF_K, d, 0, to, k)
#define INSN_IF_NE32_K(d, k, to) INSN(BPF_JMP32 | BPF_JNE | BPF_K, d, 0, to, k)
#define INSN_IF_LESS(d, s, to)   INSN(BPF_JMP | BPF_JLT | BPF_X, d, s, to, 0)
#define INSN_IF_MORE(d, s, to)   INSN(BPF_JMP | BPF_JGT | BPF_X, d, s, to, 0)
#define INSN_IF_ZERO(d, to)      INSN(BPF_JMP | BPF_JEQ | BPF_K, d, 0, to, 0)
#define INSN_IF_SET(d, to)       INSN(BPF_JMP | BPF_JNE | BPF_K, d, 0, to, 0)
#define INSN_GOTO(to)            INSN(BPF_JMP | BPF_JA, 0, 0, to, 0)
#define INSN_CALL(function)      INSN(BPF_JMP | BPF_CALL, 0, 0, 0, function)
#define INSN_RETURN()            INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define INSN_LOAD_MAP(d, fd)                                                                       \
	INSN(BPF_LD | BPF_DW | BPF_IMM, d, BPF_PSEUDO_MAP_FD, 0, fd), INSN(0, 0, 0, 0, 0)
/* No instruction: where jumps to this label go. */
#define INSN_LABEL_CODE 0xff
#define INSN_LABEL(to)  INSN(INSN_LABEL_CODE, 0, 0, to, 0)
#define INSN_LABELS     16 /* labels are 0 to 15 */

struct bpf_map_form {
	enum bpf_map_type type;
	uint32_t key_bytes;
	uint32_t value_bytes;
	uint32_t max_entries;
	uint32_t flags;
};

/* Descriptors are the caller's; -errno. */
MUST_USE int bpf_map_new(const struct bpf_map_form *form, const char *name);
MUST_USE int bpf_map_set(int map_fd, const void *key, const void *value);
struct bpf_program {
	enum bpf_prog_type type;
	enum bpf_attach_type attach;
	const char *name;       /* fewer than 16 characters */
	struct bpf_insn *insns; /* with labels; changed */
	size_t n_insns;
};
/* Take the labels out and make each jump the distance that the kernel wants. The number of
 * instructions that are left, or -EINVAL: a label is missing or no label. */
MUST_USE int bpf_resolve_labels(struct bpf_insn *insns, size_t n);
MUST_USE int bpf_program_load(const struct bpf_program *program);
/* A link of the program to what target_fd names: in force while a descriptor of it is open. */
MUST_USE int bpf_link_new(int program_fd, int target_fd, enum bpf_attach_type attach);
/* To a control group: in force as long as the group, instead of a former one. */
MUST_USE int bpf_attach_group(int program_fd, int group_fd, enum bpf_attach_type attach);
/* Inode of the network namespace that the link is attached to; 0 if it is no such link, or the
 * namespace is gone. */
uint32_t bpf_link_netns(int link_fd, enum bpf_attach_type attach);
