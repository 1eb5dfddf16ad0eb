/*
 * Sockets of c-ares are watched as it says (its socket callback comes before a close); its timer is
 * one of the loop's. It closes them whenever nothing is asked, so ports change.
 */
#include "supervisor/egress/resolver.h"

#include <ares.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/host_name.h"
#include "base/str.h"

#define MAX_SOCKETS   256
#define CACHE_MAX     4096
#define CACHE_BUCKETS 512
#define TTL_MIN_S     1
#define TTL_MAX_S     300
#define FAILURE_S     2
#define TIMEOUT_MS    2000
#define TRIES         3

struct watched {
	struct resolver *resolver;
	int fd; /* -1: free */
	struct loop_source *source;
};

struct cached {
	struct list link;
	struct resolver *resolver;
	bool pending;
	usec_t until;
	struct list queries;
	struct resolver_answer answer;
	char *chain; /* owned: answer.chain */
	char name[HOST_NAME_BYTES];
};

struct resolver {
	struct loop *loop;
	struct loop_source *timer;
	ares_channel channel;
	struct watched watched[MAX_SOCKETS];
	struct list bucket[CACHE_BUCKETS];
	uint32_t n_cached;
};

static void set_timer(struct resolver *resolver)
{
	struct timeval wait;
	const struct timeval *next = ares_timeout(resolver->channel, NULL, &wait);
	usec_t span;

	if (!next) {
		loop_timer_set(resolver->timer, USEC_NEVER);
		return;
	}
	span = (usec_t)next->tv_sec * USEC_PER_SEC + (usec_t)next->tv_usec;
	loop_timer_set(resolver->timer, clock_add(clock_boottime(), span));
}

static int on_timer(void *userdata, uint32_t events)
{
	struct resolver *resolver = userdata;

	(void)events;
	ares_process_fd(resolver->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	set_timer(resolver);
	return 0;
}

static int on_socket(void *userdata, uint32_t events)
{
	const struct watched *watched = userdata;
	struct resolver *resolver = watched->resolver;
	int fd = watched->fd;

	ares_process_fd(resolver->channel,
			events & (EPOLLIN | EPOLLERR | EPOLLHUP) ? fd : ARES_SOCKET_BAD,
			events & EPOLLOUT ? fd : ARES_SOCKET_BAD);
	set_timer(resolver);
	return 0;
}

static void watch(void *userdata, ares_socket_t fd, int readable, int writable)
{
	struct resolver *resolver = userdata;
	uint32_t events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);
	struct watched *place = NULL;

	for (size_t i = 0; i < MAX_SOCKETS; i++) {
		struct watched *at = &resolver->watched[i];

		if (at->fd == fd || (at->fd < 0 && !place))
			place = at;
		if (at->fd == fd)
			break;
	}
	if (!place)
		return; /* its timeout comes */
	if (place->fd >= 0) {
		int r = events ? loop_set_events(place->source, events) : 0;

		if (events && r == 0)
			return;
		place->source = loop_remove(place->source);
		place->fd = -1;
		return;
	}
	if (events && loop_add(resolver->loop, fd, events, on_socket, place, &place->source) == 0)
		place->fd = fd;
}

static void add_node(struct resolver_answer *answer, const struct ares_addrinfo_node *node)
{
	struct egress_address *address = &answer->address[answer->n];
	const struct sockaddr_in *v4 = (const void *)node->ai_addr;
	const struct sockaddr_in6 *v6 = (const void *)node->ai_addr;

	if (answer->n == RESOLVER_MAX_ADDRESSES)
		return;
	memset(address, 0, sizeof(*address));
	if (node->ai_family == AF_INET) {
		memcpy(address->bytes, &v4->sin_addr, 4);
		address->prefix = 32;
	} else if (node->ai_family == AF_INET6) {
		memcpy(address->bytes, &v6->sin6_addr, 16);
		address->prefix = 128;
	} else {
		return;
	}
	address->family = (uint32_t)node->ai_family;
	answer->n++;
}

/* IPv6 and IPv4 take turns, in the order of the answer (RFC 8305, 4). */
static int take_nodes(const struct ares_addrinfo *info, struct resolver_answer *answer)
{
	const struct ares_addrinfo_node *next[2] = {info->nodes, info->nodes};
	static const int families[2] = {AF_INET6, AF_INET};
	int ttl = TTL_MAX_S;

	while (next[0] || next[1]) {
		for (int i = 0; i < 2; i++) {
			while (next[i] && next[i]->ai_family != families[i])
				next[i] = next[i]->ai_next;
			if (!next[i])
				continue;
			add_node(answer, next[i]);
			if (next[i]->ai_ttl < ttl)
				ttl = next[i]->ai_ttl;
			next[i] = next[i]->ai_next;
		}
	}
	return ttl < TTL_MIN_S ? TTL_MIN_S : ttl;
}

/* As a rule has names. -EMSGSIZE: no room. */
static int append_name(char chain[RESOLVER_MAX_CHAIN], size_t *used, const char *name)
{
	size_t length = name ? strlen(name) : 0;

	if (length > 0 && name[length - 1] == '.')
		length--;
	if (length == 0)
		return 0;
	if (length >= RESOLVER_MAX_CHAIN - *used - 1)
		return -EMSGSIZE;
	for (size_t i = 0; i < length; i++) {
		char letter = name[i];

		if (letter >= 'A' && letter <= 'Z')
			letter = (char)(letter - 'A' + 'a');
		chain[*used + i] = letter;
	}
	*used += length + 1;
	return 0;
}

/* Every name on the way, whatever order they came in. */
static int take_chain(const struct ares_addrinfo *info, char **ret_chain)
{
	char chain[RESOLVER_MAX_CHAIN] = {0};
	size_t used = 0;
	int r = 0;

	for (const struct ares_addrinfo_cname *at = info->cnames; r == 0 && at; at = at->next) {
		r = append_name(chain, &used, at->alias);
		if (r == 0)
			r = append_name(chain, &used, at->name);
	}
	if (r < 0 || used == 0)
		return r;
	*ret_chain = malloc(used + 1);
	if (!*ret_chain)
		return -ENOMEM;
	memcpy(*ret_chain, chain, used + 1);
	return 0;
}

static void drop_answer(struct cached *cached)
{
	free(cached->chain);
	cached->chain = NULL;
	cached->answer = (struct resolver_answer){.n = 0};
}

static void on_answer(void *userdata, int status, int timeouts, struct ares_addrinfo *info)
{
	struct cached *cached = userdata;
	int keep_s = FAILURE_S;

	(void)timeouts;
	drop_answer(cached);
	/* Names that nobody can look at could be production's. */
	if (status == ARES_SUCCESS && info && take_chain(info, &cached->chain) == 0) {
		keep_s = take_nodes(info, &cached->answer);
		cached->answer.chain = cached->chain;
	}
	if (info)
		ares_freeaddrinfo(info);
	cached->pending = false;
	cached->until = clock_add(clock_boottime(), (unsigned int)keep_s * USEC_PER_SEC);
	/* Who is told may cancel others, but not ask: the list is looked at anew each time. */
	while (!list_empty(&cached->queries)) {
		struct resolver_query *query =
			LIST_ENTRY(cached->queries.next, struct resolver_query, link);

		list_remove(&query->link);
		query->done(query->userdata, &cached->answer);
	}
}

int resolver_new(struct loop *loop, struct resolver **ret_resolver)
{
	struct resolver *resolver = calloc(1, sizeof(*resolver));
	char lookups[] = "fb"; /* the hosts file, then name servers */
	struct ares_options options = {
		/* Names are complete: no search list, no HOSTALIASES. */
		.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
		.timeout = TIMEOUT_MS,
		.tries = TRIES,
		.lookups = lookups,
		.sock_state_cb = watch,
		.sock_state_cb_data = resolver,
	};
	int status, r;

	if (!resolver)
		return -ENOMEM;
	resolver->loop = loop;
	for (size_t i = 0; i < MAX_SOCKETS; i++)
		resolver->watched[i] = (struct watched){resolver, -1, NULL};
	for (size_t i = 0; i < CACHE_BUCKETS; i++)
		list_init(&resolver->bucket[i]);
	r = loop_add_timer(loop, USEC_NEVER, on_timer, resolver, &resolver->timer);
	if (r < 0) {
		free(resolver);
		return r;
	}
	status = ares_init_options(&resolver->channel, &options,
				   ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
					   ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB);
	if (status != ARES_SUCCESS) {
		(void)loop_remove(resolver->timer);
		free(resolver);
		return status == ARES_ENOMEM ? -ENOMEM : -EIO;
	}
	*ret_resolver = resolver;
	return 0;
}

static void cached_free(struct cached *cached)
{
	drop_answer(cached);
	list_remove(&cached->link);
	cached->resolver->n_cached--;
	free(cached);
}

void resolver_free(struct resolver *resolver)
{
	if (!resolver)
		return;
	ares_destroy(resolver->channel);
	resolver->timer = loop_remove(resolver->timer);
	for (size_t i = 0; i < CACHE_BUCKETS; i++)
		while (!list_empty(&resolver->bucket[i]))
			cached_free(LIST_ENTRY(resolver->bucket[i].next, struct cached, link));
	free(resolver);
}

static struct list *bucket_of(struct resolver *resolver, const char *name)
{
	uint32_t hash = 0x811c9dc5u;

	for (const char *at = name; *at; at++)
		hash = (hash ^ (uint8_t)*at) * 0x01000193u;
	return &resolver->bucket[hash % CACHE_BUCKETS];
}

/* Room for one more: what is out of date goes, then whatever nobody waits for. */
static void make_room(struct resolver *resolver, usec_t now)
{
	for (int pass = 0; pass < 2 && resolver->n_cached >= CACHE_MAX; pass++)
		for (size_t i = 0; i < CACHE_BUCKETS; i++)
			LIST_FOR_EACH_SAFE (link, following, &resolver->bucket[i]) {
				struct cached *cached = LIST_ENTRY(link, struct cached, link);

				if (!cached->pending && (pass > 0 || cached->until <= now))
					cached_free(cached);
			}
}

static struct cached *find(struct resolver *resolver, const char *name)
{
	struct list *bucket = bucket_of(resolver, name);
	struct cached *cached;

	LIST_FOR_EACH (link, bucket) {
		cached = LIST_ENTRY(link, struct cached, link);
		if (strcmp(cached->name, name) == 0)
			return cached;
	}
	make_room(resolver, clock_boottime());
	if (resolver->n_cached >= CACHE_MAX)
		return NULL;
	cached = calloc(1, sizeof(*cached));
	if (!cached)
		return NULL;
	if (str_copy(cached->name, sizeof(cached->name), name) < 0) {
		free(cached);
		return NULL;
	}
	cached->resolver = resolver;
	list_init(&cached->queries);
	list_append(bucket, &cached->link);
	resolver->n_cached++;
	return cached;
}

int resolver_ask(struct resolver *resolver, const char *name, struct resolver_query *query,
		 struct resolver_answer *ret_answer)
{
	static const struct ares_addrinfo_hints hints = {
		.ai_flags = ARES_AI_NOSORT,
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
	};
	struct cached *cached = find(resolver, name);

	if (!cached)
		return -ENOMEM;
	if (!cached->pending && cached->until <= clock_boottime()) {
		cached->pending = true;
		/* May answer before it returns. */
		ares_getaddrinfo(resolver->channel, name, NULL, &hints, on_answer, cached);
		set_timer(resolver);
	}
	if (!cached->pending) {
		*ret_answer = cached->answer;
		return 1;
	}
	list_append(&cached->queries, &query->link);
	return 0;
}

bool resolver_has_server(const struct resolver *resolver, const struct egress_address *address)
{
	struct ares_addr_node *servers = NULL;
	bool found = false;

	/* Without memory: as if it were one. */
	if (ares_get_servers(resolver->channel, &servers) != ARES_SUCCESS)
		return true;
	for (const struct ares_addr_node *at = servers; at && !found; at = at->next)
		found = (uint32_t)at->family == address->family &&
			memcmp(&at->addr, address->bytes, at->family == AF_INET ? 4 : 16) == 0;
	if (servers)
		ares_free_data(servers);
	return found;
}

void resolver_cancel(struct resolver_query *query)
{
	if (query->link.next)
		list_remove(&query->link);
}
