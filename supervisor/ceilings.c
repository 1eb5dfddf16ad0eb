#include "supervisor/ceilings.h"

#include <stdbool.h>

void ceilings_init(struct ceilings *ceilings, const struct supervisor_config *config,
		   uint64_t host_memory_bytes, uint64_t max_files)
{
	uint64_t by_files = 0;

	if (max_files > FILES_OF_SUPERVISOR)
		by_files = (max_files - FILES_OF_SUPERVISOR) / FILES_OF_SESSION;
	*ceilings = (struct ceilings){
		.max_sessions_by_files = by_files < UINT32_MAX ? (uint32_t)by_files : UINT32_MAX,
		.host_memory_bytes = host_memory_bytes,
	};
	ceilings_configure(ceilings, config);
}

void ceilings_configure(struct ceilings *ceilings, const struct supervisor_config *config)
{
	ceilings->max_sessions = config->max_sessions;
	ceilings->max_memory_bytes = config->max_memory_bytes ? config->max_memory_bytes
							      : ceilings->host_memory_bytes / 5 * 4;
	ceilings->max_pids = config->max_pids;
	ceilings->session = config->session;
	ceilings->launch_interval = USEC_PER_SEC / config->max_launches_per_s;
}

/* Whether `more` fits. What is in use may be above a maximum that was lowered meanwhile. */
static bool has_room(uint64_t max, uint64_t used, uint64_t more)
{
	return used <= max && more <= max - used;
}

uint32_t ceilings_sessions(const struct ceilings *ceilings)
{
	return ceilings->max_sessions < ceilings->max_sessions_by_files
		       ? ceilings->max_sessions
		       : ceilings->max_sessions_by_files;
}

static bool plan_is_within(const struct plan *plan, const struct session_ceilings *session)
{
	return plan->memory_bytes <= session->memory_bytes &&
	       plan->tmpfs_bytes <= session->tmpfs_bytes &&
	       plan->tmpfs_inodes <= session->tmpfs_inodes && plan->max_pids <= session->max_pids &&
	       plan->max_files <= session->max_files && plan->cpu_pct <= session->cpu_pct &&
	       plan->max_ptys <= session->max_ptys;
}

/*
 * The rate is a token bucket of one second's launches, written as the time at which the next launch
 * would be due if they came evenly (GCRA): a burst may run ahead of the clock by one second.
 */
enum launch_error ceilings_take(struct ceilings *ceilings, const struct plan *plan, usec_t now)
{
	usec_t due = ceilings->launch_next > now ? ceilings->launch_next : now;

	if (!plan_is_within(plan, &ceilings->session))
		return LAUNCH_E_PLAN;
	if (ceilings->n_sessions >= ceilings->max_sessions)
		return LAUNCH_E_SESSIONS;
	if (ceilings->n_sessions >= ceilings->max_sessions_by_files)
		return LAUNCH_E_DESCRIPTORS;
	if (!has_room(ceilings->max_memory_bytes, ceilings->memory_bytes, plan->memory_bytes))
		return LAUNCH_E_MEMORY;
	if (!has_room(ceilings->max_pids, ceilings->n_pids, plan->max_pids))
		return LAUNCH_E_PIDS;
	if (due - now > USEC_PER_SEC - ceilings->launch_interval)
		return LAUNCH_E_RATE;
	ceilings->launch_next = due + ceilings->launch_interval;
	ceilings_count(ceilings, plan);
	return LAUNCH_E_NONE;
}

void ceilings_count(struct ceilings *ceilings, const struct plan *plan)
{
	ceilings->n_sessions++;
	ceilings->memory_bytes += plan->memory_bytes;
	ceilings->n_pids += plan->max_pids;
}

void ceilings_give(struct ceilings *ceilings, const struct plan *plan)
{
	ASSERT(ceilings->n_sessions > 0);
	ASSERT(ceilings->memory_bytes >= plan->memory_bytes);
	ASSERT(ceilings->n_pids >= plan->max_pids);
	ceilings->n_sessions--;
	ceilings->memory_bytes -= plan->memory_bytes;
	ceilings->n_pids -= plan->max_pids;
}
