#include "supervisor/egress/descriptors.h"

#include "sandboxd/launch.h"
#include "supervisor/egress/pump.h"
#include "supervisor/egress/worker.h"

#define FIXED       64u  /* our own sockets, and messages with descriptors on their way */
#define OF_RESOLVER 256u /* its sockets at most */
#define SHARED      (FIXED + OF_RESOLVER + 2 * (PUMP_POOL_MAX + PUMP_POOL_KEPT) + DIAL_RACING_MAX)

uint32_t descriptors_connections(uint64_t max_files)
{
	uint64_t n_sessions = max_files > FILES_OF_SUPERVISOR
				      ? (max_files - FILES_OF_SUPERVISOR) / FILES_OF_SESSION
				      : 0;
	uint64_t left = max_files - n_sessions * LAUNCH_NET_FDS;
	uint64_t shared = left / 4 < SHARED ? left / 4 : SHARED;
	uint64_t n = (left - shared) / 2; /* each relayed one has two */

	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}
