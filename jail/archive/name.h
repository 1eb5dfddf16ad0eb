/*
 * Names in an archive. Pure: what a hostile archive may call its entries is decided here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"

#include "sandboxd/archive.h"

/* A name as other programs write it ("./a/b/", "a/b") as a path whose components are names: not
 * empty, not absolute, no "." or "..", none too long. 0, or the enum archive_error, positive. */
MUST_USE int name_normalize(const char *name, char ret_path[ARCHIVE_PATH_MAX + 1]);
/* path is at one of the paths, or below. */
bool name_is_below(const char *path, const char *const *paths, size_t n_paths);
/*
 * path, relative to the root, matches a pattern of fnmatch(3) in which '*' and '?' match no slash:
 * one with a leading slash from the root on, any other from any component on ("node_modules",
 * "build" followed by a slash and "*.o").
 */
bool name_is_excluded(const char *path, const char *const *patterns, size_t n_patterns);
