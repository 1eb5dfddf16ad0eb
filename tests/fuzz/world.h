/*
 * What the targets that unpack share: the archive as a file, and a folder of their own.
 */
#pragma once

#include <fts.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define WORLD_TOP_BYTES 64

/* The bytes as a file, at its end. The sums of tar's headers are put right first, so that a change
 * of one is not all that is tried. */
int world_archive(const uint8_t *data, size_t size);
/* A new folder, in memory where that is possible: a deep tree takes a disk seconds. Its descriptor
 * and name. */
int world_top(char ret_top[WORLD_TOP_BYTES]);
/* What is in the folder `name` of it. To be closed with fts_close; the calling process stands in it
 * meanwhile. */
FTS *world_open_tree(const char *top, const char *name, char path[PATH_MAX]);
