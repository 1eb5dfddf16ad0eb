/*
 * User namespaces, prepared ahead. Each owns one id block.
 *
 * Theory. A session's user namespace is nested below the host's and owns none of the session's
 * other namespaces, so that even its uid 0 has no power over mounts or network. A short-lived
 * helper, cloned into it, lowers its ceilings (/proc/sys/user/max_*): no further user namespace can
 * be made inside, whatever a filter forgets (B1), and inotify is counted per session (B20). Only a
 * process of the namespace can write them; the maps are written by the supervisor, since only the
 * parent namespace may give ids. The namespace lives on in the descriptor after the helper's exit;
 * nothing ever ran in it but the helper, so it is unused when a session gets it (E4).
 */
#pragma once

#include "base/err.h"
#include "base/loop.h"

#include "supervisor/idblock.h"

#define USERNS_RESERVE_MAX 64

struct userns {
	int fd;
	uint32_t base; /* first host id of its block; 0: holds nothing */
};
#define USERNS_NULL ((struct userns){.fd = -1})

struct userns_reserve {
	uint32_t n_launches; /* under way: a helper beside them would take a processor from them */
	struct loop *loop;
	struct idblock *idblock;
	uint32_t want; /* at most USERNS_RESERVE_MAX; may be changed at any time */
	uint32_t n_ready;
	struct userns ready[USERNS_RESERVE_MAX];
	/* one in preparation: its helper still runs */
	struct userns next;
	int next_pid_fd;
	struct loop_source *next_source;
	struct loop_source *pause;
};
#define USERNS_RESERVE_NULL ((struct userns_reserve){.next = USERNS_NULL, .next_pid_fd = -1})

/* Wants none yet: see userns_reserve.want. */
MUST_USE int userns_reserve_init(struct userns_reserve *reserve, struct loop *loop,
				 struct idblock *idblock);
void userns_reserve_done(struct userns_reserve *reserve); /* releases the blocks */
/* Have the reserve filled, one helper after the other: at once while it is low, else in a pause,
 * when whoever waits for the launch that took one has had its answer. */
void userns_reserve_refill(struct userns_reserve *reserve);
/* From the reserve, else made now (waits for its helper: about half a millisecond). -EBUSY: no id
 * block is free. */
MUST_USE int userns_take(struct userns_reserve *reserve, struct userns *ret_userns,
			 struct err *err);
/* Close the namespace and let its block rest. Accepts USERNS_NULL. */
void userns_release(struct userns_reserve *reserve, struct userns *userns);
