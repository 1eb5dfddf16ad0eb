#include "base/host_service.h"

#include <string.h>

#include "base/path.h"

static uint64_t hash(uint64_t value, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++)
		value = (value ^ bytes[i]) * 0x100000001b3u;
	return value;
}

bool host_service_path_valid(const char *path, size_t length)
{
	char copy[CONFIG_SOCKET_BYTES];

	if (length < 2 || length >= sizeof(copy) || path[0] != '/')
		return false;
	for (size_t i = 0; i < length; i++)
		if (path[i] <= ' ' || path[i] > '~')
			return false;
	memcpy(copy, path, length);
	copy[length] = '\0';
	return path_check_relative(copy + 1) == 0;
}

uint64_t host_service_id(const struct config_host_service *service)
{
	uint64_t value = 0xcbf29ce484222325u;

	/* With the NULs, so that no two of them run together. */
	value = hash(value, service->name, strlen(service->name) + 1);
	value = hash(value, &service->name_port, sizeof(service->name_port));
	value = hash(value, service->path, strlen(service->path) + 1);
	return value ? value : 1;
}
