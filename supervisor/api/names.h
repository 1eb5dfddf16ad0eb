/*
 * Names of the servers that the api worker is a client of, to addresses (base/name_lookup.h).
 * Nothing blocks: who waits without the worker's loop (at start) polls its descriptor.
 */
#pragma once

#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/auto.h"

#include "sandboxd/egress.h"

#define NAMES_ADDRESSES_MAX 8

struct names;
struct names_question;

struct names_answer {
	uint32_t n; /* 0: it has none, or nobody answers */
	struct egress_address address[NAMES_ADDRESSES_MAX];
};

/* Owned by whoever asks; cancelled before it goes away. */
struct names_query {
	void (*done)(void *userdata); /* the answer is there; may ask again */
	void *userdata;
	struct names_answer answer;
	struct names_question *question; /* NULL: nothing is asked */
};

/* Before the worker confines itself. 0 or -errno. */
MUST_USE int names_new(struct names **ret_names);
/* All questions must have been cancelled. Accepts NULL, returns NULL. */
struct names *names_free(struct names *names);
MUST_USE int names_watch(struct names *names, sd_event *event); /* 0 or -errno */
int names_fd(const struct names *names); /* readable: names_process has something to do */
void names_process(struct names *names);
/* name is complete: no search list. 1: query->answer has it; 0: `done` will be called; -ENOMEM. */
MUST_USE int names_ask(struct names *names, const char *name, struct names_query *query);
void names_cancel(struct names_query *query); /* one that was never asked is fine */
