/*
 * Modes `put`, `ls` and `rm`: root's own hands on the store, started by `sandboxctl secret`.
 */
#pragma once

#include "base/auto.h"

/*
 * argv: MODE STATE_DIR ...
 *
 *   put STATE_DIR NAME VARIABLE FLAGS [WORKSPACE...]
 *
 * with the value on standard input, VARIABLE "" for one made of NAME;
 *
 *   ls STATE_DIR table|json|name
 *   rm STATE_DIR NAME
 *
 * The exit status of sandboxctl.
 */
int seal_run(int argc, char **argv);
