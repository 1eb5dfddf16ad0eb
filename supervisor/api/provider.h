/*
 * The seam between sessions and what runs them. A provider makes a sandbox for a session, finds it
 * again, stops it and lets it go on, and ends it. What happens in a sandbox is the *handle*: the
 * socket that comes with the answer to create and connect, and speaks sandboxd/wire.h. Commands,
 * files, git and snapshots are made of that and know no provider.
 *
 * Requests and errors are those of sandboxd/launch.h, whoever the provider is; docs/providers.md
 * says what each of them is for. Each provider has its own deadlines, after which the answer is
 * NULL. What a provider is not able to do is -EOPNOTSUPP.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/auto.h"
#include "base/id.h"

#include "supervisor/api/link/supervisor_client.h"

struct app;
struct live;
struct session;

struct provider_capabilities {
	bool pause_resume; /* all of a sandbox can stop where it is, and go on: persist, resume */
	bool egress;       /* rules of the network are enforced; else there is none */
	bool root;         /* commands of `root`, where the profile has them */
	bool secrets;
};

struct provider_create {
	const struct secret_request *secrets;
	const char *request_id; /* the HTTP request that it is for; NULL: none */
};

/* 0 and answer follows, at least once; or -errno as of supervisor_client_request, and none does. */
typedef int provider_ask(struct app *app, const struct id *id, supervisor_answer answer,
			 void *userdata);

struct provider {
	const char *name; /* in rows, answers and the configuration */
	struct provider_capabilities can;
	/* What it says that a sandbox uses is a stranger's word: quotas.c. */
	bool is_elsewhere;
	/* Sandboxes of it can be made by this service as it is configured. NULL: always. */
	bool (*is_configured)(const struct app *app);
	/* It can be asked for one now. NULL: always. */
	bool (*is_reachable)(const struct app *app);
	/* A sandbox after the session's plan. The answer has its handle. */
	int (*create)(struct app *app, const struct session *session,
		      const struct provider_create *create, supervisor_answer answer,
		      void *userdata);
	/* Every sandbox that lives, with its handle; then once with more 0. */
	int (*connect)(struct app *app, supervisor_answer answer, void *userdata);
	/* That was asked at the start, and said; or not, then nothing is made there until it is.
	 * NULL: without it there is no service. */
	void (*asked)(struct app *app, bool is_said);
	/* Answered when nothing of it is left. One that is not there is as good. */
	provider_ask *destroy;
	/* All of it stops where it is, soon; answered with struct launch_stat: whether it has. */
	provider_ask *persist;
	/* Of one that is stopped: its handle works again, its commands do not; and back. In between
	 * its snapshot is made. */
	provider_ask *persist_open;
	provider_ask *persist_close;
	provider_ask *resume;
	provider_ask *stat;
	provider_ask *proof; /* struct launch_proof */
	provider_ask *trace; /* struct launch_trace */
	/* The process that its handle came from has ended, and the sandbox lives: the end of the
	 * handle says nothing of it, and all of them have ended (gone). NULL, as `gone`: whoever is
	 * its end ends with it. */
	bool (*is_gone)(const struct live *live);
	void (*gone)(struct app *app);
	/* What a sandbox of that id left. 0; -ENOTSUP: of a kind that is another's; -errno. */
	int (*delete_snapshot)(struct app *app, const struct id *owner, json_t *reference);
};

/* In the order of the numbers of [api] provider, the native one first; a NULL behind the last. */
extern const struct provider *const providers[];
extern const struct provider provider_native; /* the supervisor's own sessions */
extern const struct provider provider_docker; /* containers of a Docker Engine */
extern const struct provider provider_remote; /* sandboxes of a service elsewhere */
/* Of rows that name one which this worker does not have: every request is -ENODEV. */
extern const struct provider provider_absent;

/* "": the native one. Never NULL. */
const struct provider *provider_find(const char *name);
/* Of sandboxes that name none. */
const struct provider *provider_by_default(const struct app *app);
bool provider_is_configured(const struct app *app, const struct provider *provider);
bool provider_is_reachable(const struct app *app, const struct provider *provider);
/* New reference, or NULL: {name: capabilities} of those that are configured. */
json_t *provider_describe_all(const struct app *app);

/* The new socket to sandboxd-provider; becomes ours. */
void provider_docker_link(struct app *app, int fd);
/* At the start: `linked` is called once, when there is a socket, or it is waited for no longer, or
 * none is configured; maybe from inside. 0 or -errno. */
MUST_USE int provider_docker_await(struct app *app, void (*linked)(struct app *app));
