/*
 * What the supervisor hears of the lease: until when sessions may run (LAUNCH_LEASE). It is told
 * some seconds less than the store grants, and again only when that has moved by as much: each
 * batch renews the lease. Nothing is granted between the renewal of a lease that was over and the
 * store's last word on whose the sessions are: those that another host has taken are ended first.
 *
 * Where the service stops, what another host would find whole is given back: it need not wait there
 * until the lease is over.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

#include "supervisor/api/app.h"
#include "supervisor/api/live.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/session/snapshots.h"

/* For the freeze, which follows at once. */
#define MARGIN (5 * USEC_PER_SEC)

static void on_told(void *userdata, const struct launch_msg *answer, int fd)
{
	struct app *app = userdata;

	(void)fd_close(fd);
	if (!answer || answer->error != LAUNCH_E_NONE)
		app->lease_told = 0; /* again */
}

static usec_t lease_end(const struct app *app)
{
	usec_t end = app->config->store_freezes ? store_lease_end(app->store) : USEC_NEVER;

	if (end == USEC_NEVER)
		return LAUNCH_LEASE_ENDLESS;
	return end > MARGIN ? end - MARGIN : 1; /* never held: over */
}

static bool is_news(usec_t told, usec_t end)
{
	if (told == 0 || end < told || end == LAUNCH_LEASE_ENDLESS)
		return told != end;
	return end - told >= MARGIN;
}

void lease_tell(struct app *app)
{
	const struct supervisor_request request = {
		.type = LAUNCH_LEASE,
		.lease_until = lease_end(app),
		.timeout = APP_REQUEST_TIMEOUT,
	};

	if (app->phase != APP_PHASE_SERVING || app->n_lease_checks > 0 ||
	    !is_news(app->lease_told, request.lease_until))
		return;
	if (supervisor_client_request(app->supervisor, &request, on_told, app) >= 0)
		app->lease_told = request.lease_until;
}

/* Nothing of it runs here, and its row and an object are all there is of it. Another provider may
 * not be asked by now, nor be another host's. */
static bool is_whole_elsewhere(const struct live *live)
{
	const struct session *session = live->session;
	const struct suspension *suspension = &session->suspension;

	return session->state == SESSION_STATE_DORMANT && live->provider == &provider_native &&
	       suspension->state == SUSPENSION_SUSPENDED && suspension_is_durable(suspension) &&
	       snapshots_is_remote(suspension->snapshot) && session_persisted(session);
}

void lease_give_back(struct app *app)
{
	AUTO_FREE struct id *sessions =
		calloc(registry_count(&app->registry) + 1, sizeof(*sessions));
	size_t n = 0;

	if (!sessions || app->phase != APP_PHASE_STOPPING)
		return;
	LIST_FOR_EACH (entry, &app->lives) {
		const struct live *live = LIST_ENTRY(entry, struct live, link);

		if (is_whole_elsewhere(live))
			sessions[n++] = live->session->id;
	}
	if (n > 0)
		store_give_back(app->store, sessions, n);
}
