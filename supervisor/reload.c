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
	int r;

	reload->state.at = clock_realtime();
	r = config_run(host, &reload->source, &reload->config, err);
	if (r < 0)
		return r;
	settle_level(reload, &reload->config);
	log_set_level((enum log_level)reload->config.api.log_level);
	log_set_format((enum log_format)reload->config.supervisor.log_format);
	return 0;
}

struct egress_guard reload_guard(const struct config_answer *config)
{
	return (struct egress_guard){
		.network = &config->supervisor.network,
		.name_server = config->egress.name_server,
		.n_name_servers = config->egress.n_name_servers,
		.redis = &config->api.redis,
	};
}

static int configure_host(struct host *host, const struct config_answer *config,
			  const struct serve *serve, struct err *err)
{
	const struct ceilings ceilings = serve_ceilings(serve, &config->supervisor);
	const struct egress_guard guard = reload_guard(config);
	const struct host_configuration configuration = {
		.userns_reserve = config->supervisor.userns_reserve,
		.strict = config->supervisor.strict != 0,
		.max_memory_bytes = ceilings.max_memory_bytes,
		.max_pids = ceilings.max_pids,
		.guard = &guard,
	};

	return host_configure(host, &configuration, err);
}

/* 0: it is in force; else nothing has changed. */
static int take_effect(struct reload *reload, struct config_answer *config, struct err *err)
{
	char waiting[sizeof(reload->state.waiting)];
	int r;

	config_keep(&reload->config, config, waiting, sizeof(waiting));
	r = configure_host(reload->host, config, reload->serve, err);
	if (r < 0) {
		struct err again = ERR_NULL;

		/* What was in force a moment ago fits. */
		if (configure_host(reload->host, &reload->config, reload->serve, &again) < 0)
			log_err(LOG_LEVEL_ERROR, NULL, "limits of all sessions", &again);
		return r;
	}
	settle_level(reload, config);
	serve_configure(reload->serve, &config->supervisor);
	reload->config = *config;
	memcpy(reload->state.waiting, waiting, sizeof(waiting));
	return 0;
}

static void note_refusal(struct reload *reload, const char *complaint, const struct err *err)
{
	reload->state.refused = 1;
	/* The reader's own words are longer than what fits in err. */
	if (complaint[0])
		IGNORE_RESULT(str_copy(reload->state.text, sizeof(reload->state.text), complaint));
	else
		IGNORE_RESULT(str_format(reload->state.text, sizeof(reload->state.text), "%s",
					 err->text));
	log_err(LOG_LEVEL_ERROR, NULL, "reload is refused, the former configuration stays", err);
	workers_tell_config(reload->workers);
}

static void note_success(struct reload *reload, enum log_level former)
{
	enum log_level level = (enum log_level)reload->config.api.log_level;

	/* The line shows at either level. */
	log_set_level(level > former ? level : former);
	reload->state.refused = 0;
	reload->state.text[0] = '\0';
	reload->state.generation++;
	log_line(LOG_LEVEL_INFO, NULL, "configuration is reloaded", "generation=%u",
		 reload->state.generation);
	if (reload->state.waiting[0])
		log_line(LOG_LEVEL_WARNING, NULL, "options that need a restart have changed",
			 "options=\"%s\"", reload->state.waiting);
	workers_tell_config(reload->workers);
	log_set_level(level);
	workers_set_log_level(reload->workers, level);
}

static void on_read(void *userdata, const struct config_answer *answer, const char *complaint,
		    const struct err *err)
{
	struct reload *reload = userdata;
	AUTO_FREE struct config_answer *config = NULL; /* big for a stack */
	enum log_level former = (enum log_level)reload->config.api.log_level;
	struct err our_err = *err;
	int r = -err->error_number;

	reload->run = NULL;
	reload->state.at = reload->began;
	if (answer) {
		config = malloc(sizeof(*config));
		if (config) {
			*config = *answer;
			r = take_effect(reload, config, &our_err);
			explicit_bzero(config, sizeof(*config)); /* what is no more in force */
		} else {
			r = err_fail(&our_err, -ENOMEM, "config", "memory");
		}
	}
	if (r == 0)
		note_success(reload, former);
	else
		note_refusal(reload, complaint, &our_err);
	if (!reload->again)
		return;
	reload->again = false;
	reload_begin(reload);
}

void reload_begin(struct reload *reload)
{
	const struct config_run_watcher watcher = {
		.loop = reload->loop,
		.done = on_read,
		.userdata = reload,
	};
	struct err err = ERR_NULL;

	/* What it reads may be older than this signal. */
	if (reload->run) {
		reload->again = true;
		return;
	}
	reload->began = clock_realtime();
	if (config_run_start(reload->host, &reload->source, &watcher, &reload->run, &err) == 0)
		return;
	reload->state.at = reload->began;
	note_refusal(reload, "", &err);
}

void reload_done(struct reload *reload)
{
	reload->run = config_run_cancel(reload->run);
	reload->again = false;
}
