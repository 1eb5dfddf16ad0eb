/*
 * A connection of Airbyte as a component: its file's name and its document. Pure. Names and ids are
 * another program's words; nothing else of a connection is looked at.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/buf.h"

#include "sandboxd/worker.h"

#define AIRBYTE_SLUG_MAX   64
/* With `_` and eight of the id, and the NUL. */
#define AIRBYTE_SLUG_BYTES (AIRBYTE_SLUG_MAX + 1 + 8 + 1)
#define AIRBYTE_NAME_MAX   1024 /* bytes of a display name in a document */

/*
 * The display name in lower case, everything but letters and digits a single `_`; `airbyte_` with
 * eight of the id where nothing is left. 0; -EINVAL: empty, or it holds a NUL or a way out of a
 * folder.
 */
MUST_USE int airbyte_slug(const char *name, size_t length, const char *id,
			  char ret_slug[AIRBYTE_SLUG_BYTES]);
/* The same with `_` and eight of the id behind it: another file has the plain one, or it is the
 * name of a device. */
void airbyte_slug_with_id(char slug[AIRBYTE_SLUG_BYTES], const char *id);

struct airbyte_source {
	const char *name;
	size_t name_length;
	const char *connection_id; /* Airbyte's; where it is none, the name selects */
};

/*
 * The component's YAML. 0; -EINVAL: neither its id nor its name can be used; -ENOMEM; -EMSGSIZE of
 * the buffer.
 */
MUST_USE int airbyte_document(const struct airbyte_source *source, const struct api_config *config,
			      struct buf *ret_text);
