/*
 * The static part of a session's /etc: made by us, plus a short list of harmless things of the
 * host's.
 */
#pragma once

#include "base/err.h"

#define ETC_TEMPLATE_HOSTNAME "sandbox"

/* Fill dest_fd (an empty directory of ours) from the table and from host_etc_fd. */
MUST_USE int etc_template_build(int dest_fd, int host_etc_fd, struct err *err);
/* What a session has in /etc over its template: names of itself and its resolver, never the
 * template's. */
MUST_USE int etc_template_frame(int dest_fd, struct err *err);
/* The part a worker of ours gets: certificates, resolver and user configuration. */
MUST_USE int etc_template_worker(int dest_fd, int host_etc_fd, struct err *err);
/* A file with this text below dir_fd; it must not exist. 0 or -errno. */
MUST_USE int etc_template_write(int dir_fd, const char *name, const char *text, unsigned int mode);
