/*
 * Names of entries in an archive: what is taken is a path that is safe below a folder, is taken
 * again as it came out, and lies below a workspace only where it does by its components.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/path.h"
#include "base/str.h"

#include "jail/archive/name.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const workspace[] = {"session", "tmp/made"};
	static const char *const patterns[] = {"node_modules", "/session/target", "build/*.o"};
	char path[ARCHIVE_PATH_MAX + 1];
	char again[ARCHIVE_PATH_MAX + 1];
	AUTO_FREE char *name = malloc(size + 1);

	ASSERT(name);
	memcpy(name, data, size);
	name[size] = '\0';
	if (name_normalize(name, path) != ARCHIVE_E_NONE)
		return 0;
	ASSERT(strlen(path) <= ARCHIVE_PATH_MAX);
	ASSERT(path_check_relative(path) == 0);
	ASSERT(name_normalize(path, again) == ARCHIVE_E_NONE && str_equal(path, again));
	if (name_is_below(path, workspace, ARRAY_SIZE(workspace)))
		ASSERT(str_equal(path, "session") || str_equal(path, "tmp/made") ||
		       str_has_prefix(path, "session/") || str_has_prefix(path, "tmp/made/"));
	IGNORE_RESULT(name_is_excluded(path, patterns, ARRAY_SIZE(patterns)));
	return 0;
}
