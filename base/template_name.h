/*
 * Names of templates (sandboxd/template.h).
 */
#pragma once

#include <stdbool.h>

/* One that a folder may have, or TEMPLATE_BASE. */
bool template_name_is_valid(const char *name);
