/*
 * What tenants use, kept up to date: processor time of sessions, by day, in the store as well.
 */
#pragma once

#include "supervisor/api/app.h"

/* At start, before sessions are taken: what was used today. 0 or -errno. */
MUST_USE int quotas_load(struct app *app);
/* Ask for the frames of all tenants' tasks that are in the store now. 0 or -errno. */
int quotas_count_frames(struct app *app);
/* Frames of the job from first_seq on go to the store; what its tenants have left bounds the next.
 */
void quotas_charge_frames(struct app *app, struct job *job, uint32_t first_seq);
/* Asks for the processor time of some sessions, and writes what has changed. */
void quotas_tick(struct app *app);
/* Nothing of the session's tree is left; it had used that much in all. */
void quotas_tree_gone(struct session *session, uint64_t cpu_us);
