/*
 * The two halves of sandbox-contain. Both return only to end the process: its exit status.
 */
#pragma once

/* argv: SESSION PROFILE MAX_FILES. Becomes the shim. */
int contain_start(char *argv[]);
/* Until either end is closed. */
int contain_connect(void);
