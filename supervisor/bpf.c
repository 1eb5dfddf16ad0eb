#include "supervisor/bpf.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LICENSE "GPL" /* asked for by some of the kernel's functions */

static int call(enum bpf_cmd command, union bpf_attr *attr)
{
	long r = syscall(SYS_bpf, command, attr, sizeof(*attr));

	return r < 0 ? -errno : (int)r;
}

static uint64_t address_of(const void *pointer)
{
	return (uint64_t)(uintptr_t)pointer;
}

static void set_name(char field[BPF_OBJ_NAME_LEN], const char *name)
{
	memcpy(field, name, strnlen(name, BPF_OBJ_NAME_LEN - 1));
}

int bpf_map_new(const struct bpf_map_form *form, const char *name)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = form->type;
	attr.key_size = form->key_bytes;
	attr.value_size = form->value_bytes;
	attr.max_entries = form->max_entries;
	attr.map_flags = form->flags;
	set_name(attr.map_name, name);
	return call(BPF_MAP_CREATE, &attr);
}

int bpf_map_set(int map_fd, const void *key, const void *value)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_fd = (uint32_t)map_fd;
	attr.key = address_of(key);
	attr.value = address_of(value);
	return call(BPF_MAP_UPDATE_ELEM, &attr);
}

static bool jumps(const struct bpf_insn *insn)
{
	uint8_t class = BPF_CLASS(insn->code);
	uint8_t operation = BPF_OP(insn->code);

	return (class == BPF_JMP || class == BPF_JMP32) && operation != BPF_CALL &&
	       operation != BPF_EXIT;
}

int bpf_resolve_labels(struct bpf_insn *insns, size_t n)
{
	int at[INSN_LABELS];
	int n_kept = 0;

	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		at[i] = -1;
	for (size_t i = 0; i < n; i++) {
		if (insns[i].code != INSN_LABEL_CODE) {
			insns[n_kept++] = insns[i];
			continue;
		}
		if (insns[i].off < 0 || insns[i].off >= INSN_LABELS || at[insns[i].off] >= 0)
			return -EINVAL;
		at[insns[i].off] = n_kept;
	}
	for (int i = 0; i < n_kept; i++) {
		if (!jumps(&insns[i]))
			continue;
		if (insns[i].off < 0 || insns[i].off >= INSN_LABELS || at[insns[i].off] < 0)
			return -EINVAL;
		insns[i].off = (int16_t)(at[insns[i].off] - i - 1);
	}
	return n_kept;
}

int bpf_program_load(const struct bpf_program *program)
{
	union bpf_attr attr;
	int n = bpf_resolve_labels(program->insns, program->n_insns);

	if (n < 0)
		return n;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = program->type;
	attr.expected_attach_type = program->attach;
	attr.insns = address_of(program->insns);
	attr.insn_cnt = (uint32_t)n;
	attr.license = address_of(LICENSE);
	set_name(attr.prog_name, program->name);
	return call(BPF_PROG_LOAD, &attr);
}

int bpf_link_new(int program_fd, int target_fd, enum bpf_attach_type attach)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = (uint32_t)program_fd;
	attr.link_create.target_fd = (uint32_t)target_fd;
	attr.link_create.attach_type = attach;
	return call(BPF_LINK_CREATE, &attr);
}

int bpf_attach_group(int program_fd, int group_fd, enum bpf_attach_type attach)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.target_fd = (uint32_t)group_fd;
	attr.attach_bpf_fd = (uint32_t)program_fd;
	attr.attach_type = attach;
	return call(BPF_PROG_ATTACH, &attr);
}

uint32_t bpf_link_netns(int link_fd, enum bpf_attach_type attach)
{
	struct bpf_link_info info;
	union bpf_attr attr;

	memset(&info, 0, sizeof(info));
	memset(&attr, 0, sizeof(attr));
	attr.info.bpf_fd = (uint32_t)link_fd;
	attr.info.info_len = sizeof(info);
	attr.info.info = address_of(&info);
	if (call(BPF_OBJ_GET_INFO_BY_FD, &attr) < 0)
		return 0;
	if (info.type != BPF_LINK_TYPE_NETNS || info.netns.attach_type != attach)
		return 0;
	return info.netns.netns_ino;
}
