/*
 * A small epoll loop for the programs that link nothing else: supervisor, keeper, shim. (The api
 * and egress workers use sd-event.) Level-triggered, single-threaded, no allocation while it runs
 * but for new sources. A source may be removed in any callback, its own included: it is freed at
 * the end of the turn.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"

struct loop;
struct loop_source;

/* events: EPOLLIN and friends. A negative return ends loop_run with that value. */
typedef int (*loop_callback)(void *userdata, uint32_t events);

MUST_USE int loop_new(struct loop **ret_loop);
void loop_free(struct loop *loop); /* asserts that no source is left */
/* The descriptor stays the caller's and is removed from epoll by loop_remove before it is closed.
 */
MUST_USE int loop_add(struct loop *loop, int fd, uint32_t events, loop_callback callback,
		      void *userdata, struct loop_source **ret_source);
MUST_USE int loop_set_events(struct loop_source *source, uint32_t events);
/* One-shot timer by CLOCK_BOOTTIME; USEC_NEVER disarms. Set again with loop_timer_set. */
MUST_USE int loop_add_timer(struct loop *loop, usec_t at, loop_callback callback, void *userdata,
			    struct loop_source **ret_source);
void loop_timer_set(struct loop_source *source, usec_t at);
/* Called once per turn, after all descriptors, while enabled. */
MUST_USE int loop_add_deferred(struct loop *loop, loop_callback callback, void *userdata,
			       struct loop_source **ret_source);
void loop_deferred_set(struct loop_source *source, int enabled);
struct loop_source *loop_remove(struct loop_source *source); /* accepts NULL, returns NULL */
MUST_USE int loop_run(struct loop *loop); /* until loop_quit; its value, or -errno */
void loop_quit(struct loop *loop, int value);
