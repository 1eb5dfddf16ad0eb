#include "supervisor/egress/resolver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/host_name.h"
#include "base/name_lookup.h"
#include "base/socket_address.h"
#include "base/str.h"

#define CACHE_MAX     4096
#define CACHE_BUCKETS 512
#define TTL_MIN_S     1
#define TTL_MAX_S     300
#define FAILURE_S     2
#define TIMEOUT_MS    2000 /* of one try */

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
	struct name_lookup *lookup;
	struct loop_source *source;
	struct list bucket[CACHE_BUCKETS];
	uint32_t n_cached;
};

static int on_descriptor(void *userdata, uint32_t events)
{
	struct resolver *resolver = userdata;

	(void)events;
	name_lookup_process(resolver->lookup);
	return 0;
}

static void add_node(struct resolver_answer *answer, const struct ares_addrinfo_node *node)
{
	if (answer->n < RESOLVER_MAX_ADDRESSES &&
	    socket_address_read(node->ai_addr, &answer->address[answer->n]))
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
	resolver->source = loop_remove(resolver->source);
	resolver->lookup = name_lookup_free(resolver->lookup);
	for (size_t i = 0; i < CACHE_BUCKETS; i++)
		while (!list_empty(&resolver->bucket[i]))
			cached_free(LIST_ENTRY(resolver->bucket[i].next, struct cached, link));
	free(resolver);
}

int resolver_new(struct loop *loop, struct resolver **ret_resolver)
{
	struct resolver *resolver = calloc(1, sizeof(*resolver));
	int r;

	if (!resolver)
		return -ENOMEM;
	for (size_t i = 0; i < CACHE_BUCKETS; i++)
		list_init(&resolver->bucket[i]);
	r = name_lookup_new(TIMEOUT_MS, &resolver->lookup);
	if (r >= 0)
		r = loop_add(loop, name_lookup_fd(resolver->lookup), EPOLLIN, on_descriptor,
			     resolver, &resolver->source);
	if (r < 0) {
		resolver_free(resolver);
		return r;
	}
	*ret_resolver = resolver;
	return 0;
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
	struct cached *cached = find(resolver, name);

	if (!cached)
		return -ENOMEM;
	if (!cached->pending && cached->until <= clock_boottime()) {
		cached->pending = true;
		/* May answer before it returns. */
		name_lookup_ask(resolver->lookup, name, on_answer, cached);
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
	return name_lookup_has_server(resolver->lookup, address);
}

void resolver_cancel(struct resolver_query *query)
{
	if (query->link.next)
		list_remove(&query->link);
}
