/*
 * Names of ids: those that every session has come first, those of the image behind them.
 */
#pragma once

#include "base/auto.h"

#include "jail/template/tree.h"

/* Write etc/passwd and etc/group of the root anew. 0 or -1 (bounds_fail). */
MUST_USE int accounts_merge(struct tree *tree);
