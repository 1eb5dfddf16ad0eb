/*
 * An api worker as it is, but with the provider `fake`, in a process of its own; all around it is
 * the test: the supervisor, an egress worker, sandboxd-provider (of the provider `docker`), the far
 * end of `fake`, the shims and the HTTP clients. What the supervisor and the egress worker are
 * asked is answered as they would; what a provider is asked is the test's to answer.
 *
 * Nothing here waits for a time: each function that waits does so until it is there, and fails the
 * test where that takes longer than API_RIG_PATIENCE.
 */
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"

#include "sandboxd/launch.h"
#include "sandboxd/worker.h"
#include "tests/lib/test.h"

#define API_RIG_PATIENCE (120 * USEC_PER_SEC)
#define API_RIG_CALLS    32
#define API_RIG_ASKS     32
#define API_RIG_SHIMS    16

/* Bit of provider_fake_begin. */
#define API_LATE(type) (UINT64_C(1) << ((type) / 2))

enum api_far {
	API_FAR_FAKE,
	API_FAR_DOCKER,
	API_FAR_MAX_,
};

struct api_ask {
	bool is_there;
	enum api_far from;
	struct launch_msg msg;
};

struct api_call {
	int fd; /* -1: its answer is whole, or none is asked for */
	struct buf answer;
};

struct api_rig {
	struct test_temp temp;
	struct config_answer *config;
	bool has_docker;
	bool has_stray; /* the supervisor has a session that no row speaks of */
	/* Where not 0: whatever KILL comes from `fake` is refused with it at once. */
	enum launch_error kill_refused;
	unsigned int n_kills; /* that were so refused */
	pid_t pid;            /* of the worker; 0: there is none */
	int supervisor_fd;
	int egress_fd;
	int far_fd[API_FAR_MAX_];
	int shim_fd[API_RIG_SHIMS]; /* our ends; -1 */
	struct api_ask ask[API_RIG_ASKS];
	struct api_call call[API_RIG_CALLS];
	uint64_t number[API_RIG_SHIMS]; /* of the last durable frame */
	uint16_t features;              /* that shims say they have: enum wire_features */
};

int api_rig_set_up(void **state);
int api_rig_tear_down(void **state);
#define API_TEST(function)                                                                         \
	cmocka_unit_test_setup_teardown(function, api_rig_set_up, api_rig_tear_down)

/* A worker on the rig's store (without root the test is skipped), whose first look at `fake` waits
 * for the test (LAUNCH_ADOPT). */
void api_start(struct api_rig *rig, uint64_t is_late);
/* The same, and nothing lives there. */
void api_start_empty(struct api_rig *rig, uint64_t is_late);
void api_leave(struct api_rig *rig); /* it ends as for the next release: its sandboxes live */
void api_crash(struct api_rig *rig);
void api_wait(struct api_rig *rig);    /* until something comes, or for a moment */
bool api_is_down(struct api_rig *rig); /* the worker has ended by itself */

/* What a provider is asked: waits for it. */
struct launch_msg api_hear(struct api_rig *rig, enum api_far from, enum launch_type type);
/* How much of that was asked and not heard yet. */
unsigned int api_n_asked(struct api_rig *rig, enum api_far from, enum launch_type type);
/* Also more than once, or never. fd: goes along; stays the caller's; -1: none. */
void api_say(struct api_rig *rig, enum api_far to, const struct launch_msg *answer, int fd);
struct launch_msg api_answer_to(const struct launch_msg *ask, enum launch_error error);
void api_answer(struct api_rig *rig, enum api_far to, const struct launch_msg *ask,
		enum launch_error error);
void api_far_close(struct api_rig *rig, enum api_far which); /* the provider is away */
void api_far_link(struct api_rig *rig); /* docker's next process, maybe before the last has ended */

/* A new shim: its number, and in *ret_fd the end for the worker, the caller's. */
int api_shim(struct api_rig *rig, int *ret_fd);
/* It greets, as the shim of that session. jobs: that run in it. */
void api_shim_greet(struct api_rig *rig, int shim, const uint8_t session[ID_BYTES], uint64_t sent);
/* The next command is begun (its number is returned), or that and what it says and its end 0. */
uint32_t api_shim_begin(struct api_rig *rig, int shim);
void api_shim_run(struct api_rig *rig, int shim, const char *says);
void api_shim_pause(struct api_rig *rig, int shim); /* it is told that it will be, and says so */
void api_shim_cut(struct api_rig *rig, int shim);   /* half a frame, then its end */
void api_shim_close(struct api_rig *rig, int shim);
void api_shim_wait_closed(struct api_rig *rig, int shim); /* by the worker */

/* HTTP, by the operator. */
int api_send(struct api_rig *rig, const char *method, const char *path, const char *body);
bool api_is_answered(struct api_rig *rig, int call);
/* Waits. The status, and in *ret_doc a new reference, where asked for. */
int api_status(struct api_rig *rig, int call, json_t **ret_doc);
/* Both. */
int api_call(struct api_rig *rig, const char *method, const char *path, const char *body,
	     json_t **ret_doc);
/* As api_call, and the answer has that `code` or that `detail`. */
void api_expect(struct api_rig *rig, int call, int status, const char *code);

/* api_rig_sandbox.c */

/* Of which far end, its path below /v1/sandboxes and the number of its shim. */
struct api_sandbox {
	enum api_far far;
	char path[64];
	struct id id;
	int shim;
};
/* What its provider is asked of it; and an answer to that, with or without what it uses. */
struct launch_msg api_hear_of(struct api_rig *rig, const struct api_sandbox *sandbox,
			      enum launch_type type);
void api_answer_of(struct api_rig *rig, const struct api_sandbox *sandbox, enum launch_type type,
		   enum launch_error error);
void api_answer_stat(struct api_rig *rig, const struct api_sandbox *sandbox, enum launch_type type,
		     bool is_frozen);
/* An answer with a shim; its number. */
int api_give(struct api_rig *rig, enum api_far from, const struct launch_msg *answer);
/* The same of one more that lives. */
int api_give_adopted(struct api_rig *rig, enum api_far from, const struct launch_msg *adopt,
		     const uint8_t session[ID_BYTES], bool is_frozen);
/* An answer to LAUNCH_START with a shim that has greeted. */
int api_launch(struct api_rig *rig, enum api_far from, const struct launch_msg *start);
/* Up to LAUNCH_START, which is the test's to answer: the call. Or the whole of it. */
int api_begin_create(struct api_rig *rig, enum api_far far, struct api_sandbox *ret_sandbox,
		     struct launch_msg *ret_start);
void api_create(struct api_rig *rig, enum api_far far, struct api_sandbox *ret_sandbox);
/* Calls: POST of `what` below it, a command, a suspend that makes no snapshot. */
int api_post(struct api_rig *rig, const struct api_sandbox *sandbox, const char *what,
	     const char *body);
int api_use(struct api_rig *rig, const struct api_sandbox *sandbox);
int api_suspend(struct api_rig *rig, const struct api_sandbox *sandbox);
void api_expect_state(struct api_rig *rig, const struct api_sandbox *sandbox, const char *status);
/* A command in it runs through its handle. */
void api_works(struct api_rig *rig, const struct api_sandbox *sandbox);
