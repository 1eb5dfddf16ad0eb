/*
 * What `sandboxctl template ls` prints.
 */
#pragma once

#include "base/auto.h"
#include "base/err.h"

#include "supervisor/template/store.h"

/* form: "table", "json" or "name". A store that is not open has TEMPLATE_BASE alone. 0, or -errno
 * with err. */
MUST_USE int list_print(const struct store *store, const char *form, struct err *err);
