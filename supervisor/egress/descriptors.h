/*
 * How many connections an egress worker may have with the descriptors that it can open. Pure.
 */
#pragma once

#include <stdint.h>

/* max_files: RLIMIT_NOFILE, which the supervisor has too. The sockets of as many sessions as that
 * one can have (limits.h) stay free, and a part for pipes, attempts and the resolver: those make do
 * with less, a session without its sockets would be none. */
uint32_t descriptors_connections(uint64_t max_files);
