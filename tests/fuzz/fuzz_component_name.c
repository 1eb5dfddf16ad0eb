/*
 * Component names: the first byte chooses the mode, the rest is the name. What is taken must be a
 * name that is safe to join to a folder, and must be taken again as it came out.
 */
#include <string.h>

#include "base/err.h"
#include "base/path.h"
#include "base/str.h"

#include "supervisor/api/session/component_name.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char file[COMPONENT_FILE_BYTES];
	char again[COMPONENT_FILE_BYTES];
	enum component_name_mode mode;
	enum component_name_reason reason;

	if (size < 1)
		return 0;
	mode = data[0] & 1 ? COMPONENT_NAME_COMPATIBLE : COMPONENT_NAME_STRICT;
	if (component_name_check((const char *)data + 1, size - 1, mode, file, &reason) != 0) {
		ASSERT(reason != COMPONENT_NAME_OK);
		return 0;
	}
	ASSERT(reason == COMPONENT_NAME_OK);
	ASSERT(strlen(file) < sizeof(file));
	ASSERT(str_has_suffix(file, ".yaml") || str_has_suffix(file, ".yml"));
	ASSERT(path_check_relative(file) == 0);
	ASSERT(str_utf8_valid(file, strlen(file)));
	if (mode == COMPONENT_NAME_STRICT)
		ASSERT(str_only(file, strlen(file), "._-") && file[0] != '.' && file[0] != '-');
	ASSERT(component_name_check(file, strlen(file), mode, again, NULL) == 0);
	ASSERT(strcmp(file, again) == 0);
	return 0;
}
