/*
 * Whose turn it is. One loop serves everybody, and a user who asks much at once is served in turn:
 * when his handlers have taken their time of one turn of the loop, his next request waits for the
 * next turn, behind those of his that wait already. Nobody else waits for more than one of them.
 */
#pragma once

#include <stdbool.h>

#include "base/clock.h"

#include "supervisor/api/http/request.h"

void turns_init(struct turns *turns);
void turns_done(struct turns *turns);
/* May its handler run now? If not, it was queued, and is resumed in its turn. */
MUST_USE bool turns_may_run(struct turns *turns, struct request *request);
/* Its handler ran from then until now. */
void turns_count(struct request *request, usec_t began);
/* The next turn: one request of each user who waits. */
void turns_next(struct turns *turns);
bool turns_are_awaited(const struct turns *turns);
/* It is over. */
void turns_leave(struct request *request);
