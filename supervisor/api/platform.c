#include "supervisor/api/platform.h"

#include <errno.h>
#include <stdlib.h>

#include "supervisor/api/redis/client.h"

struct platform {
	struct redis_client *redis;
};

int platform_start(struct app *app)
{
	const struct redis_client_options options = {
		.event = app->event,
		.server = &app->config->platform.redis,
		.name = "platform",
	};
	int r;

	if (app->config->platform.redis.place.port == 0)
		return 0;
	app->platform = calloc(1, sizeof(*app->platform));
	if (!app->platform)
		return -ENOMEM;
	r = redis_client_new(&options, NULL, app, &app->platform->redis);
	if (r < 0)
		platform_stop(app);
	return r;
}

void platform_stop(struct app *app)
{
	if (!app->platform)
		return;
	app->platform->redis = redis_client_free(app->platform->redis);
	free(app->platform);
	app->platform = NULL;
}

void platform_observe(struct app *app)
{
	const struct redis_client *redis = app->platform ? app->platform->redis : NULL;

	readiness_set(&app->readiness, READINESS_REDIS, !redis || redis_client_is_up(redis),
		      redis ? redis_client_reason(redis) : NULL);
}
