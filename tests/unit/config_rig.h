/*
 * One answer of the configuration's reader for the tests of it, and what it complained of.
 */
#pragma once

#include "supervisor/config/config_parse.h"
#include "tests/lib/test.h"

/* A test whose state is a rig. */
#define CONFIG_TEST(function)                                                                      \
	cmocka_unit_test_setup_teardown(function, config_rig_set_up, config_rig_tear_down)

struct config_rig {
	struct config_answer *answer;
	struct buf complaints;
};

int config_rig_set_up(void **state);
int config_rig_tear_down(void **state);
/* text as the only file. */
int config_rig_parse(struct config_rig *rig, const char *text);
/* text is refused, and `said` is in what is said of it. */
void config_rig_expect(struct config_rig *rig, const char *text, const char *said);
