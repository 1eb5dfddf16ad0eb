/*
 * What the api worker asks of the engine: launch.h over the socket pair between the two.
 */
#pragma once

#include "base/auto.h"
#include "base/loop.h"

#include "policy/image.h"
#include "supervisor/provider/engine.h"

struct service;

MUST_USE int service_new(struct loop *loop, struct engine *engine, const struct image *policy,
			 struct service **ret_service);
/* The api worker's socket, non-blocking; becomes ours in any case and replaces the former one: the
 * handles stay until somebody asks for what lives. */
void service_link(struct service *service, int fd);
