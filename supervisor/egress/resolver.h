/*
 * Names to addresses by the host's resolver configuration (c-ares): one question for all who ask
 * at the same time, its answer kept as long as it says.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/list.h"
#include "base/loop.h"

#include "sandboxd/egress.h"

#define RESOLVER_MAX_ADDRESSES 8

struct resolver;

#define RESOLVER_MAX_CHAIN 2048 /* bytes; an answer with more is taken for none */

struct resolver_answer {
	uint32_t n; /* 0: there is none */
	/* The names that led to the addresses (CNAME), lower-case, a NUL behind each and one at the
	 * end. The resolver's, until the next question. NULL: none. */
	const char *chain;
	struct egress_address address[RESOLVER_MAX_ADDRESSES];
};

/* Owned by whoever asks; must be cancelled before it goes away. */
struct resolver_query {
	struct list link;
	void (*done)(void *userdata, const struct resolver_answer *answer);
	void *userdata;
};

/* Before the worker confines itself: reads resolv.conf. */
MUST_USE int resolver_new(struct loop *loop, struct resolver **ret_resolver);
void resolver_free(struct resolver *resolver);
/* name: canonical; never completed by a search list. 1: *ret_answer has it; 0: `done` will be
 * called; -errno. */
MUST_USE int resolver_ask(struct resolver *resolver, const char *name, struct resolver_query *query,
			  struct resolver_answer *ret_answer);
/* One of the name servers of the configuration. */
bool resolver_has_server(const struct resolver *resolver, const struct egress_address *address);
void resolver_cancel(struct resolver_query *query); /* one that was never asked is fine */
