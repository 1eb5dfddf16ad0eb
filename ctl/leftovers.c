/*
 * Control groups `sandboxd-<8 hexadecimal digits>` of instances that are gone, and those of their
 * workers, which hierarchies of v1 have beside it: `-workers`, `-egress`. A running instance has
 * its workers in its groups of the v2 tree, while those of v1 hierarchies are empty without
 * sessions: so an instance is gone when no hierarchy has a process of it, twice a second apart (a
 * supervisor that is started again has none for a moment). Only rmdir is used, which refuses a
 * group that is in use after all.
 */
#include <fcntl.h>
#include <fts.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "ctl/commands.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define MIN_AGE_S   60
#define ID_LENGTH   8

/* The group's name says of which instance it is. */
static bool read_instance(const char *name, char ret_id[ID_LENGTH + 1])
{
	static const char prefix[] = "sandboxd-";
	const char *id = name + strlen(prefix);
	const char *rest;

	if (!str_has_prefix(name, prefix) || strspn(id, "0123456789abcdef") != ID_LENGTH)
		return false;
	rest = id + ID_LENGTH;
	if (*rest && !str_equal(rest, "-workers") && !str_equal(rest, "-egress"))
		return false;
	memcpy(ret_id, id, ID_LENGTH);
	ret_id[ID_LENGTH] = '\0';
	return true;
}

static bool has_process(const char *group)
{
	char path[4096];
	char text[16];

	return str_format(path, sizeof(path), "%s/cgroup.procs", group) < 0 ||
	       io_read_at(AT_FDCWD, path, text, sizeof(text)) != 0;
}

/* Every group of the instances, children first; top: not below another one. */
static void walk(void (*each)(void *userdata, const char *instance, const FTSENT *entry, bool top),
		 void *userdata)
{
	char root[] = CGROUP_ROOT;
	char *const roots[] = {root, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	char instance[ID_LENGTH + 1] = "";
	int level = 0;
	FTSENT *entry;

	while (fts && (entry = fts_read(fts))) {
		if (entry->fts_info == FTS_D && !instance[0] &&
		    read_instance(entry->fts_name, instance))
			level = entry->fts_level;
		if (entry->fts_info != FTS_DP || !instance[0])
			continue;
		each(userdata, instance, entry, entry->fts_level == level);
		if (entry->fts_level == level)
			instance[0] = '\0';
	}
	if (fts)
		(void)fts_close(fts);
}

static time_t min_age(const char *instance)
{
#ifdef SANDBOXD_TEST_HOOKS
	/* Other tests' instances on this host are none of ours, whatever they look like.
	 * One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *only = getenv("SANDBOX_GC_ONLY");

	if (only)
		return str_equal(only, instance) ? 0 : INT64_MAX;
#endif
	(void)instance;
	return MIN_AGE_S;
}

static void note_alive(void *userdata, const char *instance, const FTSENT *entry, bool top)
{
	time_t age = time(NULL) - entry->fts_statp->st_ctime;
	json_t *alive = userdata;

	(void)top;
	if (age < min_age(instance) || has_process(entry->fts_path))
		(void)json_object_set_new(alive, instance, json_true());
}

struct collect {
	const json_t *alive;
	json_t *found;
	bool remove;
};

static void collect_dead(void *userdata, const char *instance, const FTSENT *entry, bool top)
{
	struct collect *collect = userdata;

	if (json_object_get(collect->alive, instance))
		return;
	if ((!collect->remove || rmdir(entry->fts_path) == 0) && top)
		(void)json_array_append_new(collect->found, json_string(entry->fts_path));
}

json_t *leftovers(bool remove)
{
	json_t *alive = json_object();
	struct collect collect = {.alive = alive, .found = json_array()};

	walk(note_alive, alive);
	walk(collect_dead, &collect);
	if (remove && json_array_size(collect.found) > 0) {
		(void)json_array_clear(collect.found);
		(void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
		walk(note_alive, alive);
		collect.remove = true;
		walk(collect_dead, &collect);
	}
	json_decref(alive);
	return collect.found;
}
