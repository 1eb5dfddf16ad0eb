/*
 * libpq would look names up itself, which blocks: it gets each name's addresses beside the name,
 * which is then only whom a certificate has to name.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/dsn.h"
#include "base/str.h"

#include "supervisor/api/store/pg_dsn.h"

#define LIST_BYTES ((size_t)64 * 1024)

static size_t entries_of(const char *list)
{
	size_t n = 1;

	for (const char *at = list; *at; at++)
		n += *at == ',';
	return n;
}

/* Ports may be one for all. */
static int split_ports(struct pg_dsn *dsn, const char *ports)
{
	size_t n = ports ? entries_of(ports) : 0;
	const char *at = ports;
	int r = 0;

	if (n > 1 && n != dsn->n_hosts)
		return -EINVAL;
	for (size_t i = 0; r == 0 && n > 0 && i < dsn->n_hosts; i++) {
		size_t length = strcspn(at, ",");

		r = str_copy_n(dsn->port[i], sizeof(dsn->port[i]), at, length);
		at += n > 1 ? length + (at[length] == ',') : 0;
	}
	return r < 0 ? -EINVAL : 0;
}

int pg_hosts_split(struct pg_dsn *dsn, const char *hosts, const char *ports)
{
	size_t length;

	if (entries_of(hosts) > PG_HOSTS_MAX)
		return -EINVAL;
	for (const char *at = hosts;; at += length + 1) {
		char *host = dsn->host[dsn->n_hosts++];

		length = strcspn(at, ",");
		/* Numbers are looked up as well: each is its own address. */
		if (host_name_canonical(at, length, host) < 0 &&
		    (str_copy_n(host, HOST_NAME_BYTES, at, length) < 0 || !dsn_is_address(host)))
			return -EINVAL;
		if (at[length] == '\0')
			return split_ports(dsn, ports);
	}
}

static int add_entry(struct buf *list, bool first, const char *text)
{
	return buf_printf(list, "%s%s", first ? "" : ",", text);
}

int pg_dsn_place(struct pg_dsn *dsn, const struct names_answer *const answer[])
{
	struct buf list[PG_PLACE_MAX_] = {BUF_NULL(LIST_BYTES), BUF_NULL(LIST_BYTES),
					  BUF_NULL(LIST_BYTES)};
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < dsn->n_hosts; i++) {
		for (uint32_t k = 0; r >= 0 && k < answer[i]->n; k++) {
			const struct egress_address *address = &answer[i]->address[k];
			char text[INET6_ADDRSTRLEN] = "";

			if (!inet_ntop((int)address->family, address->bytes, text, sizeof(text)))
				continue;
			r = add_entry(&list[PG_PLACE_HOST], n == 0, dsn->host[i]);
			if (r >= 0)
				r = add_entry(&list[PG_PLACE_HOSTADDR], n == 0, text);
			if (r >= 0)
				r = add_entry(&list[PG_PLACE_PORT], n == 0, dsn->port[i]);
			n++;
		}
	}
	if (r >= 0 && n == 0)
		r = -ENOENT;
	for (size_t i = 0; i < PG_PLACE_MAX_; i++) {
		const char *text = r >= 0 ? buf_text(&list[i]) : NULL;

		free(dsn->place[i]);
		dsn->place[i] = text ? strdup(text) : NULL;
		dsn->value[dsn->place_at[i]] = dsn->place[i];
		if (r >= 0 && !dsn->place[i])
			r = -ENOMEM;
		buf_done(&list[i]);
	}
	return r < 0 ? r : 0;
}
