/*
 * Theory. A reload has one point of no return: until the groups of all sessions have taken their
 * new totals, every error leaves what was in force, and what follows cannot fail. Options that only
 * a start can change keep their values and are named. The api worker gets its part as a new sealed
 * descriptor; one that dies meanwhile starts with the same struct.
 */
#include "supervisor/reload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

#include "supervisor/config_check.h"
#include "supervisor/host.h"
#include "supervisor/serve.h"
#include "supervisor/workers.h"

static void settle_level(struct reload *reload, struct config_answer *config)
{
	if (reload->level)
		config->api.log_level = (uint32_t)*reload->level;
}

int reload_first(struct reload *reload, const struct host *host, struct err *err)
{
	int r = config_run(host, &reload->source, &reload->config, reload->state.text, err);

	if (r < 0)
		return r;
	settle_level(reload, &reload->config);
	log_set_level((enum log_level)reload->config.api.log_level);
	log_set_format((enum log_format)reload->config.supervisor.log_format);
	reload->state.at = clock_realtime();
	return 0;
}

static int configure_host(struct host *host, const struct config_answer *config,
			  const struct serve *serve, struct err *err)
{
	const struct ceilings ceilings = serve_ceilings(serve, &config->supervisor);
	const struct host_configuration configuration = {
		.userns_reserve = config->supervisor.userns_reserve,
		.strict = config->supervisor.strict != 0,
		.max_memory_bytes = ceilings.max_memory_bytes,
		.max_pids = ceilings.max_pids,
	};

	return host_configure(host, &configuration, err);
}

/* 0: it is in force; else nothing has changed. */
static int take_effect(struct reload *reload, struct config_answer *config, struct host *host,
		       struct serve *serve, struct err *err)
{
	int r;

	config_keep(&reload->config, config, reload->state.waiting, sizeof(reload->state.waiting));
	r = configure_host(host, config, serve, err);
	if (r < 0) {
		struct err again = ERR_NULL;

		/* What was in force a moment ago fits. */
		if (configure_host(host, &reload->config, serve, &again) < 0)
			log_err(LOG_LEVEL_ERROR, NULL, "limits of all sessions", &again);
		return r;
	}
	settle_level(reload, config);
	serve_configure(serve, &config->supervisor);
	reload->config = *config;
	return 0;
}

static void note_refusal(struct reload *reload, const struct err *err)
{
	reload->state.refused = 1;
	/* The reader's own words are longer than what fits in err. */
	if (reload->state.text[0] == '\0')
		IGNORE_RESULT(str_format(reload->state.text, sizeof(reload->state.text), "%s%s%s",
					 err->step, err->step[0] ? ": " : "", err->text));
	log_err(LOG_LEVEL_ERROR, NULL, "reload is refused, the former configuration stays", err);
}

static void note_success(struct reload *reload)
{
	reload->state.refused = 0;
	reload->state.generation++;
	log_line(LOG_LEVEL_INFO, NULL, "configuration is reloaded", "generation=%u",
		 reload->state.generation);
	if (reload->state.waiting[0])
		log_line(LOG_LEVEL_WARNING, NULL, "options that need a restart have changed",
			 "options=\"%s\"", reload->state.waiting);
}

void reload_again(struct reload *reload, struct host *host, struct serve *serve,
		  struct workers *workers)
{
	AUTO_FREE struct config_answer *config = calloc(1, sizeof(*config)); /* big for a stack */
	struct err err = ERR_NULL;
	int r;

	reload->state.at = clock_realtime();
	reload->state.text[0] = '\0';
	r = config ? config_run(host, &reload->source, config, reload->state.text, &err)
		   : err_fail(&err, -ENOMEM, "config", "memory");
	if (r == 0)
		r = take_effect(reload, config, host, serve, &err);
	if (r < 0)
		note_refusal(reload, &err);
	else
		note_success(reload);
	workers_tell_config(workers);
	if (r < 0)
		return;
	log_set_level((enum log_level)reload->config.api.log_level);
	log_set_format((enum log_format)reload->config.supervisor.log_format);
	workers_set_log_level(workers, (enum log_level)reload->config.api.log_level);
}
