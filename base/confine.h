/*
 * Confinement that a process takes upon itself: one system call each, nothing to undo.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"

struct sock_filter;

/* In a sanitizer build, whose runtime opens files of /proc when it reports: a program skips then
 * what would refuse that, and says so in its log. */
#if defined(__SANITIZE_ADDRESS__)
#define CONFINE_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CONFINE_SANITIZED true
#endif
#endif
#ifndef CONFINE_SANITIZED
#define CONFINE_SANITIZED false
#endif

/* PR_SET_NO_NEW_PRIVS: no exec gains anything any more (B12). 0 or -errno. */
MUST_USE int confine_no_new_privs(void);

/* PR_SET_DUMPABLE 0: no core, no ptrace, /proc/PID owned by root (A1, A12). An exec of another
 * program undoes it. 0 or -errno. */
MUST_USE int confine_not_dumpable(void);

/* No file can be opened, made, listed or run by any path any more, no abstract socket of others be
 * reached, no other process be signalled, no TCP port be taken; what is open stays usable. Sets
 * no_new_privs as well. 0, also where the kernel has no Landlock or does not use it (a seccomp
 * filter follows); -errno. */
MUST_USE int confine_no_files(void);
/* As above, but files at or below `path` can be read. */
MUST_USE int confine_reads_below(const char *path);
/* As above, but for the regular files below `path`: all but to run them. */
MUST_USE int confine_folder(const char *path);
/* Both. */
MUST_USE int confine_folder_and_reads(const char *path, const char *read_path);

/* Take a seccomp filter; no_new_privs must be set. 0 or -errno. */
MUST_USE int confine_seccomp(const struct sock_filter *filter, size_t n);
