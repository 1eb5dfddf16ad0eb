/*
 * Unix sockets of this host: this worker can make none of these connections itself, since its root
 * is empty. The supervisor makes them, by a number that stands for a line of its configuration; a
 * few at once, so the others wait here, each until its deadline.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "base/launch.h"
#include "base/sockmsg.h"

#include "sandboxd/launch.h"
#include "sandboxd/worker.h"
#include "supervisor/egress/relay.h"

static struct conn *find(const struct egress *egress, uint32_t serial)
{
	LIST_FOR_EACH (link, &egress->service_dials) {
		struct conn *conn = LIST_ENTRY(link, struct conn, dial.service_link);

		if (conn->dial.service_serial == serial)
			return conn;
	}
	return NULL;
}

static void ask_more(struct egress *egress)
{
	while (egress->n_services_asked < LAUNCH_SERVICES_AT_ONCE) {
		struct conn *conn = find(egress, 0);
		struct launch_msg msg;

		if (!conn)
			return;
		if (++egress->last_serial == 0)
			++egress->last_serial;
		msg = launch_message(LAUNCH_SERVICE, egress->last_serial, NULL);
		msg.u.service.id = relay_rule(conn)->reroute_service;
		if (sockmsg_send(WORKER_FD_SUPERVISOR, &msg, sizeof(msg), NULL, 0) < 0) {
			relay_refuse(conn, EGRESS_CHANNEL_TCP, EGRESS_REASON_CONNECT, conn->rule);
			continue;
		}
		conn->dial.service_serial = egress->last_serial;
		egress->n_services_asked++;
	}
}

void service_dial(struct conn *conn)
{
	struct egress *egress = conn->base.session->egress;

	conn->dial.service_serial = 0;
	list_append(&egress->service_dials, &conn->dial.service_link);
	ask_more(egress);
}

int service_answered(struct egress *egress, const struct launch_msg *answer, int fd)
{
	AUTO_CLOSE int owned_fd = fd;
	struct conn *conn;

	if (answer->serial == 0 || egress->n_services_asked == 0)
		return -EPROTO;
	egress->n_services_asked--;
	ask_more(egress);
	conn = find(egress, answer->serial);
	if (!conn)
		return 0; /* its client did not wait */
	list_remove(&conn->dial.service_link);
	if (answer->error != LAUNCH_E_NONE || owned_fd < 0)
		goto refuse;
	conn->upstream_fd = TAKE_FD(owned_fd);
	if (loop_add(egress->loop, conn->upstream_fd, EPOLLOUT, relay_on_upstream, conn,
		     &conn->upstream) < 0)
		goto refuse;
	return relay_connected(conn);
refuse:
	relay_refuse(conn, EGRESS_CHANNEL_TCP, EGRESS_REASON_CONNECT, conn->rule);
	return 0;
}
