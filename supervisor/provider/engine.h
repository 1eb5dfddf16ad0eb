/*
 * The seam between requests of the api worker (service.c) and an engine that makes sandboxes. Of a
 * sandbox only its id is known here: what an engine names it is the engine's.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/id.h"

#include "sandboxd/launch.h"
#include "sandboxd/plan.h"

struct engine;

/* All calls are asynchronous: 0 and `done` follows, never from inside, with 0 or -errno (-ENOENT:
 * there is no such sandbox); or -errno, and none follows. */
typedef void (*engine_done)(void *userdata, int result);
/* fd: the stream to its shim, the callee's; or -errno. */
typedef void (*engine_stream)(void *userdata, int fd);
/* result < 0: stat is empty. */
typedef void (*engine_stat_done)(void *userdata, int result, const struct launch_stat *stat);

struct engine_list {
	/* lives: it runs or is paused; else it is a rest. */
	void (*each)(void *userdata, const struct id *id, bool is_paused, bool lives);
	engine_done done;
	void *userdata;
};

struct engine_calls {
	bool wraps_streams; /* as unwrap.h; else a stream is the tether's alone */
	/* Made and started; one of that id that is there is removed before. What was made is
	 * removed where it does not start. profile: of the plan. */
	int (*start)(struct engine *engine, const struct plan *plan, const char *profile,
		     engine_done done, void *userdata);
	/* Also of one that is paused; when nothing of it is left. One that is not there is as good.
	 */
	int (*remove)(struct engine *engine, const struct id *id, engine_done done, void *userdata);
	int (*pause)(struct engine *engine, const struct id *id, bool pause, engine_done done,
		     void *userdata);
	int (*connect)(struct engine *engine, const struct id *id, engine_stream done,
		       void *userdata);
	int (*stat)(struct engine *engine, const struct id *id, engine_stat_done done,
		    void *userdata);
	/* Every sandbox of this instance. list is copied. */
	int (*list)(struct engine *engine, const struct engine_list *list);
};

/* The first member of an engine's own struct. */
struct engine {
	const struct engine_calls *calls;
};

static inline int engine_start(struct engine *engine, const struct plan *plan, const char *profile,
			       engine_done done, void *userdata)
{
	return engine->calls->start(engine, plan, profile, done, userdata);
}

static inline int engine_remove(struct engine *engine, const struct id *id, engine_done done,
				void *userdata)
{
	return engine->calls->remove(engine, id, done, userdata);
}

static inline int engine_pause(struct engine *engine, const struct id *id, bool pause,
			       engine_done done, void *userdata)
{
	return engine->calls->pause(engine, id, pause, done, userdata);
}

static inline int engine_connect(struct engine *engine, const struct id *id, engine_stream done,
				 void *userdata)
{
	return engine->calls->connect(engine, id, done, userdata);
}

static inline int engine_stat(struct engine *engine, const struct id *id, engine_stat_done done,
			      void *userdata)
{
	return engine->calls->stat(engine, id, done, userdata);
}

static inline int engine_list(struct engine *engine, const struct engine_list *list)
{
	return engine->calls->list(engine, list);
}
