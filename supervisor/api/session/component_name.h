/*
 * The name rule for components (docs/THREATS.md A16). A name is an allowlist match or it is
 * refused; nothing is decoded, normalised or repaired, and a refused name is never echoed: logs
 * hold its length and the reason.
 *
 * One final `.yaml` or `.yml` is cut off. The stem matches [A-Za-z0-9][A-Za-z0-9._-]{0,127}, has no
 * trailing dot, and its part before the first dot is no reserved device name. Where the name had no
 * suffix, `.yaml` is appended.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

#include "sandboxd/limits.h"

enum component_name_mode {
	COMPONENT_NAME_STRICT,
	/* For older rows: up to eight such parts joined by single '/', and spaces and letters of
	 * the common scripts inside a part (only such as have one encoding, so that two names that
	 * look alike by composition cannot both exist). */
	COMPONENT_NAME_COMPATIBLE,
};

enum component_name_reason {
	COMPONENT_NAME_OK,
	COMPONENT_NAME_EMPTY,
	COMPONENT_NAME_TOO_LONG,
	COMPONENT_NAME_NUL,
	COMPONENT_NAME_CONTROL,
	COMPONENT_NAME_ENCODING,
	COMPONENT_NAME_SEPARATOR,
	COMPONENT_NAME_TOO_DEEP,
	COMPONENT_NAME_FIRST_CHARACTER,
	COMPONENT_NAME_CHARACTER,
	COMPONENT_NAME_TRAILING,
	COMPONENT_NAME_DEVICE,
	COMPONENT_NAME_REASON_MAX_,
};

#define COMPONENT_NAME_MAX_PARTS 8
/* Canonical file name of either mode, with suffix and NUL. */
#define COMPONENT_FILE_BYTES                                                                       \
	(COMPONENT_NAME_MAX_PARTS * (COMPONENT_STEM_MAX + 1) - 1 + sizeof(".yaml"))

/*
 * Check `length` bytes of name (NUL bytes among them are seen) and write the canonical file name
 * with its suffix. 0; 1 (COMPONENT_NAME_E_REFUSED) and ret_file is untouched. ret_reason may be
 * NULL; it is always set.
 */
#define COMPONENT_NAME_E_REFUSED 1
MUST_USE int component_name_check(const char *name, size_t length, enum component_name_mode mode,
				  char ret_file[COMPONENT_FILE_BYTES],
				  enum component_name_reason *ret_reason);

/* A word for logs. */
const char *component_name_reason_text(enum component_name_reason reason);
