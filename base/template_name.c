#include "base/template_name.h"

#include <string.h>

#include "sandboxd/template.h"

static bool is_alphanumeric(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool template_name_is_valid(const char *name)
{
	size_t n = strnlen(name, TEMPLATE_NAME_BYTES);

	if (n == 0 || n == TEMPLATE_NAME_BYTES || !is_alphanumeric(name[0]))
		return false;
	for (size_t i = 1; i < n; i++) {
		if (!is_alphanumeric(name[i]) && !strchr("._-", name[i]))
			return false;
	}
	return true;
}
