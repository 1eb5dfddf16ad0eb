/*
 * The supervisor's code and data out of the files that sessions map as well.
 */
#pragma once

#include "base/err.h"

/* Map every segment of the program and its libraries from memory of our own. To be called before
 * the first fork, with one thread. After an error some are replaced and some are not: all work. */
MUST_USE int own_pages_take(struct err *err);
