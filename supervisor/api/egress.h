/*
 * The sessions' network policies: made here, sent to the egress worker of each session, and sent
 * again whenever either worker has restarted, the connection between them was lost, the
 * configuration was loaded again, or the session's tree was. What the egress workers refuse becomes
 * a denial record of the session.
 */
#pragma once

#include "supervisor/api/app.h"
#include "supervisor/api/egress/policy.h"
#include "supervisor/api/live.h"

#define EGRESS_WAIT (5 * USEC_PER_SEC) /* for a policy to be in force */

struct egress_hub;
MUST_USE int egress_hub_new(struct app *app, struct egress_hub **ret_hub);
struct egress_hub *egress_hub_free(struct egress_hub *hub); /* accepts NULL; returns NULL */

/* A new socket to that egress worker, which becomes the hub's. */
void egress_take_link(struct app *app, uint32_t index, int fd);

/* Send its policy. Before the launch, and whenever something of it has changed. */
void egress_push(struct app *app, struct session *session);
/* All that have a tree, or get one: the configuration is another one. */
void egress_push_all(struct app *app);
/* Nothing is left of its tree. */
void egress_forget(struct app *app, const struct session *session);
/* It ends: who waits for its policy is told now. */
void egress_end_waits(struct app *app, const struct session *session);

/* It has a tree, or gets one: its egress worker holds a policy of it. */
bool egress_is_wanted(const struct session *session);

/* 0, or as policy_make. */
MUST_USE int egress_policy_of(const struct app *app, const struct session *session,
			      struct net_policy *ret_policy);

/* The same, kept until the next call or push. NULL: it cannot be made. */
const struct net_policy *egress_policy_kept(struct app *app, const struct session *session);

/* Call back once when the policy that was sent last is in force (error 0), was not taken (errno),
 * when its tree ends first (-ESHUTDOWN), or when nothing happened in time (-ETIMEDOUT). Not from
 * inside. -ENOMEM: it will not be called. */
typedef void (*egress_settled)(void *userdata, const struct id *session, int error);
MUST_USE int egress_wait_settled(struct app *app, const struct session *session,
				 egress_settled settled, void *userdata);
/* Counters, one a rule and then all; n 0 where they cannot be had. They are the caller's only for
 * the call. */
typedef void (*egress_counted)(void *userdata, const struct id *session,
			       const struct egress_counters *counters, size_t n);
MUST_USE int egress_wait_counted(struct app *app, const struct session *session,
				 egress_counted counted, void *userdata);

/* egress_denials.c */
void egress_note_denial(struct app *app, struct session *session,
			const struct egress_denial *denial);
