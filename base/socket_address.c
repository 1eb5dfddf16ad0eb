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

bool socket_address_read(const struct sockaddr *from, struct egress_address *ret_address)
{
	const struct sockaddr_in *v4 = (const void *)from;
	const struct sockaddr_in6 *v6 = (const void *)from;

	memset(ret_address, 0, sizeof(*ret_address));
	if (from->sa_family == AF_INET) {
		memcpy(ret_address->bytes, &v4->sin_addr, sizeof(v4->sin_addr));
		ret_address->prefix = 32;
	} else if (from->sa_family == AF_INET6) {
		memcpy(ret_address->bytes, &v6->sin6_addr, sizeof(v6->sin6_addr));
		ret_address->prefix = 128;
	} else {
		return false;
	}
	ret_address->family = from->sa_family;
	return true;
}
