/*
 * Theory. A session's sockets live here as long as the session, and the egress worker that its plan
 * names works on copies: when it dies, connections wait in the listener for the next one instead of
 * being refused. Copies are made one message at a time, so that handing over a thousand sessions
 * takes a few descriptors. A worker that is not there is no trouble: it gets all when it says
 * HELLO.
 */
#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/launch.h"
#include "base/log.h"

#include "supervisor/serve_state.h"
#include "supervisor/session.h"

static struct serve_client *egress_of(const struct serve_session *entry)
{
	uint32_t index = entry->plan.egress;

	return index < ARRAY_SIZE(entry->serve->egress) ? entry->serve->egress[index] : NULL;
}

static int copy_sockets(const struct session *session, int ret_fds[LAUNCH_NET_FDS])
{
	int fds[LAUNCH_NET_FDS];

	if (!session_net(session, fds))
		return -ENOENT;
	for (size_t i = 0; i < LAUNCH_NET_FDS; i++) {
		ret_fds[i] = fd_dup(fds[i], 0);
		if (ret_fds[i] < 0) {
			int r = ret_fds[i];
			while (i > 0)
				(void)fd_close(ret_fds[--i]);
			return r;
		}
	}
	return 0;
}

static void hand_over(struct serve_client *client, struct serve_session *entry)
{
	struct launch_msg event = launch_message(LAUNCH_EVENT_NET, 0, entry->plan.session);
	int fds[LAUNCH_NET_FDS];
	int r;

	list_remove(&entry->net_link);
	r = copy_sockets(entry->session, fds);
	if (r == -ENOENT)
		return; /* it is ending, or of a release without networks */
	if (r < 0) {
		struct id id;

		memcpy(id.bytes, entry->plan.session, sizeof(id.bytes));
		log_line(LOG_LEVEL_ERROR, &(struct log_context){.session = &id},
			 "the session's sockets cannot be handed over", "errno=%d", -r);
		return;
	}
	entry->net_told = true;
	peer_send_fds(&client->peer, &event, fds, LAUNCH_NET_FDS);
}

void serve_net_more(struct serve_client *client)
{
	while (!list_empty(&client->net_waiting) && !client->peer.broken &&
	       list_empty(&client->peer.queue))
		hand_over(client,
			  LIST_ENTRY(client->net_waiting.next, struct serve_session, net_link));
}

void serve_net_live(struct serve_session *entry)
{
	struct serve_client *client = egress_of(entry);

	if (!client)
		return;
	list_remove(&entry->net_link);
	list_append(&client->net_waiting, &entry->net_link);
	serve_net_more(client);
}

void serve_net_ended(struct serve_session *entry)
{
	struct serve_client *client = egress_of(entry);
	struct launch_msg event;

	list_remove(&entry->net_link);
	if (!client || !entry->net_told)
		return;
	event = launch_message(LAUNCH_EVENT_NET_GONE, 0, entry->plan.session);
	peer_send(&client->peer, &event, -1);
}

void serve_hand_over(struct serve_client *client)
{
	struct serve *serve = client->serve;

	if (client->index >= ARRAY_SIZE(serve->egress))
		return;
	serve->egress[client->index] = client;
	LIST_FOR_EACH (link, &serve->all) {
		struct serve_session *entry = LIST_ENTRY(link, struct serve_session, all_link);

		/* One that is still being started comes by itself. */
		if (entry->plan.egress == client->index && entry->session)
			list_append(&client->net_waiting, &entry->net_link);
	}
	serve_net_more(client);
}

void serve_net_forget(struct serve_client *client)
{
	struct serve *serve = client->serve;

	if (client->worker != SERVE_WORKER_EGRESS)
		return;
	if (client->index < ARRAY_SIZE(serve->egress) && serve->egress[client->index] == client)
		serve->egress[client->index] = NULL;
	while (!list_empty(&client->net_waiting))
		list_remove(client->net_waiting.next);
	LIST_FOR_EACH (link, &serve->all) {
		struct serve_session *entry = LIST_ENTRY(link, struct serve_session, all_link);

		if (entry->plan.egress == client->index)
			entry->net_told = false;
	}
}
