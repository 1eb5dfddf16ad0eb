#include "policy/bpfsim.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

struct machine {
	uint32_t a;
	uint32_t x;
	uint32_t mem[BPF_MEMWORDS];
};

static bool is_load(uint16_t code)
{
	return code == (BPF_LD | BPF_W | BPF_ABS);
}

static bool is_mem(uint16_t code)
{
	return code == (BPF_LD | BPF_MEM) || code == (BPF_LDX | BPF_MEM) || code == BPF_ST ||
	       code == BPF_STX;
}

static bool is_conditional(uint16_t code)
{
	switch (code & ~BPF_X) {
	case BPF_JMP | BPF_JEQ:
	case BPF_JMP | BPF_JGT:
	case BPF_JMP | BPF_JGE:
	case BPF_JMP | BPF_JSET:
		return true;
	default:
		return false;
	}
}

static bool is_alu(uint16_t code)
{
	switch (code & ~BPF_X) {
	case BPF_ALU | BPF_ADD:
	case BPF_ALU | BPF_SUB:
	case BPF_ALU | BPF_MUL:
	case BPF_ALU | BPF_DIV:
	case BPF_ALU | BPF_AND:
	case BPF_ALU | BPF_OR:
	case BPF_ALU | BPF_XOR:
	case BPF_ALU | BPF_LSH:
	case BPF_ALU | BPF_RSH:
		return true;
	default:
		return code == (BPF_ALU | BPF_NEG);
	}
}

static bool is_plain(uint16_t code)
{
	switch (code) {
	case BPF_LD | BPF_W | BPF_LEN:
	case BPF_LDX | BPF_W | BPF_LEN:
	case BPF_LD | BPF_IMM:
	case BPF_LDX | BPF_IMM:
	case BPF_MISC | BPF_TAX:
	case BPF_MISC | BPF_TXA:
	case BPF_RET | BPF_K:
	case BPF_RET | BPF_A:
		return true;
	default:
		return is_alu(code);
	}
}

static int check_instruction(const struct sock_filter *in, size_t left)
{
	if (is_load(in->code))
		return in->k % 4 == 0 && in->k < sizeof(struct seccomp_data) ? 0 : -EINVAL;
	if (is_mem(in->code))
		return in->k < BPF_MEMWORDS ? 0 : -EINVAL;
	if (in->code == (BPF_JMP | BPF_JA))
		return in->k < left ? 0 : -EINVAL;
	if (is_conditional(in->code))
		return in->jt < left && in->jf < left ? 0 : -EINVAL;
	if (in->code == (BPF_ALU | BPF_DIV | BPF_K) && in->k == 0)
		return -EINVAL;
	return is_plain(in->code) ? 0 : -EINVAL;
}

int bpfsim_check(const struct sock_filter *program, size_t n)
{
	if (n == 0 || n > BPF_MAXINSNS)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		/* `left`: instructions behind this one; every jump goes forward. */
		if (check_instruction(&program[i], n - i - 1) < 0)
			return -EINVAL;
	}
	return BPF_CLASS(program[n - 1].code) == BPF_RET ? 0 : -EINVAL;
}

static int run_alu(struct machine *machine, const struct sock_filter *in)
{
	uint32_t operand = BPF_SRC(in->code) == BPF_X ? machine->x : in->k;

	switch (BPF_OP(in->code)) {
	case BPF_ADD:
		machine->a += operand;
		return 0;
	case BPF_SUB:
		machine->a -= operand;
		return 0;
	case BPF_MUL:
		machine->a *= operand;
		return 0;
	case BPF_DIV:
		if (operand == 0)
			return -EINVAL;
		machine->a /= operand;
		return 0;
	case BPF_AND:
		machine->a &= operand;
		return 0;
	case BPF_OR:
		machine->a |= operand;
		return 0;
	case BPF_XOR:
		machine->a ^= operand;
		return 0;
	case BPF_LSH:
		machine->a <<= operand & 31u;
		return 0;
	case BPF_RSH:
		machine->a >>= operand & 31u;
		return 0;
	case BPF_NEG:
		machine->a = 0u - machine->a;
		return 0;
	default:
		return -EINVAL;
	}
}

static size_t jump_distance(const struct machine *machine, const struct sock_filter *in)
{
	uint32_t operand = BPF_SRC(in->code) == BPF_X ? machine->x : in->k;
	bool taken = false;

	switch (BPF_OP(in->code)) {
	case BPF_JA:
		return in->k;
	case BPF_JEQ:
		taken = machine->a == operand;
		break;
	case BPF_JGT:
		taken = machine->a > operand;
		break;
	case BPF_JGE:
		taken = machine->a >= operand;
		break;
	case BPF_JSET:
		taken = (machine->a & operand) != 0;
		break;
	default:
		break;
	}
	return taken ? in->jt : in->jf;
}

static uint32_t load(const struct machine *machine, const struct sock_filter *in,
		     const struct seccomp_data *data)
{
	uint32_t value;

	switch (BPF_MODE(in->code)) {
	case BPF_ABS:
		memcpy(&value, (const uint8_t *)data + in->k, sizeof(value));
		return value;
	case BPF_MEM:
		return machine->mem[in->k];
	case BPF_LEN:
		return sizeof(*data);
	default:
		return in->k;
	}
}

/* One instruction that is neither jump nor return. */
static int step(struct machine *machine, const struct sock_filter *in,
		const struct seccomp_data *data)
{
	switch (BPF_CLASS(in->code)) {
	case BPF_LD:
		machine->a = load(machine, in, data);
		return 0;
	case BPF_LDX:
		machine->x = load(machine, in, data);
		return 0;
	case BPF_ST:
		machine->mem[in->k] = machine->a;
		return 0;
	case BPF_STX:
		machine->mem[in->k] = machine->x;
		return 0;
	case BPF_ALU:
		return run_alu(machine, in);
	case BPF_MISC:
		if (BPF_MISCOP(in->code) == BPF_TAX)
			machine->x = machine->a;
		else
			machine->a = machine->x;
		return 0;
	default:
		return -EINVAL;
	}
}

int bpfsim_run(const struct sock_filter *program, size_t n, const struct seccomp_data *data,
	       uint32_t *ret_action, size_t *ret_n_executed)
{
	struct machine machine = {0};
	size_t n_executed = 0;

	for (size_t at = 0; at < n; at++) {
		const struct sock_filter *in = &program[at];
		int r;

		n_executed++;
		if (BPF_CLASS(in->code) == BPF_RET) {
			*ret_action = BPF_RVAL(in->code) == BPF_A ? machine.a : in->k;
			if (ret_n_executed)
				*ret_n_executed = n_executed;
			return 0;
		}
		if (BPF_CLASS(in->code) == BPF_JMP) {
			at += jump_distance(&machine, in);
			continue;
		}
		r = step(&machine, in, data);
		if (r < 0)
			return r;
	}
	return -EINVAL;
}
