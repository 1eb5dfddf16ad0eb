/*
 * The provider `fake`, of tests alone: requests of launch.h on a socket whose other end, the test,
 * answers what it wants, when it wants, and as often. It is in no product: it is in the table of
 * the tests' own api worker (worker_fake.c).
 */
#pragma once

#include "supervisor/api/provider.h"

#define PROVIDER_FAKE_FD WORKER_FD_NEXT_

extern const struct provider provider_fake;

/* Before the worker runs. The deadline of each request in the list (its bit is the half of its
 * launch_type) is over before any answer can come; of the others none is ever over. */
void provider_fake_begin(uint64_t is_late);
