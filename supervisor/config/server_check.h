/*
 * Options about servers that need each other, once all files are read.
 */
#pragma once

#include "sandboxd/config.h"
#include "supervisor/config/network_check.h"

void server_check(const struct config_answer *answer, network_complain *complain, void *userdata);
