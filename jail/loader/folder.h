/*
 * The components of a session folder: regular files at its top level.
 */
#pragma once

#include "base/auto.h"

struct report;

/*
 * Report every component of dir_fd, sorted by name, and the end, to out_fd. 0 or -errno: the folder
 * could not be read or the reader is gone.
 */
MUST_USE int folder_load(int dir_fd, struct report *report, int out_fd);
