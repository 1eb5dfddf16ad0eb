/*
 * Between git on a socket and the server.
 */
#pragma once

#include "base/auto.h"

#include "jail/git/http.h"

/* Until git has no more to ask, or the first error. 0 or an enum git_exit. */
MUST_USE int serve(const struct http_request *request, int git_fd);
