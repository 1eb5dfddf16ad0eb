#include "shim/watch_folders.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

int watch_folders_init(struct watch_folders *folders)
{
	*folders = (struct watch_folders){
		.wd = calloc(FILE_WATCH_MAX_FOLDERS, sizeof(*folders->wd)),
		.folder = calloc(FILE_WATCH_MAX_FOLDERS, sizeof(*folders->folder)),
	};
	if (folders->wd && folders->folder &&
	    watch_folders_add(folders, WATCH_FOLDER_NONE, "", false) >= 0)
		return 0;
	watch_folders_done(folders);
	return -ENOMEM;
}

void watch_folders_done(struct watch_folders *folders)
{
	for (uint32_t i = 0; folders->folder && i < folders->n; i++)
		free(folders->folder[i].name);
	free(folders->folder);
	free(folders->wd);
	*folders = (struct watch_folders){0};
}

bool watch_folders_has(const struct watch_folders *folders, uint32_t index)
{
	return index < folders->n && folders->folder[index].name;
}

uint32_t watch_folders_by_wd(const struct watch_folders *folders, int wd)
{
	for (uint32_t i = 0; i < folders->n; i++)
		if (folders->wd[i] == wd)
			return i;
	return WATCH_FOLDER_NONE;
}

uint32_t watch_folders_child(const struct watch_folders *folders, uint32_t parent, const char *name)
{
	for (uint32_t i = 0; i < folders->n; i++) {
		const struct watch_folder *folder = &folders->folder[i];

		if (folder->name && folder->parent == parent && str_equal(folder->name, name))
			return i;
	}
	return WATCH_FOLDER_NONE;
}

static uint32_t free_place(const struct watch_folders *folders)
{
	uint32_t i = folders->n;

	if (folders->n_used < folders->n)
		for (i = 0; folders->folder[i].name;)
			i++;
	return i;
}

int watch_folders_add(struct watch_folders *folders, uint32_t parent, const char *name, bool is_new)
{
	uint32_t i = free_place(folders);
	char *copy;

	if (i == FILE_WATCH_MAX_FOLDERS)
		return -ENOSPC;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	folders->wd[i] = -1;
	folders->folder[i] = (struct watch_folder){
		.name = copy, .parent = parent, .is_due = true, .is_new = is_new};
	folders->n_used++;
	if (i == folders->n)
		folders->n++;
	return 0;
}

static bool is_within(const struct watch_folders *folders, uint32_t at, uint32_t outer)
{
	while (at != outer && at != WATCH_FOLDER_NONE)
		at = folders->folder[at].parent;
	return at == outer;
}

int watch_folders_move(struct watch_folders *folders, uint32_t index, uint32_t parent,
		       const char *name)
{
	struct watch_folder *folder = &folders->folder[index];
	char *copy;

	if (is_within(folders, parent, index))
		return -ELOOP;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	free(folder->name);
	folder->name = copy;
	folder->parent = parent;
	return 0;
}

void watch_folders_drop(struct watch_folders *folders, uint32_t index,
			void (*dropped)(void *userdata, int wd), void *userdata)
{
	/* First all of them, while the way up is whole. */
	for (uint32_t i = 0; i < folders->n; i++)
		folders->folder[i].is_doomed =
			folders->folder[i].name && is_within(folders, i, index);
	for (uint32_t i = 0; i < folders->n; i++) {
		struct watch_folder *folder = &folders->folder[i];

		if (!folder->is_doomed)
			continue;
		if (folders->wd[i] >= 0)
			dropped(userdata, folders->wd[i]);
		folders->wd[i] = -1;
		free(folder->name);
		*folder = (struct watch_folder){0};
		folders->n_used--;
	}
}

/* Put before what is at *at. */
static int prepend(char path[FILE_PATH_BYTES], size_t *at, const char *name)
{
	size_t length = strlen(name);

	if (length == 0)
		return 0;
	if (length + 1 > *at)
		return -ENAMETOOLONG;
	if (path[*at] != '\0')
		path[--*at] = '/';
	*at -= length;
	memcpy(path + *at, name, length);
	return 0;
}

int watch_folders_path(const struct watch_folders *folders, uint32_t index, const char *name,
		       char path[FILE_PATH_BYTES])
{
	size_t at = FILE_PATH_BYTES - 1;
	int r;

	path[at] = '\0';
	r = prepend(path, &at, name);
	while (r >= 0 && index != WATCH_FOLDER_TOP) {
		r = prepend(path, &at, folders->folder[index].name);
		index = folders->folder[index].parent;
	}
	if (r >= 0)
		memmove(path, path + at, FILE_PATH_BYTES - at);
	return r;
}
