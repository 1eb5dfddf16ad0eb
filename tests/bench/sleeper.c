/*
 * What the floor executes: one ready byte on descriptor 3, then it waits to be killed. No libc.
 */
__attribute__((noreturn, used)) void _start(void);

static long call3(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

__attribute__((noreturn, used)) void _start(void)
{
	static const char ready = 'R';

	(void)call3(1, 3, (long)&ready, 1); /* write */
	for (;;)
		(void)call3(34, 0, 0, 0); /* pause */
}
