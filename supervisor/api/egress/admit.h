/*
 * What a caller may ask for: endpoints and rules that name production, or places that no rule may
 * lead to, are refused when they are asked for, not when they are dialled. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/endpoint_value.h"

#include "sandboxd/egress.h"
#include "sandboxd/worker.h"

#define ADMIT_RULE_MAX_BYTES 400 /* of one */

/* NULL, or a constant text that says what is wrong and quotes nothing. */
MUST_USE const char *admit_endpoint(const struct api_config *config, const char *value,
				    const struct endpoint_value *read);
/* The same for the text of one rule. */
MUST_USE const char *admit_rule(const struct api_config *config, const char *text, size_t length);

/* The service of this host that the target names, or NULL. */
const struct config_host_service *admit_host_service(const struct network_config *network,
						     const struct endpoint_target *target);
/* localhost, or a loopback address: inside, that is the session itself. */
bool admit_is_loopback(const struct endpoint_target *target);
