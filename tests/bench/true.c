/*
 * The smallest static program: what floor_spawn and run_true execute, so that both measure the
 * launching and not a dynamic loader. No libc.
 */
__attribute__((noreturn, used)) void _start(void);

__attribute__((noreturn, used)) void _start(void)
{
	__asm__ volatile("mov $60, %%eax\n\txor %%edi, %%edi\n\tsyscall" ::: "rax", "rdi");
	__builtin_unreachable();
}
