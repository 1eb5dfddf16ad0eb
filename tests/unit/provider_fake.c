#include "tests/unit/provider_fake.h"

#include <errno.h>

#include "supervisor/api/app.h"
#include "supervisor/api/snapshot.h"

#define AT_ONCE (20 * USEC_PER_MS)
#define NEVER   (3600 * USEC_PER_SEC)

struct fake {
	struct supervisor_client *client; /* NULL: not asked anything yet */
	uint64_t is_late;
	bool is_unknown; /* what lives there */
};

static struct fake *the_fake(void)
{
	static struct fake fake;

	return &fake;
}

void provider_fake_begin(uint64_t is_late)
{
	the_fake()->is_late = is_late;
}

static void on_gone(void *userdata, const struct id *session, const struct launch_gone *gone)
{
	sessions_gone(userdata, session, gone);
}

static void on_config(void *userdata, const struct launch_config *state, int fd)
{
	(void)userdata;
	(void)state;
	(void)fd_close(fd);
}

static void on_closed(void *userdata, int error)
{
	(void)userdata;
	(void)error;
}

static const struct supervisor_client_events events = {
	.gone = on_gone,
	.config = on_config,
	.closed = on_closed,
};

static int request(struct app *app, struct supervisor_request *what, supervisor_answer answer,
		   void *userdata)
{
	struct fake *fake = the_fake();
	int r = 0;

	if (!fake->client)
		r = supervisor_client_new(app->event, PROVIDER_FAKE_FD, &events, app,
					  &fake->client);
	if (r < 0)
		return r;
	what->timeout = fake->is_late & (UINT64_C(1) << (what->type / 2)) ? AT_ONCE : NEVER;
	return supervisor_client_request(fake->client, what, answer, userdata);
}

static int ask(struct app *app, enum launch_type type, const struct id *id,
	       supervisor_answer answer, void *userdata)
{
	return request(app, &(struct supervisor_request){.type = type, .session = id}, answer,
		       userdata);
}

static bool is_reachable(const struct app *app)
{
	const struct fake *fake = the_fake();

	(void)app;
	return fake->client && !supervisor_client_is_gone(fake->client) && !fake->is_unknown;
}

static int create(struct app *app, const struct session *session,
		  const struct provider_create *create, supervisor_answer answer, void *userdata)
{
	if (!is_reachable(app))
		return -ENODEV;
	return request(app,
		       &(struct supervisor_request){.type = LAUNCH_START,
						    .session = &session->id,
						    .plan = &session->plan,
						    .request_id = create->request_id},
		       answer, userdata);
}

static int connect_all(struct app *app, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_ADOPT, NULL, answer, userdata);
}

static void asked(struct app *app, bool is_said)
{
	(void)app;
	the_fake()->is_unknown = !is_said;
}

#define ASK(name, launch_type)                                                                     \
	static int name(struct app *app, const struct id *id, supervisor_answer answer,            \
			void *userdata)                                                            \
	{                                                                                          \
		return ask(app, launch_type, id, answer, userdata);                                \
	}
ASK(destroy, LAUNCH_KILL)
ASK(persist, LAUNCH_FREEZE)
ASK(persist_open, LAUNCH_PART)
ASK(persist_close, LAUNCH_JOIN)
ASK(resume, LAUNCH_THAW)
ASK(stat_of, LAUNCH_STAT)
ASK(proof, LAUNCH_PROOF)
ASK(trace, LAUNCH_TRACE)

const struct provider provider_fake = {
	.name = "fake",
	.can = {.pause_resume = true, .egress = true, .root = true, .secrets = true},
	.is_reachable = is_reachable,
	.create = create,
	.connect = connect_all,
	.asked = asked,
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
