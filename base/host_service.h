/*
 * Services of this host that are Unix sockets, as the operator lists them. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandboxd/worker.h"

/* Absolute, no empty component, "." or "..", printable, short enough for a socket's address. */
bool host_service_path_valid(const char *path, size_t length);
/* What an egress worker names it by: it follows from name, port and path, so that a worker that has
 * not heard of another configuration yet asks for nothing else. Never 0. */
uint64_t host_service_id(const struct config_host_service *service);
