#include <string.h>

#include "base/str.h"

#include "supervisor/s3/s3_state.h"

bool s3_key_is_plain(const char *key)
{
	return key[0] != '\0' && str_only(key, strlen(key), "/._-") && !strstr(key, "..") &&
	       !strstr(key, "//");
}
