/*
 * The commands of a session stand still while it is paused, where whoever pauses it cannot freeze
 * them alone (SHIM_PARAMS_STOPS): they are stopped before, so that its snapshot can be made while
 * the rest of it runs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct loop_source;
struct shim;

enum halt_state {
	HALT_NO,
	HALT_ASKED,
	HALT_DONE,
	HALT_FAILED,  /* some may be stopped, some may not */
	HALT_LEAVING, /* they are asked to go on */
};

struct halt {
	enum halt_state state;
	int fd; /* of the runner that does it, and knows whom; -1: none */
	struct loop_source *source;
	uint32_t n_asked; /* that it has not answered */
};
#define HALT_NULL ((struct halt){.fd = -1})

/* Nothing where commands are frozen. What fails is seen by halt_is_done. */
void halt_set(struct shim *shim, bool is_paused);
/* A command has begun: it may be one that was on its way. */
void halt_again(struct shim *shim);
bool halt_is_asked(const struct halt *halt);
/* Of one that is paused. */
bool halt_is_done(const struct shim *shim);
