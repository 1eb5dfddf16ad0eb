#include "base/socket_address.h"

#include <string.h>

socklen_t socket_address_of(const struct egress_address *address, uint32_t port,
			    union socket_address *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (address->family == AF_INET) {
		ret->v4.sin_family = AF_INET;
		ret->v4.sin_port = htons((uint16_t)port);
		memcpy(&ret->v4.sin_addr, address->bytes, sizeof(ret->v4.sin_addr));
		return sizeof(ret->v4);
	}
	ret->v6.sin6_family = AF_INET6;
	ret->v6.sin6_port = htons((uint16_t)port);
	memcpy(&ret->v6.sin6_addr, address->bytes, sizeof(ret->v6.sin6_addr));
	return sizeof(ret->v6);
}
