#include "supervisor/api/snapshot_failure.h"

#include <errno.h>
#include <stddef.h>

#include "base/auto.h"

enum way {
	WAY_EITHER,
	WAY_MADE,
	WAY_RESTORED,
};

static const struct failure_row {
	int error;
	enum way way;
	enum runtime_error code;
	const char *detail; /* NULL: as the code has it */
} failures[] = {
	{-ENOSYS,       WAY_EITHER,   RUNTIME_OLDER_TREE,       NULL                                                 },
	{-EBUSY,        WAY_EITHER,   RUNTIME_BUSY,             "a snapshot of the sandbox is being made or put back"},
	{-EDQUOT,       WAY_EITHER,   RUNTIME_QUOTA,            "the snapshots of the organisation fill its quota"   },
	{-EFBIG,        WAY_EITHER,   RUNTIME_SNAPSHOT_SIZE,    NULL                                                 },
	{-ENODATA,      WAY_EITHER,   RUNTIME_NO_FILE,          "nothing is at the paths of the workspace"           },
	{-EROFS,        WAY_EITHER,   RUNTIME_SNAPSHOT_STORE,   NULL                                                 },
	{-ENOSPC,       WAY_MADE,     RUNTIME_SNAPSHOT_STORE,   "no room for the snapshot on the host"               },
	{-ENOSPC,       WAY_RESTORED, RUNTIME_NO_SPACE,         NULL                                                 },
	{-ENOKEY,       WAY_MADE,     RUNTIME_SNAPSHOT_KEY,
	 "snapshots have to be encrypted, and the organisation has no key"                                           },
	{-ENOKEY,       WAY_RESTORED, RUNTIME_SNAPSHOT_KEY,     NULL                                                 },
	{-ENOENT,       WAY_EITHER,   RUNTIME_NO_SNAPSHOT,      "the snapshot's file is not on this host"            },
	{-ENOTSUP,      WAY_EITHER,   RUNTIME_SNAPSHOT_STORE,
	 "no object store of snapshots is configured"								},
	{-EREMOTEIO,    WAY_EITHER,   RUNTIME_SNAPSHOT_STORE,
	 "the object store of snapshots cannot be used now"                                                          },
	{-ENXIO,        WAY_EITHER,   RUNTIME_NO_SNAPSHOT,      "the snapshot is not in the object store"            },
	{-ENOTTY,       WAY_MADE,     RUNTIME_NOT_SUPPORTED,    NULL                                                 },
	{-EBADMSG,      WAY_RESTORED, RUNTIME_SNAPSHOT_DAMAGED, NULL                                                 },
	{-EEXIST,       WAY_EITHER,   RUNTIME_EXISTS,
	 "something of the snapshot is there already, and it is not to replace that"                                 },
	{-ELOOP,        WAY_EITHER,   RUNTIME_CHANGED,          "a folder on the way is a link"                      },
	{-ENAMETOOLONG, WAY_EITHER,   RUNTIME_TOO_LONG,         NULL                                                 },
	{-ETIME,        WAY_EITHER,   RUNTIME_TIMEOUT,          NULL                                                 },
	{-ENOMEM,       WAY_EITHER,   RUNTIME_BUSY,             "out of memory"                                      },
	{-ENOBUFS,      WAY_EITHER,   RUNTIME_BUSY,             "too much waits for the sandbox"                     },
};

enum runtime_error snapshot_failure(int error, bool makes, const char **ret_detail)
{
	enum way way = makes ? WAY_MADE : WAY_RESTORED;

	*ret_detail = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		const struct failure_row *row = &failures[i];

		if (row->error == error && (row->way == WAY_EITHER || row->way == way)) {
			*ret_detail = row->detail;
			return row->code;
		}
	}
	return RUNTIME_PROVIDER_UNAVAILABLE;
}
