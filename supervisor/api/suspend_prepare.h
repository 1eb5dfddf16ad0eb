/*
 * What is done in a session before it is suspended, in this order: a command, which must succeed; a
 * TERM to others, which may take their time; paths that are removed.
 */
#pragma once

#include <jansson.h>

#include "supervisor/api/http/runtime_errors.h"
#include "supervisor/api/live.h"
#include "supervisor/api/session/spec_suspend.h"

struct suspend_prepare;

/* error: RUNTIME_ERROR_MAX_: all is done. Called once, never from inside of start. detail: NULL:
 * the error's own text. It may free it. */
typedef void suspend_prepared(struct live *live, enum runtime_error error, const char *detail);

/* Takes the spec over (left empty) where it returns 0; else -ENOMEM. */
MUST_USE int suspend_prepare_new(struct live *live, struct spec_suspend *spec,
				 suspend_prepared *prepared, struct suspend_prepare **ret);
void suspend_prepare_start(struct suspend_prepare *prepare);
/* What its command wrote where that is what failed, for an answer: at most 4 KiB of `stdout` and of
 * `stderr`, new. NULL: nothing of that kind, or no memory; accepts NULL. */
json_t *suspend_prepare_said(const struct suspend_prepare *prepare);
/* Accepts NULL, returns NULL. Not called: nothing more is. */
struct suspend_prepare *suspend_prepare_free(struct suspend_prepare *prepare);
