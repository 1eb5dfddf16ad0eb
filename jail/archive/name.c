#include "jail/archive/name.h"

#include <fnmatch.h>
#include <string.h>

#include "base/path.h"
#include "base/str.h"

int name_normalize(const char *name, char ret_path[ARCHIVE_PATH_MAX + 1])
{
	size_t length;

	while (str_has_prefix(name, "./"))
		name += 2;
	length = strnlen(name, (size_t)ARCHIVE_PATH_MAX + 2);
	/* One, as tar has it behind a folder. */
	if (length > 1 && name[length - 1] == '/')
		length--;
	if (length == 0 || length > ARCHIVE_PATH_MAX)
		return ARCHIVE_E_NAME;
	memcpy(ret_path, name, length);
	ret_path[length] = '\0';
	return path_check_relative(ret_path) < 0 ? ARCHIVE_E_NAME : ARCHIVE_E_NONE;
}

bool name_is_below(const char *path, const char *const *paths, size_t n_paths)
{
	for (size_t i = 0; i < n_paths; i++) {
		size_t length = strlen(paths[i]);

		if (strncmp(path, paths[i], length) == 0 &&
		    (path[length] == '\0' || path[length] == '/'))
			return true;
	}
	return false;
}

bool name_is_excluded(const char *path, const char *const *patterns, size_t n_patterns)
{
	for (size_t i = 0; i < n_patterns; i++) {
		const char *pattern = patterns[i];
		bool is_anchored = pattern[0] == '/';

		for (const char *at = path; at; at = strchr(at, '/')) {
			at += *at == '/';
			if (fnmatch(pattern + is_anchored, at, FNM_PATHNAME) == 0)
				return true;
			if (is_anchored)
				break;
		}
	}
	return false;
}
