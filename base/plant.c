#include "base/plant.h"

#ifdef SANDBOXD_TEST_HOOKS

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "SANDBOX_PLANT"

bool plant_listed(const char *variable, const char *name)
{
	/* One thread and nobody calls setenv. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *text = getenv(variable);

	while (text && *text) {
		size_t length = strcspn(text, ",");

		if (strlen(name) == length && memcmp(text, name, length) == 0)
			return true;
		text += length;
		text += *text == ',';
	}
	return false;
}

bool planted(const char *name)
{
	return plant_listed(VARIABLE, name);
}

bool planted_nth(const char *name, unsigned int n)
{
	static unsigned int n_asked;

	return planted(name) && ++n_asked % n == 0;
}

char *plant_environment(void)
{
	for (char **entry = environ; *entry; entry++)
		if (strncmp(*entry, VARIABLE "=", sizeof(VARIABLE)) == 0)
			return *entry;
	return NULL;
}

#endif
