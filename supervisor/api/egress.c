#include "supervisor/api/egress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#include "sandboxd/config.h"
#include "supervisor/api/link/egress_link.h"
#include "supervisor/api/loader_run.h"

#define LOOK_EVERY   USEC_PER_SEC
#define RENEW_MIN    (50 * USEC_PER_MS)
#define RENEW_MAX    (10 * USEC_PER_SEC)
#define STEADY_AFTER (30 * USEC_PER_SEC)

/* One that ends while both workers live is asked for again, after a pause that grows while that
 * does not last. Where a worker has died the supervisor brings the next one unasked. */
struct hub_link {
	struct egress_hub *hub;
	struct egress_link *link; /* NULL: there is none */
	usec_t linked_at;         /* boottime */
	usec_t renew_at;          /* boottime; 0: not */
	usec_t renew_pause;
};

struct egress_hub {
	struct app *app;
	struct hub_link link[CONFIG_EGRESS_MAX];
	struct list waits; /* struct wait */
	sd_event_source *timer;
	uint32_t last_serial;
	uint32_t last_generation;
	struct net_policy kept; /* of that session, as it was sent last; generation 0: none */
	struct id kept_session;
	uint32_t kept_generation;
};

/* Somebody waits for an answer of an egress worker. */
struct wait {
	struct list link;
	struct id session;
	usec_t deadline;
	egress_settled settled;
	egress_counted counted;
	void *userdata;
	const struct hub_link *asked; /* for counters; NULL: waits for a policy */
	uint32_t serial;
	size_t n;
	struct egress_counters counters[]; /* EGRESS_RULES_MAX + 1 for a question */
};

static void arm(struct egress_hub *hub)
{
	usec_t at = list_empty(&hub->waits) ? USEC_NEVER : clock_add(clock_boottime(), LOOK_EVERY);

	for (size_t i = 0; i < CONFIG_EGRESS_MAX; i++)
		if (hub->link[i].renew_at != 0 && hub->link[i].renew_at < at)
			at = hub->link[i].renew_at;
	(void)sd_event_source_set_time(hub->timer, at);
	(void)sd_event_source_set_enabled(hub->timer,
					  at == USEC_NEVER ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
}

static struct egress_link *link_of(const struct app *app, const struct session *session)
{
	uint32_t index = session->plan.egress;

	return app->egress && index < CONFIG_EGRESS_MAX ? app->egress->link[index].link : NULL;
}

static void finish(struct wait *wait, int error)
{
	list_remove(&wait->link);
	if (wait->settled)
		wait->settled(wait->userdata, &wait->session, error);
	else
		wait->counted(wait->userdata, &wait->session, wait->counters,
			      error == 0 ? wait->n : 0);
	free(wait);
}

/* Every wait that fits; one that ends may take others with it. */
static void finish_those(struct egress_hub *hub, bool (*fits)(const struct wait *, const void *),
			 const void *what, int error)
{
	struct list due;

	list_init(&due);
	LIST_FOR_EACH_SAFE (entry, following, &hub->waits) {
		if (!fits(LIST_ENTRY(entry, struct wait, link), what))
			continue;
		list_remove(entry);
		list_append(&due, entry);
	}
	while (!list_empty(&due))
		finish(LIST_ENTRY(due.next, struct wait, link), error);
}

static bool is_for_policy_of(const struct wait *wait, const void *session)
{
	return wait->settled && id_equal(&wait->session, session);
}

static bool is_asked_of(const struct wait *wait, const void *hub_link)
{
	return wait->asked == hub_link;
}

static bool is_over(const struct wait *wait, const void *now)
{
	return wait->deadline <= *(const usec_t *)now;
}

/* Policies. */

int egress_policy_of(const struct app *app, const struct session *session,
		     struct net_policy *ret_policy)
{
	struct policy_input input = {
		.config = app->config,
		.redis = live_of(session)->redis == LIVE_REDIS_READY ? &app->config->redis : NULL,
		.allow = session->spec.egress.allow,
		.n_allow = session->spec.egress.n_allow,
		.profile_allow = str_equal(session->spec.profile, "component")
					 ? app->config->component_allow
					 : app->config->agent_allow,
		.gateways = session_gateways(app, session),
	};

	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		enum endpoint_source source;

		input.value[i] = environment_endpoint(session->spec.endpoint[i],
						      app->summary.operator_default[i], i, &source);
		if (source == ENDPOINT_SOURCE_CLOSED)
			input.value[i] = "";
	}
	return policy_make(&input, ret_policy);
}

static uint32_t next_number(uint32_t *last)
{
	if (++*last == 0)
		++*last;
	return *last;
}

void egress_push(struct app *app, struct session *session)
{
	struct log_context context = {.session = &session->id};
	struct net_policy policy = NET_POLICY_NULL;
	struct egress_link *link = link_of(app, session);
	struct live *live = live_of(session);
	int r;

	live->policy_generation = next_number(&app->egress->last_generation);
	live->policy_in_force = false;
	/* Pushed again when it is known whether there is Redis. */
	live->policy_owed = live->redis != LIVE_REDIS_PENDING;
	if (!live->policy_owed)
		return;
	r = egress_policy_of(app, session, &policy);
	session->by_credentials = policy.by_credentials;
	/* It is sent when it has greeted, or has read what it was sent before. */
	if (!egress_link_ready(link) || egress_link_is_busy(link)) {
		policy_done(&policy);
		return;
	}
	live->policy_owed = false;
	if (r == 0)
		r = egress_link_policy(link, &session->id, live->policy_generation, &policy);
	/* What cannot be said in full is not said in part: nothing is allowed then. */
	if (r < 0 && r != -EPIPE) {
		log_line(LOG_LEVEL_ERROR, &context, "network policy not sent", "errno=%d", -r);
		if (r == -E2BIG && !live->policy_too_big)
			sessions_note(app, session, "network_rules",
				      "it has more rules than one session can have, so its network "
				      "reaches nothing");
		egress_link_forget(link, &session->id);
	}
	live->policy_too_big = r == -E2BIG;
	policy_done(&policy);
}

/* Refusals come in bursts of one session, and each needs to know which hosts are kept back. */
const struct net_policy *egress_policy_kept(struct app *app, const struct session *session)
{
	struct egress_hub *hub = app->egress;
	uint32_t generation = live_of(session)->policy_generation;

	if (generation != 0 && hub->kept_generation == generation &&
	    id_equal(&hub->kept_session, &session->id))
		return &hub->kept;
	policy_done(&hub->kept);
	hub->kept_generation = 0;
	if (egress_policy_of(app, session, &hub->kept) < 0)
		return NULL;
	hub->kept_generation = generation;
	hub->kept_session = session->id;
	return &hub->kept;
}

bool egress_is_wanted(const struct session *session)
{
	return session_has_tree(session) || session->state == SESSION_STATE_CREATING ||
	       session->state == SESSION_STATE_REBUILDING;
}

static void push_those_of(struct app *app, const struct egress_link *link)
{
	LIST_FOR_EACH_SAFE (entry, following, &app->lives) {
		struct session *session = LIST_ENTRY(entry, struct live, link)->session;

		if (egress_is_wanted(session) && (!link || link_of(app, session) == link))
			egress_push(app, session);
	}
}

void egress_push_all(struct app *app)
{
	push_those_of(app, NULL);
}

void egress_end_waits(struct app *app, const struct session *session)
{
	if (!app->egress)
		return; /* a start that failed */
	finish_those(app->egress, is_for_policy_of, &session->id, -ESHUTDOWN);
}

void egress_forget(struct app *app, const struct session *session)
{
	struct egress_link *link = link_of(app, session);

	if (egress_link_ready(link))
		egress_link_forget(link, &session->id);
	egress_end_waits(app, session);
}

/* What comes from a link. */

static void on_ready(void *userdata)
{
	struct hub_link *hub_link = userdata;

	push_those_of(hub_link->hub->app, hub_link->link);
}

static void on_drained(void *userdata)
{
	struct hub_link *hub_link = userdata;
	struct app *app = hub_link->hub->app;

	LIST_FOR_EACH_SAFE (entry, following, &app->lives) {
		struct live *live = LIST_ENTRY(entry, struct live, link);

		if (live->policy_owed && egress_is_wanted(live->session) &&
		    link_of(app, live->session) == hub_link->link &&
		    !egress_link_is_busy(hub_link->link))
			egress_push(app, live->session);
	}
}

static void on_acked(void *userdata, const struct id *id, uint32_t generation, int error)
{
	struct hub_link *hub_link = userdata;
	struct egress_hub *hub = hub_link->hub;
	struct session *session = registry_find(&hub->app->registry, id);
	struct log_context context = {.session = id};

	/* Of another worker's session, or of a policy that was replaced meanwhile. */
	if (!session || link_of(hub->app, session) != hub_link->link ||
	    live_of(session)->policy_generation != generation)
		return;
	if (error != 0)
		log_line(LOG_LEVEL_ERROR, &context, "network policy not taken", "errno=%d", error);
	live_of(session)->policy_in_force = error == 0;
	finish_those(hub, is_for_policy_of, id, error);
}

static void on_denied(void *userdata, const struct id *id, const struct egress_denial *denial)
{
	struct hub_link *hub_link = userdata;
	struct app *app = hub_link->hub->app;
	struct session *session = registry_find(&app->registry, id);

	if (session && link_of(app, session) == hub_link->link)
		egress_note_denial(app, session, denial);
}

static void on_counted(void *userdata, uint32_t serial, const struct egress_counters *counters,
		       bool more, int error)
{
	struct hub_link *hub_link = userdata;

	LIST_FOR_EACH_SAFE (entry, following, &hub_link->hub->waits) {
		struct wait *wait = LIST_ENTRY(entry, struct wait, link);

		if (wait->asked != hub_link || wait->serial != serial)
			continue;
		if (error == 0 && wait->n <= EGRESS_RULES_MAX)
			wait->counters[wait->n++] = *counters;
		if (!more || error != 0)
			finish(wait, error);
		return;
	}
}

/* The link itself is freed when the next one comes. */
static void on_closed(void *userdata, int error)
{
	struct hub_link *hub_link = userdata;
	usec_t now = clock_boottime();

	log_line(LOG_LEVEL_INFO, NULL, "connection to an egress worker ended", "errno=%d", -error);
	if (now - hub_link->linked_at > STEADY_AFTER)
		hub_link->renew_pause = RENEW_MIN;
	hub_link->renew_at = clock_add(now, hub_link->renew_pause);
	finish_those(hub_link->hub, is_asked_of, hub_link, error);
	arm(hub_link->hub);
}

static const struct egress_link_events events = {
	.ready = on_ready,
	.drained = on_drained,
	.acked = on_acked,
	.denied = on_denied,
	.counted = on_counted,
	.closed = on_closed,
};

void egress_take_link(struct app *app, uint32_t index, int fd)
{
	struct hub_link *hub_link;
	int r;

	if (index >= CONFIG_EGRESS_MAX) {
		(void)fd_close(fd);
		return;
	}
	hub_link = &app->egress->link[index];
	hub_link->link = egress_link_free(hub_link->link);
	hub_link->linked_at = clock_boottime();
	hub_link->renew_at = 0;
	r = egress_link_new(app->event, fd, &events, hub_link, &hub_link->link);
	if (r < 0)
		on_closed(hub_link, r);
}

static void on_renewed(void *userdata, const struct launch_msg *answer, int fd)
{
	(void)userdata;
	(void)answer; /* the new socket comes as an event, or is asked for again */
	(void)fd_close(fd);
}

static void renew_links(struct egress_hub *hub, usec_t now)
{
	for (uint32_t i = 0; i < CONFIG_EGRESS_MAX; i++) {
		struct hub_link *hub_link = &hub->link[i];

		if (hub_link->renew_at == 0 || hub_link->renew_at > now)
			continue;
		hub_link->renew_pause *= 2;
		if (hub_link->renew_pause > RENEW_MAX)
			hub_link->renew_pause = RENEW_MAX;
		hub_link->renew_at = clock_add(now, hub_link->renew_pause);
		IGNORE_RESULT(supervisor_client_request(
			hub->app->supervisor,
			&(struct supervisor_request){
				.type = LAUNCH_LINK, .egress = i, .timeout = APP_REQUEST_TIMEOUT},
			on_renewed, NULL));
	}
}

/* Waiting. */

static int on_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	struct egress_hub *hub = userdata;
	usec_t now = clock_boottime();

	(void)source;
	(void)at;
	finish_those(hub, is_over, &now, -ETIMEDOUT);
	renew_links(hub, now);
	arm(hub);
	return 0;
}

static struct wait *wait_new(struct app *app, const struct session *session, size_t n_counters)
{
	struct wait *wait = calloc(1, sizeof(*wait) + n_counters * sizeof(wait->counters[0]));

	if (!wait)
		return NULL;
	wait->session = session->id;
	wait->deadline = clock_add(clock_boottime(), EGRESS_WAIT);
	list_append(&app->egress->waits, &wait->link);
	arm(app->egress);
	return wait;
}

int egress_wait_settled(struct app *app, const struct session *session, egress_settled settled,
			void *userdata)
{
	struct wait *wait = wait_new(app, session, 0);

	if (!wait)
		return -ENOMEM;
	wait->settled = settled;
	wait->userdata = userdata;
	return 0;
}

int egress_wait_counted(struct app *app, const struct session *session, egress_counted counted,
			void *userdata)
{
	struct egress_link *link = link_of(app, session);
	struct wait *wait;
	int r;

	if (!egress_link_ready(link))
		return -EPIPE;
	wait = wait_new(app, session, EGRESS_RULES_MAX + 1);
	if (!wait)
		return -ENOMEM;
	wait->counted = counted;
	wait->asked = &app->egress->link[session->plan.egress];
	wait->userdata = userdata;
	wait->serial = next_number(&app->egress->last_serial);
	r = egress_link_count(link, &session->id, wait->serial);
	if (r < 0) {
		list_remove(&wait->link);
		free(wait);
	}
	return r;
}

int egress_hub_new(struct app *app, struct egress_hub **ret_hub)
{
	struct egress_hub *hub = calloc(1, sizeof(*hub));
	int r;

	if (!hub)
		return -ENOMEM;
	hub->app = app;
	list_init(&hub->waits);
	for (size_t i = 0; i < CONFIG_EGRESS_MAX; i++)
		hub->link[i] = (struct hub_link){.hub = hub, .renew_pause = RENEW_MIN};
	r = sd_event_add_time(app->event, &hub->timer, CLOCK_BOOTTIME, 0, 0, on_timer, hub);
	if (r < 0) {
		free(hub);
		return r;
	}
	(void)sd_event_source_set_enabled(hub->timer, SD_EVENT_OFF);
	*ret_hub = hub;
	return 0;
}

struct egress_hub *egress_hub_free(struct egress_hub *hub)
{
	if (!hub)
		return NULL;
	while (!list_empty(&hub->waits))
		finish(LIST_ENTRY(hub->waits.next, struct wait, link), -ECANCELED);
	for (size_t i = 0; i < CONFIG_EGRESS_MAX; i++)
		hub->link[i].link = egress_link_free(hub->link[i].link);
	hub->timer = sd_event_source_disable_unref(hub->timer);
	policy_done(&hub->kept);
	free(hub);
	return NULL;
}
