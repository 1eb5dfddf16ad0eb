/*
 * A store with one session and one job for the tests of the stores, and what its callbacks said.
 * SANDBOX_TEST_DSN names a database that has the schema: then it is the store on PostgreSQL.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "supervisor/api/store/store.h"
#include "tests/lib/test.h"

/* Of the file, or of a library call that only it has. */
#define SQLITE_ONLY()                                                                              \
	do {                                                                                       \
		if (rig_dsn())                                                                     \
			skip();                                                                    \
	} while (0)

/* A test whose state is a rig. */
#define STORE_TEST(function) cmocka_unit_test_setup_teardown(function, rig_set_up, rig_tear_down)

struct rig {
	struct test_temp temp;
	char path[96];
	struct store *store;
	struct session *session;
	struct job *job;
	usec_t now;
};

struct answers {
	int n;
	enum store_result last;
	enum store_result all[64];
};

struct seen_session {
	int n;
	struct store_session row;
	char text[512];
};

struct seen_frames {
	int n_calls;
	enum store_result result;
	uint32_t first;
	uint32_t last;
	size_t n;
	bool more;
	char text[256];
};

struct seen_task {
	int n_calls;
	enum store_result result;
	struct store_task task;
	char owner[64];
};

/* NULL: the embedded store is tested. */
const char *rig_dsn(void);
/* One turn of the embedded store; of a server, turns until nothing waits. */
void rig_flush(struct store *store, usec_t now);
/* What a server has said meanwhile; no turn of the store. */
void rig_listen(void);
void rig_note(void *userdata, enum store_result result);
/* store_session_component as one writes it in a test. */
void rig_put(struct rig *rig, const char *file, const char *body, size_t length,
	     struct answers *answers);
struct id rig_id(uint8_t n);
/* max_pages 0: no bound. */
struct store *rig_open(const char *path, uint32_t max_pages);
/* A store in a folder of its own, or the emptied database; a session and a job without rows. */
int rig_set_up(void **state);
int rig_tear_down(void **state);
void rig_reopen(struct rig *rig);
/* The rows of session and job, and that they were taken. */
void rig_insert(struct rig *rig);
void rig_add_frame(struct rig *rig, enum frames_stage stage, const char *text);
/* One value of the store by another connection, as text. */
void rig_assert_sql(const struct rig *rig, const char *sql, const char *wanted);
int rig_see_session(void *userdata, const struct store_session *row);
void rig_see_frames(void *userdata, enum store_result result, const struct store_frame *frames,
		    size_t n, bool more);
/* One page, behind `after`. */
struct seen_frames rig_get_frames(struct rig *rig, uint32_t after, size_t max_bytes);
void rig_see_task(void *userdata, enum store_result result, const struct store_task *task);
/* One statement by another connection. */
void rig_run_sql(const struct rig *rig, const char *sql);
