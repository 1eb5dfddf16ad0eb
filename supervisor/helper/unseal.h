/*
 * Mode `unseal`: one request, the sealed store and its key as descriptors; one report to the
 * supervisor, then the values to the session's shim.
 */
#pragma once

/* Runs as the helper's own id, in an empty root, confined. The exit status. */
int unseal_run(void);
