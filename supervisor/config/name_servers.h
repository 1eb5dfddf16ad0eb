/*
 * The host's name servers, as resolv.conf(5) lists them. Pure.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

#include "sandboxd/worker.h"

/* Into the answer: the first CONFIG_MAX_NS of them; with none, what resolvers then take, which is
 * 127.0.0.1. A line that is not understood is left out, as resolvers do. */
void name_servers_read(const char *text, size_t size, struct egress_config *egress);
