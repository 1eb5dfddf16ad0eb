/*
 * Theory. Start-up is a table of stages. Until `host` the process is in the host's mount namespace,
 * so every path is opened before it: listening sockets, the service manager's socket, the state
 * directory, the configuration file. `host` moves into the supervisor's own tiny mount namespace,
 * and from then on there is nothing but descriptors. The configuration is read after that, since
 * its reader lives in the worker root that `host` made; what the host needs of it follows in
 * `configure`, before the first launch. Nothing is served until the last stages.
 */
#include "supervisor/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop.h"
#include "base/str.h"

#include "sandboxd/worker.h"
#include "supervisor/ceilings.h"
#include "supervisor/host.h"
#include "supervisor/instance.h"
#include "supervisor/listeners.h"
#include "supervisor/notify.h"
#include "supervisor/own_pages.h"
#include "supervisor/privileges.h"
#include "supervisor/reload.h"
#include "supervisor/serve.h"
#include "supervisor/signals.h"
#include "supervisor/stop.h"
#include "supervisor/trusted_dir.h"
#include "supervisor/unseal.h"
#include "supervisor/watchdog.h"
#include "supervisor/workers.h"

struct app {
	const struct options *options;
	struct loop *loop;
	struct listeners listeners;
	struct notify notify;
	struct instance instance;
	struct host *host;
	struct reload reload; /* the configuration */
	struct ceilings ceilings;
	struct unsealer unsealer;
	struct serve *serve;
	struct workers *workers;
	struct stop stop;
	struct watchdog watchdog;
	int signal_fd;
	int api_state_fd;
	struct loop_source *signal_source;
	struct loop_source *keeper_source;
};

/* --- events ---------------------------------------------------------------------------------- */

static void reload(struct app *app)
{
	if (app->stop.state == STOP_STATE_RUNNING)
		reload_begin(&app->reload);
}

static int on_signal(void *userdata, uint32_t events)
{
	struct app *app = userdata;
	int number;

	(void)events;
	while ((number = signals_read(app->signal_fd)) > 0) {
		if (number == SIGHUP)
			reload(app);
		else if (number == SIGUSR2)
			stop_leave(&app->stop, 0, false);
		else
			stop_begin(&app->stop, 0);
	}
	return number;
}

/* The keeper never writes: this is its end. Nobody would start us again, so the service ends, and
 * at once: the next keeper's supervisor may be waiting already. */
static int on_keeper(void *userdata, uint32_t events)
{
	struct app *app = userdata;

	(void)events;
	app->keeper_source = loop_remove(app->keeper_source);
	log_line(LOG_LEVEL_ERROR, NULL, "keeper is gone", "");
	stop_leave(&app->stop, 0, true);
	return 0;
}

static void on_ready(void *userdata)
{
	struct app *app = userdata;

	log_line(LOG_LEVEL_INFO, NULL, "service is ready", "instance=%s version=%s",
		 app->instance.id, SANDBOXD_VERSION);
	(void)notify_send(&app->notify, "READY=1");
}

static void on_failed(void *userdata)
{
	struct app *app = userdata;

	/* Whatever is wrong with this start: not the fault of what was adopted. */
	stop_leave(&app->stop, -EPROTO, true);
}

static void on_stopped(void *userdata, enum serve_worker kind)
{
	struct app *app = userdata;

	stop_workers_gone(&app->stop, kind);
}

static void on_log_level(void *userdata, enum log_level level)
{
	struct app *app = userdata;

	log_set_level(level);
	log_line(LOG_LEVEL_ERROR, NULL, "log level", "level=%s", log_level_name(level));
	app->reload.config.api.log_level = (uint32_t)level; /* of workers that start later */
	workers_set_log_level(app->workers, level);
}

static bool on_link(void *userdata, uint32_t egress)
{
	const struct app *app = userdata;

	return workers_link(app->workers, egress);
}

static void on_emptied(void *userdata)
{
	struct app *app = userdata;

	stop_sessions_gone(&app->stop);
}

/* --- stages ---------------------------------------------------------------------------------- */

static int stage_signals(struct app *app, struct err *err)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR2, 0};
	int r;

	app->signal_fd = signals_open(signals, err);
	if (app->signal_fd < 0)
		return app->signal_fd;
	r = loop_new(&app->loop);
	if (r < 0)
		return err_fail(err, r, "signals", "loop");
	r = loop_add(app->loop, app->signal_fd, EPOLLIN, on_signal, app, &app->signal_source);
	if (r < 0)
		return err_fail(err, r, "signals", "watch");
	return 0;
}

static int stage_listeners(struct app *app, struct err *err)
{
	int r = listeners_take(&app->listeners, err);

	if (r < 0)
		return r;
	app->listeners.runtime_fd =
		trusted_dir_open(app->options->runtime_dir, 0755, "runtime-dir", err);
	if (app->listeners.runtime_fd < 0)
		return app->listeners.runtime_fd;
	/* Before anything in it is touched: it may be another supervisor's. */
	r = instance_lock_runtime(&app->instance, app->listeners.runtime_fd, err);
	if (r < 0)
		return r;
	r = listeners_make(&app->listeners, err);
	if (r < 0 || app->listeners.keeper_fd < 0)
		return r;
	r = loop_add(app->loop, app->listeners.keeper_fd, EPOLLIN, on_keeper, app,
		     &app->keeper_source);
	if (r < 0)
		return err_fail(err, r, "listen", "watch the keeper");
	return 0;
}

static int stage_notify(struct app *app, struct err *err)
{
	int r = stop_init(&app->stop, app->loop, &app->notify);

	if (r < 0)
		return err_fail(err, r, "notify", "timer");
	r = notify_open(&app->notify, app->listeners.keeper_fd, err);
	return r < 0 ? r : watchdog_start(&app->watchdog, app->loop, &app->notify, err);
}

static int stage_instance(struct app *app, struct err *err)
{
	int r = instance_open(&app->instance, app->options->state_dir, err);

	if (r < 0)
		return r;
	r = unsealer_open(&app->unsealer, app->instance.state_fd);
	return r < 0 ? err_fail(err, r, "instance", "/dev/null") : 0;
}

static int stage_config_file(struct app *app, struct err *err)
{
	return config_source_open(&app->reload.source, app->options->config, err);
}

static int stage_privileges(struct app *app, struct err *err)
{
	(void)app;
	return privileges_limit(err);
}

static int stage_files(struct app *app, struct err *err)
{
	struct rlimit files;

	(void)app;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_fail(err, -errno, "files", "read RLIMIT_NOFILE");
	/* A soft limit below the hard one is a default of shells, not a decision about us. */
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_fail(err, -errno, "files", "raise RLIMIT_NOFILE to its hard limit");
	return 0;
}

static int stage_own_pages(struct app *app, struct err *err)
{
	(void)app;
	return own_pages_take(err);
}

static int stage_host(struct app *app, struct err *err)
{
	/* One thread and nobody calls setenv. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *kernel = getenv("SANDBOX_KERNEL");
	const struct host_options options = {
		.instance = app->instance.id,
		.runtime_dir = app->options->runtime_dir,
		.libexec_dir = app->options->libexec_dir,
		.cgroup_parent = app->options->cgroup_parent,
		.kernel_6_1 = kernel && str_equal(kernel, "6.1"),
		.state_dir_fd = app->instance.state_fd,
	};

	return host_open(app->loop, &options, &app->host, err);
}

static int stage_adopt(struct app *app, struct err *err)
{
	return host_adopt(app->host, err);
}

static int stage_configuration(struct app *app, struct err *err)
{
	int r;

	app->reload.level = app->options->log_level_text ? &app->options->log_level : NULL;
	r = reload_first(&app->reload, app->host, err);
	if (r < 0)
		return r;
	if (app->reload.config.supervisor.control_gid == UINT32_MAX)
		return 0;
	return listeners_set_group(&app->listeners, app->reload.config.supervisor.control_gid, err);
}

static int stage_ceilings(struct app *app, struct err *err)
{
	const struct ceilings *ceilings = &app->ceilings;
	struct sysinfo info;
	struct rlimit files;

	if (sysinfo(&info) < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_fail(err, -errno, "ceilings", "memory and descriptors of this host");
	ceilings_init(&app->ceilings, &app->reload.config.supervisor,
		      (uint64_t)info.totalram * info.mem_unit, files.rlim_cur);
	log_line(LOG_LEVEL_INFO, NULL, "ceilings", "sessions=%u by_descriptors=%u memory_mib=%llu",
		 ceilings->max_sessions, ceilings->max_sessions_by_files,
		 (unsigned long long)(ceilings->max_memory_bytes >> 20));
	return 0;
}

static int stage_configure(struct app *app, struct err *err)
{
	const struct config_answer *config = &app->reload.config;
	const struct egress_guard guard = reload_guard(config);
	const struct host_configuration configuration = {
		.userns_reserve = config->supervisor.userns_reserve,
		.strict = config->supervisor.strict != 0,
		.max_memory_bytes = app->ceilings.max_memory_bytes,
		.max_pids = app->ceilings.max_pids,
		.guard = &guard,
	};

	return host_configure(app->host, &configuration, err);
}

static int stage_api_state(struct app *app, struct err *err)
{
	app->api_state_fd = instance_open_api_dir(&app->instance,
						  host_worker_ids(app->host) + WORKER_ID_API, err);
	return app->api_state_fd < 0 ? app->api_state_fd : 0;
}

static int stage_serve(struct app *app, struct err *err)
{
	const struct serve_options options = {
		.loop = app->loop,
		.host = app->host,
		.instance = app->instance.id,
		.ceilings = app->ceilings,
		.n_egress = app->reload.config.supervisor.n_egress,
		.lease_fd = app->instance.lock_fd,
		.unsealer = &app->unsealer,
		.config = &app->reload.config,
		.log_level = on_log_level,
		.link = on_link,
		.emptied = on_emptied,
		.userdata = app,
	};
	int r;

	app->unsealer.loop = app->loop;
	app->unsealer.host = app->host;
	r = serve_new(&options, &app->serve);

	if (r < 0)
		return err_fail(err, r, "serve", "memory");
	app->stop.serve = app->serve;
	r = serve_take_adopted(app->serve);
	return r < 0 ? err_fail(err, r, "serve", "take adopted sessions over") : 0;
}

static int stage_workers(struct app *app, struct err *err)
{
	const struct workers_options options = {
		.loop = app->loop,
		.host = app->host,
		.serve = app->serve,
		.config = &app->reload.config,
		.config_state = &app->reload.state,
		.control_fd = app->listeners.control_fd,
		.operator_fd = app->listeners.operator_fd,
		.state_fd = app->api_state_fd,
		.libexec_dir = app->options->libexec_dir,
		.log_level = (enum log_level)app->reload.config.api.log_level,
		.ready = on_ready,
		.failed = on_failed,
		.stopped = on_stopped,
		.userdata = app,
	};
	int r = workers_start(&options, &app->workers, err);

	if (r < 0)
		return r;
	app->stop.workers = app->workers;
	app->reload.loop = app->loop;
	app->reload.host = app->host;
	app->reload.serve = app->serve;
	app->reload.workers = app->workers;
	return 0;
}

/* The workers start meanwhile; their greeting is read afterwards, so that ready means ready. */
static int stage_settle(struct app *app, struct err *err)
{
	return host_settle(app->host, err);
}

/* Runs as root with the host's capabilities until `privileges`, with the table's after it. */
static const struct stage {
	const char *name;
	int (*run)(struct app *app, struct err *err);
} stages[] = {
	{"signals",       stage_signals      },
	{"listeners",     stage_listeners    }, /* host paths: runtime directory, sockets */
	{"notify",        stage_notify       }, /* host path: NOTIFY_SOCKET */
	{"instance",      stage_instance     }, /* host paths: state directory, host key */
	{"config-file",   stage_config_file  }, /* host path: configuration */
	{"privileges",    stage_privileges   }, /* before the first child */
	{"files",         stage_files        }, /* before adopted sessions take theirs */
	{"own-pages",     stage_own_pages    }, /* before the first child */
	{"host",          stage_host         }, /* leaves the host's mount namespace */
	{"adopt",         stage_adopt        }, /* before any id or group is used again */
	{"configuration", stage_configuration}, /* the one-shot reader */
	{"ceilings",      stage_ceilings     }, /* of what this host has */
	{"configure",     stage_configure    }, /* reserve, strict mode, limits of all sessions */
	{"api-state",     stage_api_state    }, /* no worker is alive yet */
	{"serve",         stage_serve        },
	{"workers",       stage_workers      }, /* from here on requests come in */
	{"settle",        stage_settle       }, /* the cover of /usr, begun with `host` */
};

/* The shims' sockets lay there; a session that did not end or was left keeps its own, and the
 * directories. */
static void remove_private_dirs(struct app *app)
{
	if (app->instance.lock_fd < 0)
		return; /* another supervisor's */
	(void)unlinkat(app->listeners.runtime_fd, "private/sessions", AT_REMOVEDIR);
	(void)unlinkat(app->listeners.runtime_fd, "private", AT_REMOVEDIR);
	instance_unlock_runtime(&app->instance, app->listeners.runtime_fd);
}

static void close_app(struct app *app)
{
	reload_done(&app->reload);
	app->workers = workers_free(app->workers);
	app->stop.workers = NULL;
	unsealer_close(&app->unsealer); /* its helpers are in the workers' group, with their ids */
	/* Sessions that did not end in time, or were left, are the next start's; their objects end
	 * with us. */
	if (app->host && !host_has_sessions(app->host)) {
		app->serve = serve_free(app->serve);
		app->host = host_close(app->host);
	}
	watchdog_done(&app->watchdog);
	stop_done(&app->stop);
	app->keeper_source = loop_remove(app->keeper_source);
	app->signal_source = loop_remove(app->signal_source);
	if (!app->host) {
		loop_free(app->loop);
		remove_private_dirs(app);
	}
	notify_done(&app->notify);
	instance_done(&app->instance);
	app->api_state_fd = fd_close(app->api_state_fd);
	config_source_done(&app->reload.source);
	app->signal_fd = fd_close(app->signal_fd);
	listeners_done(&app->listeners);
}

int supervise_run(const struct options *options, struct err *err)
{
	static struct app app; /* too big for a stack: the configuration is part of it */
	int r = 0;

	app.options = options;
	app.listeners = LISTENERS_NULL;
	app.notify = NOTIFY_NULL;
	app.instance = INSTANCE_NULL;
	app.signal_fd = -1;
	app.reload.source = CONFIG_SOURCE_NULL;
	app.api_state_fd = -1;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(stages); i++) {
		log_line(LOG_LEVEL_DEBUG, NULL, "stage", "name=%s", stages[i].name);
		r = stages[i].run(&app, err);
	}
	if (r == 0) {
		r = loop_run(app.loop);
		if (r < 0)
			(void)err_fail(err, r, "loop", "the service ended with an error");
	}
	close_app(&app);
	return r;
}
