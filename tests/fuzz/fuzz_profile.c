/*
 * A profile as text, up to the resolved filter. A NUL ends the profile; what follows is the text of
 * every file that the profile asks for.
 */
#include <errno.h>
#include <string.h>

#include <linux/audit.h>

#include "base/err.h"

#include "policy/profile.h"
#include "policy/resolve.h"
#include "tests/fuzz/fuzz.h"

struct input {
	const char *data;
	size_t size;
};

static int read_rest(void *userdata, const char *name, char **ret_data, size_t *ret_size,
		     struct err *err)
{
	const struct input *rest = userdata;
	char *copy;

	(void)err;
	ASSERT(!strchr(name, '/'));
	copy = malloc(rest->size + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, rest->data, rest->size);
	copy[rest->size] = '\0';
	*ret_data = copy;
	*ret_size = rest->size;
	return 0;
}

static void check_filter(const struct profile_filter *source_filter,
			 const struct profile_source *source)
{
	AUTO(resolve_filter_free) struct resolve_filter *filter = NULL;
	const uint64_t args[6] = {0};
	struct err err = ERR_NULL;

	if (!source_filter->present)
		return;
	if (resolve_filter_new(source_filter, source, NULL, &filter, &err) < 0) {
		ASSERT(err.text[0] != '\0');
		return;
	}
	/* Whatever a policy says, another ABI dies and an unknown number is not allowed. */
	ASSERT(resolve_verdict(filter, AUDIT_ARCH_I386, 1, args).action == PROFILE_KILL);
	ASSERT(resolve_verdict(filter, AUDIT_ARCH_X86_64, 5000, args).action != PROFILE_ALLOW);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(profile_free) struct profile *profile = NULL;
	const char *text = (const char *)data;
	const char *end = size > 0 ? memchr(text, '\0', size) : NULL;
	struct input rest = {.data = end ? end + 1 : text};
	struct profile_source source = {.read = read_rest, .userdata = &rest};
	struct err err = ERR_NULL;

	if (size == 0)
		return 0;
	rest.size = end ? size - (size_t)(end + 1 - text) : 0;
	if (profile_parse("fuzz", text, end ? (size_t)(end - text) : size, &source, &profile,
			  &err) < 0) {
		ASSERT(err.text[0] != '\0');
		return 0;
	}
	for (size_t i = 0; i < POLICY_FILTER_MAX_; i++)
		check_filter(&profile->filter[i], &source);
	return 0;
}
