/*
 * The connection to the api worker.
 */
#pragma once

#include "base/auto.h"

struct shim;

MUST_USE int serve_init(struct shim *shim);
/* Send what is due, until the socket is full. */
void serve_flush(struct shim *shim);
