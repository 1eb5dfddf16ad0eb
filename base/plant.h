/*
 * Faults that a test build can plant, so that tests/chaos and tests/escape show that they would be
 * noticed: comma separated names in the environment variable SANDBOX_PLANT. A release build has
 * none of it: every question is a constant false there.
 */
#pragma once

#include <stdbool.h>

#ifdef SANDBOXD_TEST_HOOKS
/* Whether that variable names it. */
bool plant_listed(const char *variable, const char *name);
bool planted(const char *name);
/* Every n-th question is answered with true, where it is planted. One plant at a time. */
bool planted_nth(const char *name, unsigned int n);
/* The variable as an environment has it, for a program that is started; NULL: not set. */
char *plant_environment(void);
#else
static inline bool planted(const char *name)
{
	(void)name;
	return false;
}
static inline bool planted_nth(const char *name, unsigned int n)
{
	(void)name;
	(void)n;
	return false;
}
static inline char *plant_environment(void)
{
	return (char *)0;
}
#endif
