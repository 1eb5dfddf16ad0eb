#include "supervisor/api/http/runtime_errors.h"

#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"

static const struct runtime_error_row rows[RUNTIME_ERROR_MAX_] = {
	[RUNTIME_COMMAND_FAILED] = {"command_failed",       422, false, "the command did not start"             },
	[RUNTIME_TIMEOUT] = {"timeout",              504, true,  "the service did not finish in time"    },
	[RUNTIME_NOT_RUNNING] = {"not_running",          409, false, "the command has ended"                 },
	[RUNTIME_SUSPENDED] = {"suspended",            409, true,  "the sandbox is suspended"              },
	[RUNTIME_EXPIRED] = {"expired",              410, false, "the sandbox's life time has ended"     },
	[RUNTIME_QUOTA] = {"quota",                429, true,  "a quota is used up"                    },
	[RUNTIME_DENIED] = {"denied",               403, false, "not allowed"                           },
	[RUNTIME_BUSY] = {"busy",                 503, true,  "too much is being done"                },
	[RUNTIME_PROVIDER_UNAVAILABLE] = {"provider_unavailable", 503, true,
                                    "the sandbox cannot be reached now"                                         },
	[RUNTIME_NOT_SUPPORTED] = {"not_supported",        501, false,
				    "the sandbox's provider cannot do this"                                     },
	[RUNTIME_NO_COMMAND] = {"not_found",            404, false, "command not found"                     },
	[RUNTIME_NO_TERMINAL] = {"no_terminal",          409, false, "the command has no terminal"           },
	[RUNTIME_STDIN_CLOSED] = {"stdin_closed",         409, false,
				    "the command takes no standard input (any more)"                            },
	[RUNTIME_STDIN_FULL] = {"stdin_full",           429, true,
				    "the command does not read its standard input"                              },
	[RUNTIME_NO_FILE] = {"file_not_found",       404, false, "no such file or folder"                },
	[RUNTIME_EXISTS] = {"exists",               409, false, "there is something of that name"       },
	[RUNTIME_IS_FOLDER] = {"is_folder",            409, false, "it is a folder"                        },
	[RUNTIME_NOT_FOLDER] = {"not_folder",           409, false,
				    "it, or a part of its path, is no folder"                                   },
	[RUNTIME_NOT_EMPTY] = {"not_empty",            409, false, "the folder is not empty"               },
	[RUNTIME_SPECIAL_FILE] = {"special_file",         409, false,
				    "neither a regular file nor a folder"                                       },
	[RUNTIME_LEADS_OUT] = {"leads_out",            403, false,
				    "a link on the path leads out of the sandbox's folders"                     },
	[RUNTIME_NO_SPACE] = {"no_space",             507, false, "the sandbox's folders are full"        },
	[RUNTIME_CHANGED] = {"changed",              409, true,  "something changed it at the same time" },
	[RUNTIME_TOO_LONG] = {"name_too_long",        422, false, "the path is too long or too deep"      },
	[RUNTIME_CONFLICT] = {"conflict",             409, false, "not possible as the sandbox is"        },
	[RUNTIME_GIT_FAILED] = {"git_failed",           422, false, "git ended with an error"               },
	[RUNTIME_GIT_AUTH] = {"git_auth",             403, false, "the git server refuses the credentials"},
	[RUNTIME_GIT_UNREACHABLE] =
		{"git_unreachable",      502, true,
				    "the git server cannot be reached, or its certificate is not good"          },
	[RUNTIME_GIT_NOT_FOUND] = {"git_not_found",        404, false,
				    "no such repository, remote, branch or commit"                              },
	[RUNTIME_GIT_NO_REPOSITORY] = {"not_a_repository",     409, false,
                                    "there is no git repository"                                                },
	[RUNTIME_GIT_CONFLICT] = {"git_conflict",         409, false,
				    "it would lose changes, or both sides have changed"                         },
	[RUNTIME_GIT_REJECTED] = {"git_rejected",         409, false, "the git server refuses the push"       },
	[RUNTIME_GIT_NOTHING] = {"nothing_to_commit",    409, false, "there is nothing to commit"            },
	[RUNTIME_OLDER_TREE] =
		{"older_tree",           409, false,
				    "the sandbox was started by an earlier release, which has not this"         },
	[RUNTIME_NO_SNAPSHOT] = {"snapshot_not_found",   404, false, "snapshot not found"                    },
	[RUNTIME_SNAPSHOT_SIZE] = {"snapshot_too_large",   413, false,
				    "the workspace is larger than a snapshot may be"                            },
	[RUNTIME_SNAPSHOT_DAMAGED] = {"snapshot_damaged",     500, false,
                                    "the snapshot is not what was written"                                      },
	[RUNTIME_SNAPSHOT_STORE] = {"snapshot_store",       503, true,
				    "the host's store of snapshots cannot be written now"                       },
	[RUNTIME_SNAPSHOT_KEY] = {"snapshot_key_missing", 409, false,
				    "the key that the snapshot is encrypted with is not configured"             },
	[RUNTIME_NO_TEMPLATE] = {"template_not_found",   409, false,
				    "the sandbox's template is not on this host"                                },
};

const struct runtime_error_row *runtime_error_row(enum runtime_error error)
{
	ASSERT(error < RUNTIME_ERROR_MAX_);
	return &rows[error];
}

const struct runtime_error_row *runtime_error_of_status(int status)
{
	static const enum runtime_error general[] = {
		RUNTIME_PROVIDER_UNAVAILABLE,
		RUNTIME_NOT_SUPPORTED,
		RUNTIME_QUOTA,
		RUNTIME_TIMEOUT,
		RUNTIME_DENIED,
		RUNTIME_CONFLICT,
	};

	for (size_t i = 0; i < ARRAY_SIZE(general); i++)
		if (rows[general[i]].status == status)
			return &rows[general[i]];
	return NULL;
}
