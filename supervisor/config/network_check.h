/*
 * What no option shows alone: whether sandboxes and production share a host without an answer.
 */
#pragma once

#include "sandboxd/worker.h"

typedef void network_complain(void *userdata, const char *section, const char *text);

/* Complains about options of a whole configuration that do not fit each other, and gives what was
 * read of the network to the other workers' parts of the answer. */
void network_check(struct config_answer *answer, network_complain *complain, void *userdata);
