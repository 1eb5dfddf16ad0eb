#include "tests/unit/policy_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static int read_text(void *userdata, const char *name, char **ret_data, size_t *ret_size,
		     struct err *err)
{
	const struct policy_text_file *files;
	char *copy;

	memcpy(&files, userdata, sizeof(const void *));
	for (; files && files->name; files++) {
		if (!str_equal(files->name, name))
			continue;
		copy = strdup(files->text);
		if (!copy)
			return -ENOMEM;
		*ret_size = strlen(copy);
		*ret_data = copy;
		return 0;
	}
	return err_fail(err, -ENOENT, "test", "no file %s", name);
}

struct profile_source policy_text_source(const struct policy_text_file *files)
{
	/* One set of files at a time: tests run one after another. */
	static const struct policy_text_file *current;

	current = files;
	return (struct profile_source){.read = read_text, .userdata = &current};
}

int policy_text_resolve(const char *statements, const struct policy_text_file *files,
			struct resolve_filter **ret_filter, struct err *err)
{
	struct profile_source source = policy_text_source(files);
	AUTO(profile_free) struct profile *profile = NULL;
	char text[8192];
	int r;

	r = str_format(text, sizeof(text), "profile t\nkind worker\nfilter worker\n%s", statements);
	if (r < 0)
		return r;
	r = profile_parse("t.profile", text, strlen(text), &source, &profile, err);
	if (r < 0)
		return r;
	return resolve_filter_new(&profile->filter[POLICY_FILTER_WORKER], &source, NULL, ret_filter,
				  err);
}
