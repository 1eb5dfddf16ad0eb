#include "supervisor/api/http/features.h"

#include <string.h>

#include "base/auto.h"
#include "base/str.h"

#include "sandboxd/api.h"

#define DAGSTER(p) API_PREFIX_DAGSTER p
#define SANDBOX(p) API_PREFIX_RUNTIME p

/* The longest pattern counts that a route's is, or, is_below, begins with. */
static const struct {
	const char *pattern;
	bool is_below;
	const char *name;
} rows[] = {
	{DAGSTER(""),			    true,  "dagster"  },
	{DAGSTER("/airbyte-connections"),        true,  "airbyte"  },
	{DAGSTER("/sessions/{id}/airbyte"),      false, "airbyte"  },
	{DAGSTER("/sessions/{id}/denials"),      false, "denials"  },
	{DAGSTER("/sessions/{id}/egress"),       false, "egress"   },
	{DAGSTER("/tasks/{id}/stream"),          false, "streams"  },
	{DAGSTER("/quota"),                      false, "quota"    },
	{"/chat/stream",			 true,  "streams"  },
	{SANDBOX(""),			    false, "sandboxes"},
	{SANDBOX("/{id}"),                       false, "sandboxes"},
	{SANDBOX("/{id}/timeout"),               false, "sandboxes"},
	{SANDBOX("/{id}/proof"),                 false, "proof"    },
	{SANDBOX("/{id}/trace"),                 false, "proof"    },
	{SANDBOX("/{id}/events"),                false, "events"   },
	{SANDBOX("/{id}/stats"),                 false, "stats"    },
	{SANDBOX("/{id}/denials"),               false, "denials"  },
	{SANDBOX("/{id}/egress"),                false, "egress"   },
	{SANDBOX("/{id}/commands"),              true,  "commands" },
	{SANDBOX("/{id}/commands/{cid}/attach"), false, "attach"   },
	{SANDBOX("/{id}/commands/{cid}/resize"), false, "pty"      },
	{SANDBOX("/{id}/files"),                 true,  "files"    },
	{SANDBOX("/{id}/files/watch"),           false, "watch"    },
	{SANDBOX("/{id}/git"),                   true,  "git"      },
	{SANDBOX("/{id}/suspend"),               false, "suspend"  },
	{SANDBOX("/{id}/resume"),                false, "suspend"  },
	{SANDBOX("/{id}/snapshots"),             true,  "snapshots"},
	{SANDBOX("/{id}/restore"),               false, "snapshots"},
	{"/healthz",			     false, NULL       },
	{"/readyz",			      false, NULL       },
	{"/metrics",			     false, NULL       },
	{"/openapi.json",                        false, NULL       },
	{"/v1/capabilities",                     false, NULL       },
	{"/v1/config",			   false, NULL       },
	{"/v1/log-level",                        false, NULL       },
};

bool feature_of_route(const struct route *route, const char **ret_name)
{
	size_t longest = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t length = strlen(rows[i].pattern);
		const char *rest = route->pattern + length;

		if (length < longest || !str_has_prefix(route->pattern, rows[i].pattern) ||
		    (rest[0] != '\0' && !(rows[i].is_below && rest[0] == '/')))
			continue;
		longest = length;
		*ret_name = rows[i].name;
	}
	return longest > 0;
}

static bool is_listed(const json_t *list, const char *name)
{
	size_t i;
	json_t *one;

	json_array_foreach(list, i, one)
	{
		if (str_equal(json_string_value(one), name))
			return true;
	}
	return false;
}

json_t *features_list(void)
{
	json_t *list = json_array();
	const struct route *route;
	const char *name;

	for (size_t i = 0; list && (route = routes_at(i)); i++)
		if (feature_of_route(route, &name) && name && !is_listed(list, name))
			(void)json_array_append_new(list, json_string(name));
	return list;
}
