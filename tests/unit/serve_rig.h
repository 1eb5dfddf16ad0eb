/*
 * A permit table against an engine made of paper, and the worker that asks it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/launch.h"
#include "base/loop.h"

#include "sandboxd/config.h"
#include "sandboxd/policy_image.h"
#include "supervisor/redis_helper.h"
#include "supervisor/s3_helper.h"
#include "supervisor/serve.h"
#include "supervisor/session.h"
#include "supervisor/unseal.h"
#include "tests/lib/test.h"

#define PAPER_SESSIONS 64
#define PAPER_HELPERS  16
#define PAPER_PROBES   5u /* of the kernel */

#define SERVE_TEST(function) cmocka_unit_test_setup_teardown(function, rig_set_up, rig_tear_down)

struct session {
	bool used;
	bool killed;
	struct id id;
	struct plan plan;
	enum session_state state;
	bool has_net;
	bool is_held;
	const struct session_events *events;
	void *userdata;
};

struct unseal {
	const struct secret_request *request;
	unseal_done done; /* NULL: it has ended */
	void *userdata;
	bool cancelled;
};

struct redis_helper {
	struct redis_request request;
	redis_helper_done done; /* NULL: it has ended */
	void *userdata;
};

/* Empty at the begin of each test. */
extern struct paper {
	struct session sessions[PAPER_SESSIONS];
	struct policy_image_header image;
	enum launch_error refuse_start;
	struct id incompatible[2];
	size_t n_incompatible;
	struct unseal unseal; /* the last one */
	struct s3_request s3_request;
	int s3_job_fd; /* a copy of the last one's */
	s3_helper_ended s3_ended;
	void *s3_userdata;
	unsigned int n_s3;
	unsigned int n_unseals;
	int refuse_unseal;
	unsigned int n_holds_refused;                     /* so many of the next ones */
	struct redis_helper redis_helpers[PAPER_HELPERS]; /* all that were started */
	unsigned int n_redis_helpers;
	struct config_answer config; /* in force */
} paper;

struct fixture {
	struct loop *loop;
	struct loop_source *turn;
	struct serve *serve;
	struct serve_client client;
	int worker_fd;
	uint32_t serial;
	unsigned int n_hello;
	unsigned int n_lost;
	unsigned int n_emptied;
};

/* A table with an api worker connected to it, which has not said HELLO. */
int rig_set_up(void **state);
int rig_tear_down(void **state);

/* The engine's side. The session whose id begins with that number. */
struct session *rig_find(uint8_t number);
void rig_become_live(uint8_t number);
void rig_end_session(uint8_t number);

/* The worker's side. */
void rig_turns(struct fixture *fixture, int n);
void rig_open_worker(struct fixture *fixture, enum serve_worker worker);
void rig_close_worker(struct fixture *fixture);
struct launch_msg rig_request(struct fixture *fixture, enum launch_type type, uint8_t number);
struct launch_msg rig_hello(struct fixture *fixture);
struct launch_msg rig_start_message(struct fixture *fixture, uint8_t number);
void rig_ask(struct fixture *fixture, const struct launch_msg *msg);
/* The next message to the worker; returns whether a descriptor came along. */
bool rig_hear(struct fixture *fixture, struct launch_msg *ret_msg);
void rig_expect_silence(struct fixture *fixture);
/* Ask, and hear that number. */
void rig_expect_error(struct fixture *fixture, const struct launch_msg *msg,
		      enum launch_error error);
/* HELLO, taken. */
void rig_greet(struct fixture *fixture);
/* A live session that the worker knows. */
void rig_start(struct fixture *fixture, uint8_t number);
