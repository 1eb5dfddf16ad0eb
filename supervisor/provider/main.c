/*
 * sandboxd-provider: sandboxes of a foreign engine or a service elsewhere, for the api worker.
 *
 * Who holds the engine's socket is root on this host, so this process has it and little else: own
 * ids, an empty root, no network, the socket of one path. Of a service elsewhere it has the
 * credential instead, and the network. It reads requests of the api worker and
 * answers of the engine; what sessions say passes through it unread but for the length of each
 * message.
 *
 * Start: signals, configuration, filter, one question to the engine or service; where that does not
 * answer it ends, and the supervisor starts it again with the socket, or credential, that is there
 * then.
 */
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/json.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "policy/confine_worker.h"
#include "policy/image.h"
#include "sandboxd/launch.h"
#include "sandboxd/provider.h"
#include "sandboxd/worker.h"
#include "supervisor/provider/docker.h"
#include "supervisor/provider/http.h"
#include "supervisor/provider/remote.h"
#include "supervisor/provider/remote_client.h"
#include "supervisor/provider/service.h"
#include "supervisor/worker_start.h"

#define LOOKUP_TIMEOUT_MS 1500
/* Of the worker's root: whom the host trusts, and the hosts file. */
#define FACTS             "/etc"
#define ENGINE_TIMEOUT    (10 * USEC_PER_SEC)

struct provider {
	struct loop *loop;
	struct image policy;
	struct provider_config config;
	char credential[PROVIDER_CREDENTIAL_BYTES]; /* of a remote service; "": an engine */
	struct name_lookup *lookup;                 /* the same */
	struct remote_client *client;               /* the same */
	char instance[sizeof(((struct launch_hello *)0)->instance) + 1];
	struct engine *engine;
	struct service *service;
};

static int read_config(struct provider_config *config)
{
	int r = io_read_exact(WORKER_FD_CONFIG, config, sizeof(*config));

	if (r < 0)
		return r;
	if (config->magic != CONFIG_MAGIC || config->version != CONFIG_VERSION ||
	    config->size != sizeof(*config))
		return -EPROTO;
	return 0;
}

static int greet(struct provider *provider)
{
	struct launch_hello hello;
	int r = worker_start_greet(&hello);

	if (r == 0)
		memcpy(provider->instance, hello.instance, sizeof(hello.instance));
	return r;
}

static int take_message(struct provider *provider, const struct launch_msg *msg, int *fd)
{
	switch (msg->type) {
	case LAUNCH_EVENT_LINK:
		if (*fd < 0)
			return -EPROTO;
		service_link(provider->service, TAKE_FD(*fd));
		return 0;
	case LAUNCH_EVENT_FACTS:
		if (msg->u.facts.log_level >= LOG_LEVEL_MAX_)
			return -EPROTO;
		log_set_level((enum log_level)msg->u.facts.log_level);
		return 0;
	default:
		return -EPROTO;
	}
}

static int on_supervisor(void *userdata, uint32_t events)
{
	struct provider *provider = userdata;
	struct launch_msg msg;
	int fd = -1;
	ssize_t n = sockmsg_recv(WORKER_FD_SUPERVISOR, &msg, sizeof(msg), &fd, 1);
	int r;

	(void)events;
	if (n == -EAGAIN)
		return 0;
	if (n <= 0) {
		loop_quit(provider->loop, 0); /* the supervisor has ended */
		return n == 0 ? 0 : (int)n;
	}
	r = launch_check(&msg, (size_t)n, 1) < 0 ? -EPROTO : take_message(provider, &msg, &fd);
	(void)fd_close(fd);
	return r;
}

static int on_signal(void *userdata, uint32_t events)
{
	struct provider *provider = userdata;

	(void)events;
	loop_quit(provider->loop, 0);
	return 0;
}

static bool is_remote(const struct provider *provider)
{
	return provider->config.url[0] != '\0';
}

/* The first line of the file, which is not needed again: the next process has it as it is then. */
static int read_credential(struct provider *provider)
{
	char *credential = provider->credential;
	ssize_t n = io_read(WORKER_FD_ENGINE, credential, sizeof(provider->credential) - 1);

	if (n < 0)
		return (int)n;
	(void)fd_close(WORKER_FD_ENGINE);
	credential[n] = '\0';
	/* What is cut is none. */
	if ((size_t)n == sizeof(provider->credential) - 1 && !strchr(credential, '\n'))
		return -EMSGSIZE;
	credential[strcspn(credential, "\r\n")] = '\0';
	/* Part of a header. */
	for (const char *at = credential; *at; at++)
		if (*at <= 0x20 || *at >= 0x7f)
			return -EBADMSG;
	return credential[0] != '\0' ? 0 : -EBADMSG;
}

static int open_remote(struct provider *provider)
{
	int r = read_credential(provider);

	if (r < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "the credential file has no credential", "errno=%d",
			 -r);
	return r < 0 ? r : name_lookup_new(LOOKUP_TIMEOUT_MS, &provider->lookup);
}

/* What of it has to be there before the filter: libraries read their settings, and their random
 * numbers. */
static int open_provider(struct provider *provider)
{
	struct err err = ERR_NULL;
	int r;

	if (curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK)
		return -ENOMEM;
	r = doc_seed();
	if (r == 0)
		r = read_config(&provider->config);
	if (r == 0)
		r = loop_new(&provider->loop);
	if (r == 0)
		r = image_open(WORKER_FD_POLICY, &provider->policy, &err);
	if (r == 0 && is_remote(provider))
		r = open_remote(provider);
	return r;
}

static int start_docker(struct provider *provider)
{
	const struct docker_options options = {
		.loop = provider->loop,
		.config = &provider->config,
		.instance = provider->instance,
	};
	int status = http_ask(PROVIDER_ENGINE_PATH, "/_ping", ENGINE_TIMEOUT);

	if (status != 200) {
		log_line(LOG_LEVEL_ERROR, NULL, "the engine does not answer", "status=%d error=%s",
			 status, status < 0 ? strerrorname_np(-status) : "-");
		return -ECONNREFUSED;
	}
	return docker_new(&options, &provider->engine);
}

static void on_first_token(void *userdata, int result)
{
	struct provider *provider = userdata;

	loop_quit(provider->loop, result);
}

static int start_remote(struct provider *provider)
{
	const struct remote_client_options client = {
		.loop = provider->loop,
		.url = provider->config.url,
		.credential = provider->credential,
		.lookup = provider->lookup,
	};
	struct remote_options options = {
		.loop = provider->loop,
		.config = &provider->config,
		.instance = provider->instance,
	};
	int r = remote_client_new(&client, on_first_token, provider, &provider->client);

	if (r == 0)
		r = loop_run(provider->loop);
	if (r < 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "the remote service does not answer", "errno=%d",
			 -r);
		return r;
	}
	options.client = provider->client;
	return remote_new(&options, &provider->engine);
}

static int start(struct provider *provider)
{
	int r = is_remote(provider) ? start_remote(provider) : start_docker(provider);

	if (r == 0)
		r = service_new(provider->loop, provider->engine, &provider->policy,
				&provider->service);
	return r == 0 ? greet(provider) : r;
}

/* Until TERM or the end of the supervisor (0), or -errno. The process ends then, and what it holds
 * with it. */
static int run(struct provider *provider, int signal_fd)
{
	struct loop_source *supervisor = NULL, *signals = NULL;
	int r;

	r = loop_add(provider->loop, WORKER_FD_SUPERVISOR, EPOLLIN, on_supervisor, provider,
		     &supervisor);
	if (r == 0)
		r = loop_add(provider->loop, signal_fd, EPOLLIN, on_signal, provider, &signals);
	if (r == 0)
		r = loop_run(provider->loop);
	(void)loop_remove(signals);
	(void)loop_remove(supervisor);
	return r;
}

/* Only a service elsewhere is reached by TCP, and has a certificate that is checked by a file. */
static int confine(const struct provider *provider)
{
	if (is_remote(provider))
		return confine_reading_worker(WORKER_FD_POLICY, "worker-remote", FACTS);
	return confine_fileless_worker(WORKER_FD_POLICY, "worker-provider");
}

int main(void)
{
	static struct provider provider;
	int signal_fd;
	int r;

	log_init("sandboxd-provider", LOG_LEVEL_INFO);
	log_set_format(LOG_FORMAT_RECORD); /* the supervisor gives it its form */
	signal_fd = worker_start_signals();
	if (signal_fd < 0)
		return EXIT_FAILURE;
	r = open_provider(&provider);
	if (r < 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "provider cannot start", "errno=%d", -r);
		return EXIT_FAILURE;
	}
	if (confine(&provider) < 0)
		return EXIT_FAILURE;
	r = start(&provider);
	if (r == 0)
		r = run(&provider, signal_fd);
	if (r < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "provider ends", "errno=%d", -r);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
