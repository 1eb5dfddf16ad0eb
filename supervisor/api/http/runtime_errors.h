/*
 * Errors of the runtime API, each with one status and one answer to "is it worth trying again?":
 * {"detail": text, "code": name, "retryable": bool}. The one exception is the 404 for a sandbox,
 * which says the same bytes whatever the reason (reply_not_found).
 */
#pragma once

#include <stdbool.h>

enum runtime_error {
	RUNTIME_COMMAND_FAILED, /* it did not start; one that ended, however it did, is no error */
	RUNTIME_TIMEOUT,
	RUNTIME_NOT_RUNNING,
	RUNTIME_SUSPENDED,
	RUNTIME_EXPIRED, /* while the request was at work; afterwards it is not there */
	RUNTIME_QUOTA,
	RUNTIME_DENIED,
	RUNTIME_BUSY,
	RUNTIME_PROVIDER_UNAVAILABLE,
	RUNTIME_NOT_SUPPORTED,
	RUNTIME_NO_COMMAND,
	RUNTIME_NO_TERMINAL,
	RUNTIME_STDIN_CLOSED,
	RUNTIME_STDIN_FULL,
	RUNTIME_NO_FILE,
	RUNTIME_EXISTS,
	RUNTIME_IS_FOLDER,
	RUNTIME_NOT_FOLDER,
	RUNTIME_NOT_EMPTY,
	RUNTIME_SPECIAL_FILE,
	RUNTIME_LEADS_OUT,
	RUNTIME_NO_SPACE,
	RUNTIME_CHANGED,
	RUNTIME_TOO_LONG,
	RUNTIME_CONFLICT,
	RUNTIME_GIT_FAILED,
	RUNTIME_GIT_AUTH,
	RUNTIME_GIT_UNREACHABLE,
	RUNTIME_GIT_NOT_FOUND,
	RUNTIME_GIT_NO_REPOSITORY,
	RUNTIME_GIT_CONFLICT,
	RUNTIME_GIT_REJECTED,
	RUNTIME_GIT_NOTHING,
	RUNTIME_OLDER_TREE,
	RUNTIME_NO_SNAPSHOT,
	RUNTIME_SNAPSHOT_SIZE,
	RUNTIME_SNAPSHOT_DAMAGED,
	RUNTIME_SNAPSHOT_STORE,
	RUNTIME_SNAPSHOT_KEY,
	RUNTIME_NO_TEMPLATE,
	RUNTIME_ERROR_MAX_,
};

struct runtime_error_row {
	const char *code;
	int status;
	bool retryable;
	const char *detail; /* where nothing better is known */
};

const struct runtime_error_row *runtime_error_row(enum runtime_error error);
/* What a status says by itself; NULL: that is no error of this table. */
const struct runtime_error_row *runtime_error_of_status(int status);
