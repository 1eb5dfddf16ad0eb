#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "supervisor/egress/relay.h"
#include "supervisor/egress/worker.h"

#define REST (50 * USEC_PER_MS)

static struct list *bucket_of(struct egress *egress, const struct id *id)
{
	return &egress->sessions[id_hash(id) % SESSION_BUCKETS];
}

struct session *sessions_find(const struct egress *egress, const struct id *id)
{
	const struct list *bucket = &egress->sessions[id_hash(id) % SESSION_BUCKETS];

	LIST_FOR_EACH (link, bucket) {
		struct session *session = LIST_ENTRY(link, struct session, link);

		if (id_equal(&session->id, id))
			return session;
	}
	return NULL;
}

struct session *sessions_get(struct egress *egress, const struct id *id)
{
	struct session *session = sessions_find(egress, id);

	if (session)
		return session;
	session = calloc(1, sizeof(*session));
	if (!session)
		return NULL;
	if (loop_add_timer(egress->loop, USEC_NEVER, relay_on_refill, session, &session->refill) <
	    0) {
		free(session);
		return NULL;
	}
	session->egress = egress;
	session->id = *id;
	session->listener.fd = session->resolver.fd = -1;
	list_init(&session->connections);
	list_init(&session->paused);
	list_init(&session->listener.resting_link);
	list_init(&session->resolver.resting_link);
	list_append(bucket_of(egress, id), &session->link);
	return session;
}

static void intake_close(struct intake *intake)
{
	list_remove(&intake->resting_link);
	intake->source = loop_remove(intake->source);
	intake->fd = fd_close(intake->fd);
}

static void close_sockets(struct session *session)
{
	intake_close(&session->listener);
	intake_close(&session->resolver);
}

int intake_rest(struct egress *egress, struct intake *intake)
{
	if (list_empty(&egress->resting))
		loop_timer_set(egress->resting_timer, clock_add(clock_boottime(), REST));
	list_remove(&intake->resting_link);
	list_append(&egress->resting, &intake->resting_link);
	return loop_set_events(intake->source, 0);
}

int intakes_on_rested(void *userdata, uint32_t events)
{
	struct egress *egress = userdata;
	int r = 0;

	(void)events;
	while (r == 0 && !list_empty(&egress->resting)) {
		struct intake *intake =
			LIST_ENTRY(egress->resting.next, struct intake, resting_link);

		list_remove(&intake->resting_link);
		r = loop_set_events(intake->source, EPOLLIN);
	}
	return r;
}

int sessions_open(struct session *session, int listener_fd, int resolver_fd)
{
	struct loop *loop = session->egress->loop;
	int r;

	/* Made anew, for a namespace that goes on: the former ones were of it too. */
	close_sockets(session);
	session->listener.fd = listener_fd;
	session->resolver.fd = resolver_fd;
	r = loop_add(loop, listener_fd, EPOLLIN, relay_on_connection, session,
		     &session->listener.source);
	if (r == 0)
		r = loop_add(loop, resolver_fd, EPOLLIN, stub_on_question, session,
			     &session->resolver.source);
	if (r < 0)
		close_sockets(session);
	return r;
}

void sessions_free(struct session *session)
{
	relay_close_all(session);
	close_sockets(session);
	session->refill = loop_remove(session->refill);
	session->policy = policy_free(session->policy);
	session->incoming = policy_free(session->incoming);
	names_done(&session->names);
	list_remove(&session->link);
	free(session);
}

void sessions_drop_unopened(struct egress *egress)
{
	for (size_t i = 0; i < SESSION_BUCKETS; i++)
		LIST_FOR_EACH_SAFE (link, following, &egress->sessions[i]) {
			struct session *session = LIST_ENTRY(link, struct session, link);

			session->incoming = policy_free(session->incoming);
			if (session->listener.fd < 0)
				sessions_free(session);
		}
}

/* The names that the rules spell out have their addresses before anybody asks: a client that kept
 * one from before a restart of this worker goes on. */
static void name_rules(struct session *session)
{
	const struct policy *policy = session->policy;
	uint8_t address[4];

	session->names.max = policy->limits.max_names;
	for (uint32_t i = 0; i < policy->n_rules; i++)
		if (policy->rules[i].kind == EGRESS_RULE_NAME)
			/* Without room it gets one when it is asked for, or none. */
			IGNORE_RESULT(names_add(&session->names, &session->id,
						policy->rules[i].name, address));
}

void sessions_set_policy(struct session *session, struct policy *policy)
{
	struct policy *old = session->policy;

	session->policy = policy;
	if (policy)
		name_rules(session);
	relay_policy_changed(session, old);
	(void)policy_free(old);
}
