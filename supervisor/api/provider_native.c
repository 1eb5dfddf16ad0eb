/* Sessions of the supervisor: a request of launch.h each. */
#include <errno.h>

#include "base/template_name.h"

#include "supervisor/api/app.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/snapshot.h"

#define PERSIST_TIMEOUT (60 * USEC_PER_SEC) /* it moves processes, and waits for a snapshot's */

static int ask(struct app *app, enum launch_type type, const struct id *id, usec_t timeout,
	       supervisor_answer answer, void *userdata)
{
	return supervisor_client_request(
		app->supervisor,
		&(struct supervisor_request){.type = type, .session = id, .timeout = timeout},
		answer, userdata);
}

static int create(struct app *app, const struct session *session,
		  const struct provider_create *create, supervisor_answer answer, void *userdata)
{
	const char *template = session->spec.runtime.template;

	/* Of a row that somebody else wrote: the supervisor would end the connection. */
	if (template[0] != '\0' && !template_name_is_valid(template))
		return -EINVAL;
	return supervisor_client_request(
		app->supervisor,
		&(struct supervisor_request){.type = LAUNCH_START,
					     .session = &session->id,
					     .plan = &session->plan,
					     .secrets = create->secrets,
					     .request_id = create->request_id,
					     .template = template,
					     .timeout = APP_LAUNCH_TIMEOUT},
		answer, userdata);
}

static int connect_all(struct app *app, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_ADOPT, NULL, APP_REQUEST_TIMEOUT, answer, userdata);
}

static int destroy(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_KILL, id, APP_KILL_TIMEOUT, answer, userdata);
}

static int persist(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_FREEZE, id, APP_REQUEST_TIMEOUT, answer, userdata);
}

static int persist_open(struct app *app, const struct id *id, supervisor_answer answer,
			void *userdata)
{
	return ask(app, LAUNCH_PART, id, PERSIST_TIMEOUT, answer, userdata);
}

static int persist_close(struct app *app, const struct id *id, supervisor_answer answer,
			 void *userdata)
{
	return ask(app, LAUNCH_JOIN, id, PERSIST_TIMEOUT, answer, userdata);
}

static int resume(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_THAW, id, APP_REQUEST_TIMEOUT, answer, userdata);
}

static int stat_of(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_STAT, id, APP_REQUEST_TIMEOUT, answer, userdata);
}

static int proof(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_PROOF, id, APP_REQUEST_TIMEOUT, answer, userdata);
}

static int trace(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_TRACE, id, APP_REQUEST_TIMEOUT, answer, userdata);
}

const struct provider provider_native = {
	.name = "native",
	.can = {.pause_resume = true, .egress = true, .root = true, .secrets = true},
	.create = create,
	.connect = connect_all,
	.destroy = destroy,
	.persist = persist,
	.persist_open = persist_open,
	.persist_close = persist_close,
	.resume = resume,
	.stat = stat_of,
	.proof = proof,
	.trace = trace,
	.delete_snapshot = snapshot_remove_reference,
};
