/*
 * A service elsewhere that makes sandboxes: the dialect of docs/providers.md.
 */
#pragma once

#include "base/auto.h"

#include "sandboxd/provider.h"
#include "supervisor/provider/engine.h"
#include "supervisor/provider/remote_client.h"

struct remote_options {
	struct loop *loop;
	struct remote_client *client;
	const struct provider_config *config; /* kept by pointer */
	const char *instance;                 /* the same */
};
MUST_USE int remote_new(const struct remote_options *options, struct engine **ret_engine);
