#include "supervisor/api/provider.h"

#include <errno.h>

#include "base/str.h"

#include "supervisor/api/app.h"

static bool is_never(const struct app *app)
{
	(void)app;
	return false;
}

static int ask_nobody(struct app *app, const struct id *id, supervisor_answer answer,
		      void *userdata)
{
	(void)app;
	(void)id;
	(void)answer;
	(void)userdata;
	return -ENODEV;
}

static int create_nothing(struct app *app, const struct session *session,
			  const struct provider_create *create, supervisor_answer answer,
			  void *userdata)
{
	(void)session;
	(void)create;
	return ask_nobody(app, NULL, answer, userdata);
}

static int connect_nothing(struct app *app, supervisor_answer answer, void *userdata)
{
	return ask_nobody(app, NULL, answer, userdata);
}

static int delete_nothing(struct app *app, const struct id *owner, json_t *reference)
{
	(void)app;
	(void)owner;
	(void)reference;
	return -ENODEV;
}

const struct provider provider_absent = {
	.name = "",
	.is_configured = is_never,
	.is_reachable = is_never,
	.create = create_nothing,
	.connect = connect_nothing,
	.destroy = ask_nobody,
	.persist = ask_nobody,
	.persist_open = ask_nobody,
	.persist_close = ask_nobody,
	.resume = ask_nobody,
	.stat = ask_nobody,
	.proof = ask_nobody,
	.trace = ask_nobody,
	.delete_snapshot = delete_nothing,
};

const struct provider *provider_find(const char *name)
{
	if (name[0] == '\0')
		return &provider_native;
	for (size_t i = 0; providers[i]; i++)
		if (str_equal(providers[i]->name, name))
			return providers[i];
	return &provider_absent;
}

const struct provider *provider_by_default(const struct app *app)
{
	for (uint32_t i = 0; providers[i]; i++)
		if (i == app->config->provider)
			return providers[i];
	return &provider_absent;
}

bool provider_is_configured(const struct app *app, const struct provider *provider)
{
	return !provider->is_configured || provider->is_configured(app);
}

bool provider_is_reachable(const struct app *app, const struct provider *provider)
{
	return !provider->is_reachable || provider->is_reachable(app);
}

json_t *provider_describe_all(const struct app *app)
{
	json_t *all = json_object();

	for (size_t i = 0; providers[i]; i++) {
		if (!provider_is_configured(app, providers[i]))
			continue;
		(void)json_object_set_new(all, providers[i]->name,
					  json_pack("{s:b, s:b, s:b, s:b}", "pause_resume",
						    providers[i]->can.pause_resume, "egress",
						    providers[i]->can.egress, "root",
						    providers[i]->can.root, "secrets",
						    providers[i]->can.secrets));
	}
	return all;
}
