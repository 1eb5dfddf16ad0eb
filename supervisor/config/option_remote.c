#include "supervisor/config/option_remote.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/config/option_s3.h"

#define HTTPS "https://"
#define HTTP  "http://"

int option_remote_set_url(const struct option_row *row, const char *value,
			  struct config_answer *answer)
{
	bool is_plain = str_has_prefix(value, HTTP);
	const char *place = value + strlen(is_plain ? HTTP : HTTPS);
	size_t length = strlen(value);
	const char *path;

	(void)row;
	if (!is_plain && !str_has_prefix(value, HTTPS))
		return -EINVAL;
	if (length > 0 && value[length - 1] == '/')
		length--;
	if (length >= sizeof(answer->supervisor.remote.url))
		return -EINVAL;
	path = place + strcspn(place, "/");
	if (!str_only(path, strlen(path), "/._-") || strstr(path, "..") || strstr(path, "//") ||
	    option_s3_check_place(place, (size_t)(path - place), is_plain) < 0)
		return -EINVAL;
	memset(answer->supervisor.remote.url, 0, sizeof(answer->supervisor.remote.url));
	memcpy(answer->supervisor.remote.url, value, length);
	return 0;
}
