#include "supervisor/api/settings.h"

#include <string.h>

#include "base/log.h"
#include "base/str.h"

#include "sandboxd/config.h"
#include "supervisor/api/config.h"
#include "supervisor/api/egress.h"
#include "supervisor/api/egress/policy.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/snapshot.h"
#include "supervisor/api/snapshot_remote.h"

void settings_spread(struct app *app)
{
	const struct api_config *config = app->config;

	app->summary.host = "local";
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		app->summary.operator_default[i] = config->endpoint_default_set & (1u << i)
							   ? config->endpoint_default[i]
							   : NULL;
}

void settings_take(struct app *app, const struct launch_config *state, int fd)
{
	AUTO_CLOSE int config_fd = fd;
	AUTO(config_free) struct api_config *config = NULL;
	struct err err = ERR_NULL;

	app->config_state = *state;
	str_printable(app->config_state.text);
	str_printable(app->config_state.waiting);
	readiness_set(&app->readiness, READINESS_CONFIG, !state->refused, app->config_state.text);
	if (config_fd < 0)
		return;
	if (config_read(config_fd, &config, &err) < 0) {
		log_err(LOG_LEVEL_ERROR, NULL, "the former configuration stays", &err);
		readiness_set(&app->readiness, READINESS_CONFIG, false,
			      "the api worker cannot read it");
		return;
	}
	if (snapshots_take_keys(app, config) < 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "the former configuration stays", "reason=memory");
		return;
	}
	*app->config = *config;
	settings_spread(app);
	snapshots_tell_missing_keys(app);
	egress_push_all(app);
}

static json_t *word_list(const char *words)
{
	json_t *list = json_array();

	while (*words) {
		size_t length = strcspn(words, " ");

		if (length > 0)
			(void)json_array_append_new(list, json_stringn(words, length));
		words += length + strspn(words + length, " ");
	}
	return list;
}

/* Of sandboxes that name none. */
static json_t *provider_describe(const struct app *app)
{
	bool by_variable = app->config->provider_by_variable != 0;

	return json_pack("{s:s, s:s}", "name", provider_by_default(app)->name, "from",
			 by_variable ? CONFIG_PROVIDER_VARIABLE : "configuration");
}

void action_config(struct request *request)
{
	const struct launch_config *state = &request_app(request)->config_state;
	char at[CLOCK_ISO_BYTES];

	clock_format_iso(state->at, at);
	reply_json(request, MHD_HTTP_OK,
		   json_pack("{s:i, s:s, s:b, s:s, s:o, s:o, s:o, s:o, s:o}", "generation",
			     (int)state->generation, "at", at, "refused", state->refused ? 1 : 0,
			     "text", state->text, "needs_restart", word_list(state->waiting),
			     "provider", provider_describe(request_app(request)), "production",
			     production_describe(request_app(request)->config), "snapshot_keys",
			     snapshot_keys_describe(request_app(request)), "snapshot_store",
			     snapshot_store_describe(request_app(request))));
}
