/*
 * Theory. A launch with secrets waits for the helper first, and begins with the pipe that carries
 * the values once the helper has said that all of them are open. Meanwhile no session exists: a
 * KILL for its id ends the waiting, and answers its START; so does the end of its asker. The
 * ceilings are taken before, so whoever asks for helpers is bounded as for sessions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#include "supervisor/serve_state.h"
#include "supervisor/unseal.h"

struct pending {
	struct list link; /* serve->unsealing */
	struct serve *serve;
	struct serve_client *client;
	struct launch_msg request;
	struct unseal *unseal; /* NULL: waits for its turn */
};

static void forget(struct pending *pending)
{
	list_remove(&pending->link);
	if (pending->unseal)
		pending->serve->n_unsealing--;
	free(pending);
}

/* Which secret, and why not: the name is the asker's own word. */
static struct launch_msg refusal(const struct launch_msg *request,
				 const struct secret_report *report)
{
	static const int errors[] = {
		[SECRET_OK] = EIO,      [SECRET_E_UNKNOWN] = ENOENT, [SECRET_E_CORRUPT] = EBADMSG,
		[SECRET_E_STORE] = EIO, [SECRET_E_TOO_BIG] = E2BIG,
	};
	const struct secret_request *secrets = &request->u.start.secrets;
	struct launch_msg answer = serve_answer(request, LAUNCH_E_SECRET);
	int error = report ? errors[report->status] : EIO;
	uint32_t index = report && report->index < secrets->n ? report->index : 0;

	_Static_assert(ARRAY_SIZE(errors) == SECRET_E_MAX_, "one for each");
	(void)err_fail(&answer.u.err, -error, "unseal", "%s", secrets->name[index]);
	return answer;
}

static void give_up(struct pending *pending, const struct launch_msg *answer)
{
	struct serve_client *client = pending->client;

	ceilings_give(&pending->serve->ceilings, &pending->request.u.plan);
	forget(pending);
	peer_send(&client->peer, answer, -1);
}

static void on_unsealed(void *userdata, const struct secret_report *report, int records_fd);

/* Helpers for those whose turn it is. */
static void run_waiting(struct serve *serve)
{
	const struct secret_report none = {.status = SECRET_E_UNKNOWN};

	LIST_FOR_EACH_SAFE (link, following, &serve->unsealing) {
		struct pending *pending = LIST_ENTRY(link, struct pending, link);
		struct launch_msg answer = serve_answer(&pending->request, LAUNCH_E_STEP);
		int r = UNSEAL_E_NONE;

		if (pending->unseal)
			continue;
		if (serve->n_unsealing >= UNSEAL_MAX)
			break;
		if (serve->options.unsealer)
			r = unseal_start(serve->options.unsealer, &pending->request.u.start.secrets,
					 on_unsealed, pending, &pending->unseal, &answer.u.err);
		if (r == 0) {
			serve->n_unsealing++;
			continue;
		}
		if (r == UNSEAL_E_NONE)
			answer = refusal(&pending->request, &none);
		give_up(pending, &answer);
	}
}

static void on_unsealed(void *userdata, const struct secret_report *report, int records_fd)
{
	struct pending *pending = userdata;
	struct serve *serve = pending->serve;
	struct serve_client *client = pending->client;
	struct launch_msg request = pending->request;
	struct launch_msg answer = serve_answer(&request, LAUNCH_E_STEP);
	enum launch_error error = LAUNCH_E_STEP;

	if (!report || report->status != SECRET_OK) {
		answer = refusal(&request, report);
		give_up(pending, &answer);
	} else if (serve->stopping) {
		answer.error = LAUNCH_E_STOPPING;
		give_up(pending, &answer);
	} else {
		forget(pending);
		/* Answered when it has started, or here. */
		if (serve_start(client, &request, records_fd, &error, &answer.u.err) < 0) {
			if (error != LAUNCH_E_STEP)
				answer = serve_answer(&request, error);
			peer_send(&client->peer, &answer, -1);
		}
	}
	run_waiting(serve);
}

int serve_start_sealed(struct serve_client *client, const struct launch_msg *request)
{
	struct serve *serve = client->serve;
	struct pending *pending = calloc(1, sizeof(*pending));

	if (!pending) {
		struct launch_msg answer = serve_answer(request, LAUNCH_E_STEP);

		(void)err_fail(&answer.u.err, -ENOMEM, "unseal", "memory");
		ceilings_give(&serve->ceilings, &request->u.plan);
		peer_send(&client->peer, &answer, -1);
		return 0;
	}
	pending->serve = serve;
	pending->client = client;
	pending->request = *request;
	list_append(&serve->unsealing, &pending->link);
	run_waiting(serve);
	return 0;
}

static void cancel(struct pending *pending)
{
	(void)unseal_cancel(pending->unseal);
	ceilings_give(&pending->serve->ceilings, &pending->request.u.plan);
	forget(pending);
}

void serve_cancel_sealed(struct serve *serve, const uint8_t id[ID_BYTES])
{
	LIST_FOR_EACH_SAFE (link, following, &serve->unsealing) {
		struct pending *pending = LIST_ENTRY(link, struct pending, link);
		struct launch_msg answer;

		if (memcmp(pending->request.session, id, ID_BYTES) != 0)
			continue;
		answer = serve_answer(&pending->request, LAUNCH_E_STEP);
		(void)err_fail(&answer.u.err, -ECANCELED, "unseal", "killed before it began");
		peer_send(&pending->client->peer, &answer, -1);
		cancel(pending);
	}
	run_waiting(serve);
}

bool serve_is_sealed(const struct serve *serve, const uint8_t id[ID_BYTES])
{
	LIST_FOR_EACH (link, &serve->unsealing) {
		const struct pending *pending = LIST_ENTRY(link, struct pending, link);

		if (memcmp(pending->request.session, id, ID_BYTES) == 0)
			return true;
	}
	return false;
}

void serve_forget_sealed(struct serve_client *client)
{
	LIST_FOR_EACH_SAFE (link, following, &client->serve->unsealing) {
		struct pending *pending = LIST_ENTRY(link, struct pending, link);

		if (pending->client == client)
			cancel(pending);
	}
	run_waiting(client->serve);
}
