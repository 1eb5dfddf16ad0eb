/*
 * What a running service says of its configuration. Doctor needs none: no answer is no finding.
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#include "ctl/client.h"
#include "ctl/doctor.h"

/* What /v1/config answered, or NULL: doctor's checks take no argument, and a process runs them
 * once. */
/* NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables) */
static json_t *state;

void doctor_ask_service(struct client *client)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_request request = {
		.method = "GET", .path = "/v1/config", .idle_ms = DOCTOR_ANSWER_MS};

	if (client_perform(client, &request, &reply) == 0 && reply.status == 200)
		state = json_incref(reply.doc);
}

void doctor_forget_service(void)
{
	json_decref(state);
	state = NULL;
}

static enum doctor_state name_endpoints(const char *key, const char *none,
					char text[DOCTOR_TEXT_BYTES])
{
	const json_t *names = json_object_get(json_object_get(state, "production"), key);
	const json_t *name;
	size_t i;

	if (!json_is_array(names) || json_array_size(names) == 0) {
		doctor_text(text, "%s",
			    json_is_array(names) ? none : "not known: no service answers that");
		return DOCTOR_OK;
	}
	json_array_foreach(names, i, name)
	{
		size_t used = strlen(text);

		/* Six names fit. */
		IGNORE_RESULT(str_format(text + used, DOCTOR_TEXT_BYTES - used, "%s%s",
					 i > 0 ? ", " : "",
					 json_is_string(name) ? json_string_value(name) : "?"));
	}
	return DOCTOR_DEGRADED;
}

enum doctor_state doctor_production_names(char text[DOCTOR_TEXT_BYTES])
{
	return name_endpoints("known_by_name_only", "no endpoint has names of production alone",
			      text);
}

enum doctor_state doctor_snapshot_store(char text[DOCTOR_TEXT_BYTES])
{
	const json_t *store = json_object_get(state, "snapshot_store");
	const char *name = json_string_value(json_object_get(store, "store"));
	const char *failure = json_string_value(json_object_get(store, "failure"));

	if (!name)
		doctor_text(text, "not known: no service answers that");
	else if (failure)
		doctor_text(text, "%s: %s", name, failure);
	else
		doctor_text(text, "%s", name);
	return failure ? DOCTOR_DEGRADED : DOCTOR_OK;
}

enum doctor_state doctor_shared_hosts(char text[DOCTOR_TEXT_BYTES])
{
	return name_endpoints("reachable_by_credentials", "no endpoint trusts credentials", text);
}
