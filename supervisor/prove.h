/*
 * Proof of effect: what is in force for a session, read back from the kernel after its launch.
 */
#pragma once

#include <stdbool.h>

struct session;

/* What is settled while the child still works: limits of the groups. */
void prove_early(struct session *session);
/* The rest, when the shim says that it is confined. */
void prove_late(struct session *session);
/* Every bit that the plan asks for on this host was seen. */
bool prove_holds(const struct session *session);
