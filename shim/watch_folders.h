/*
 * The folders that a watch has, as a tree of names: by it an event, which names a watch and a name,
 * becomes a path. Pure; the watches themselves are files_watch.c's.
 *
 * An index stays the folder's until it is dropped; a dropped one may come back as another folder's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/limits.h"

#define WATCH_FOLDER_TOP  0u
#define WATCH_FOLDER_NONE UINT32_MAX

struct watch_folder {
	char *name;      /* owned; NULL: a free place */
	uint32_t parent; /* WATCH_FOLDER_NONE: of the top */
	bool is_due;     /* it is to be watched, or looked at again */
	bool is_new;     /* what it holds by then is told as created */
	bool is_doomed;  /* while folders are dropped */
};

struct watch_folders {
	int *wd; /* of each place; -1: none. Apart, as every event is looked up here */
	struct watch_folder *folder;
	uint32_t n; /* places; some of them are free */
	uint32_t n_used;
};

/* With the top. 0 or -ENOMEM. */
MUST_USE int watch_folders_init(struct watch_folders *folders);
void watch_folders_done(struct watch_folders *folders);

bool watch_folders_has(const struct watch_folders *folders, uint32_t index);
/* WATCH_FOLDER_NONE where there is no such. */
uint32_t watch_folders_by_wd(const struct watch_folders *folders, int wd);
uint32_t watch_folders_child(const struct watch_folders *folders, uint32_t parent,
			     const char *name);
/* One that is due. 0; -ENOSPC: FILE_WATCH_MAX_FOLDERS; -ENOMEM. */
MUST_USE int watch_folders_add(struct watch_folders *folders, uint32_t parent, const char *name,
			       bool is_new);
/* 0; -ELOOP: the new parent is below it; -ENOMEM. */
MUST_USE int watch_folders_move(struct watch_folders *folders, uint32_t index, uint32_t parent,
				const char *name);
/* It and all below it; dropped: called for each that had a watch. */
void watch_folders_drop(struct watch_folders *folders, uint32_t index,
			void (*dropped)(void *userdata, int wd), void *userdata);
/* Of `name` in the folder, or with "" of the folder itself, below the top. 0 or -ENAMETOOLONG. */
MUST_USE int watch_folders_path(const struct watch_folders *folders, uint32_t index,
				const char *name, char path[FILE_PATH_BYTES]);
