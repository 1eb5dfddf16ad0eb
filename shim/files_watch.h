/*
 * What changes in a folder, for the file helper (WIRE_FILE_WATCH).
 */
#pragma once

#include "base/auto.h"

struct files_operation;

/* Until pid 1 closes its socket or the pipe, or the folder is gone: 0. Or -errno: before the first
 * event the folder cannot be watched. */
MUST_USE int files_watch(const struct files_operation *operation);
