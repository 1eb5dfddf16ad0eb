/*
 * Templates on the disk (sandboxd/template.h): their records, who uses them.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/template_name.h"

#include "sandboxd/template.h"

/* Of the template's folder. The descriptor of its record, read and checked, or -errno: -ENOENT:
 * there is none; -EPROTO: of another version; -EPERM: not a regular file of ours alone; -EINVAL: a
 * value that no release writes. */
MUST_USE int template_record_open(int folder_fd, struct template_record *ret_record);
/*
 * Use it from now on, until the descriptor and all its duplicates are closed. user: a number of the
 * host that nobody else has meanwhile, as the index of a session's id block. 0; -ENOENT: it is
 * being removed, or was; -errno.
 */
MUST_USE int template_hold(int record_fd, uint32_t user);
/* How many hold it, or -errno. */
MUST_USE int template_count_users(int record_fd, uint32_t *ret_n);
