/*
 * The Docker Engine API, as far as it is needed: one container a sandbox, named by it.
 */
#pragma once

#include "base/auto.h"
#include "base/loop.h"

#include "sandboxd/provider.h"
#include "supervisor/provider/engine.h"

struct docker_options {
	struct loop *loop;
	const struct provider_config *config; /* kept by pointer */
	const char *instance;                 /* the same */
};
MUST_USE int docker_new(const struct docker_options *options, struct engine **ret_engine);
