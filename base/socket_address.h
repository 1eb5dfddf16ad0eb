/*
 * An address of the contracts (sandboxd/egress.h) as the kernel takes it.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "sandboxd/egress.h"

union socket_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage storage;
};

/* Its size. A family that is not AF_INET is taken for AF_INET6. */
socklen_t socket_address_of(const struct egress_address *address, uint32_t port,
			    union socket_address *ret);
/* The other way, without the port. False: of another family. */
bool socket_address_read(const struct sockaddr *from, struct egress_address *ret_address);
