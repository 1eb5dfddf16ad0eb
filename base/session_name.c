#include "base/session_name.h"

#include <string.h>

#define ID_CHARACTERS "0123456789abcdef-"

static bool may_begin(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool session_name_valid(const char *text, size_t length)
{
	bool like_an_id = true;

	if (length == 0 || length > SESSION_NAME_MAX || !may_begin(text[0]))
		return false;
	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (!may_begin(c) && c != '.' && c != '_' && c != '-')
			return false;
		if (!strchr(ID_CHARACTERS, c))
			like_an_id = false;
	}
	return !like_an_id;
}
