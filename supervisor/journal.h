/*
 * The system's journal, where standard error leads there (JOURNAL_STREAM): lines then go to it by
 * its native protocol, with their fields.
 */
#pragma once

/* A host path, so before the process leaves the host's mount namespace. The descriptor, or -1:
 * there is no journal, and standard error is what there is. */
int journal_open(void);
