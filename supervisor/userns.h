/*
 * User namespaces, prepared ahead. Each owns one id block.
 *
 * Theory. A session's user namespace is nested below the host's and owns none of the session's
 * other namespaces, so that even its uid 0 has no power over mounts or network. A short-lived
 * helper makes it and lowers its ceilings (/proc/sys/user/max_*): no further user namespace can be
 * made inside, whatever a filter forgets (B1). Only a process of the namespace can write them; the
 * maps are written by the supervisor, since only the parent namespace may give ids. The namespace
 * lives on in the descriptor after the helper's exit; nothing ever ran in it but the helper, so it
 * is unused when a session gets it (E4).
 *
 * What the kernel counts by user (inotify, message queues, queued signals, locked memory,
 * processes) it counts for the id inside and again, one level up, for the id that made the
 * namespace. Made by root, the namespaces of all sessions would share root's counts and limits
 * (B20). So the helper takes the id of the shim first, the one of the block that is not mapped:
 * nobody outside has it, and its counts are those of this session. Whoever has that id outside
 * would have every capability over the namespace; the shim has it inside, where that means nothing.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "base/loop.h"

#include "supervisor/idblock.h"

#define USERNS_RESERVE_MAX 64

struct userns {
	int fd;
	uint32_t base; /* first host id of its block; 0: holds nothing */
};
#define USERNS_NULL ((struct userns){.fd = -1})

/* Who makes it and sets its ceilings. */
struct userns_helper {
	pid_t pid;
	int pid_fd;
	int talk_fd; /* -1: it has its maps */
};
#define USERNS_HELPER_NULL ((struct userns_helper){.pid_fd = -1, .talk_fd = -1})

struct userns_reserve {
	uint32_t n_launches; /* under way: a helper beside them would take a processor from them */
	struct loop *loop;
	struct idblock *idblock;
	uint32_t want; /* at most USERNS_RESERVE_MAX; may be changed at any time */
	uint32_t n_ready;
	struct userns ready[USERNS_RESERVE_MAX];
	/* one in preparation: its helper still runs */
	struct userns next;
	struct userns_helper helper;
	struct loop_source *next_source;
	struct loop_source *pause;
};
#define USERNS_RESERVE_NULL                                                                        \
	((struct userns_reserve){.next = USERNS_NULL, .helper = USERNS_HELPER_NULL})

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
