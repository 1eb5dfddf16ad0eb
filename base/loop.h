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
/* The descriptor stays the caller's; loop_remove comes before its close (a later one aborts).
 * events 0: not watched at all, not even for a hang-up. 0, -ENOMEM, or epoll's -errno (-EPERM: a
 * regular file). */
MUST_USE int loop_add(struct loop *loop, int fd, uint32_t events, loop_callback callback,
		      void *userdata, struct loop_source **ret_source);
MUST_USE int loop_set_events(struct loop_source *source, uint32_t events);
/* One-shot timer by CLOCK_BOOTTIME, up to 1 ms late, never early; USEC_NEVER disarms. Set again
 * with loop_timer_set. */
MUST_USE int loop_add_timer(struct loop *loop, usec_t at, loop_callback callback, void *userdata,
			    struct loop_source **ret_source);
void loop_timer_set(struct loop_source *source, usec_t at); /* never fails */
/* A new source is enabled. An enabled one makes the loop turn without waiting: disable it when
 * there is nothing to do. Called once per turn, after descriptors and timers. */
MUST_USE int loop_add_deferred(struct loop *loop, loop_callback callback, void *userdata,
			       struct loop_source **ret_source);
void loop_deferred_set(struct loop_source *source, int enabled);
struct loop_source *loop_remove(struct loop_source *source); /* accepts NULL, returns NULL */
/* Until loop_quit (its value, >= 0) or a callback's or epoll's negative errno. Can be run again. */
MUST_USE int loop_run(struct loop *loop);
void loop_quit(struct loop *loop, int value); /* before loop_run too: it then returns at once */
