/*
 * What sandboxd-provider finds after its exec. Its requests are those of launch.h, on the socket
 * pair that LAUNCH_EVENT_LINK brings to it and to the api worker.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/worker.h"

/* The engine's socket as it was found at the worker's start; an O_PATH descriptor, which connect()
 * takes by this name. */
#define PROVIDER_ENGINE_PATH "/proc/self/fd/9"

#define PROVIDER_PATH_BYTES 256

#define PROVIDER_CREDENTIAL_BYTES 1024 /* of the file at most, its line's end included */

struct provider_config {
	uint32_t magic; /* CONFIG_MAGIC */
	uint16_t version;
	uint16_t zero16;
	uint32_t size;
	uint32_t zero;
	char url[CONFIG_ORIGINS_BYTES];   /* of a remote service; "": a Docker Engine */
	char image[CONFIG_ORIGINS_BYTES]; /* of every sandbox; a remote service's: its template */
	char programs_dir[PROVIDER_PATH_BYTES]; /* ours, as the engine's host names it */
};
