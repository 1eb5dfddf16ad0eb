/*
 * Request bodies: the first byte chooses the route, the rest is the text.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#include "supervisor/api/session/spec.h"
#include "tests/fuzz/fuzz.h"

static int parse_create(const char *text, size_t size, const struct spec_options *options,
			bool dagster, json_t **ret_errors)
{
	struct spec_create spec = SPEC_CREATE_NULL;
	int r;

	if (dagster)
		r = spec_parse_session(text, size, options, &spec, ret_errors);
	else
		r = spec_parse_sandbox(text, size, options, &spec, ret_errors);
	if (r == 0)
		ASSERT(spec.ttl_minutes >= 1 && spec.ttl_minutes <= AGENT_TTL_MAX_MINUTES);
	spec_create_done(&spec);
	return r;
}

static int parse_component(const char *text, size_t size, const struct spec_options *options,
			   json_t **ret_errors)
{
	struct spec_component spec = SPEC_COMPONENT_NULL;
	int r = spec_parse_component(text, size, options, &spec, ret_errors);

	if (r == 0)
		ASSERT(spec.name && strlen(spec.body) == spec.body_length);
	spec_component_done(&spec);
	return r;
}

static int parse_command(const char *text, size_t size, const struct spec_options *options,
			 json_t **ret_errors)
{
	struct spec_command spec = SPEC_COMMAND_NULL;
	int r = spec_parse_command(text, size, options, &spec, ret_errors);

	if (r == 0)
		ASSERT(spec.n_argv >= 1 && spec.argv[0][0] != '\0' && !spec.argv[spec.n_argv]);
	spec_command_done(&spec);
	return r;
}

static int parse_signal(const char *text, size_t size, const struct spec_options *options,
			json_t **ret_errors)
{
	struct wire_signal signal;
	int r = spec_parse_signal(text, size, options, &signal, ret_errors);

	if (r == 0)
		ASSERT(signal.number >= 1 && signal.number <= 64 &&
		       signal.scope < WIRE_SIGNAL_MAX_);
	return r;
}

static int parse_size(const char *text, size_t size, const struct spec_options *options,
		      json_t **ret_errors)
{
	struct wire_size window;
	int r = spec_parse_size(text, size, options, &window, ret_errors);

	if (r == 0)
		ASSERT(window.rows >= 1 && window.cols >= 1);
	return r;
}

static int parse_stdin(const char *text, size_t size, const struct spec_options *options,
		       json_t **ret_errors)
{
	struct spec_stdin input = {0};
	int r = spec_parse_stdin(text, size, options, &input, ret_errors);

	/* Sanitizers look at the bytes, which are copied. */
	if (r == 0 && input.size > 0)
		ASSERT(input.data && size >= input.size);
	if (r == 0)
		free(input.data);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	struct spec_options options = {.env_prefix = "ALPHASWARM_"};
	json_t *errors = NULL;
	int r;

	if (size < 1)
		return 0;
	options.ignore_unknown_fields = data[0] & 8;
	switch (data[0] & 7) {
	case 0:
	case 1:
		r = parse_create(text, size - 1, &options, data[0] & 1, &errors);
		break;
	case 2:
		r = parse_component(text, size - 1, &options, &errors);
		break;
	case 3:
		r = spec_parse_empty(text, size - 1, &options, &errors);
		break;
	case 5:
		r = parse_signal(text, size - 1, &options, &errors);
		break;
	case 6:
		r = parse_size(text, size - 1, &options, &errors);
		break;
	case 7:
		r = parse_stdin(text, size - 1, &options, &errors);
		break;
	default:
		r = parse_command(text, size - 1, &options, &errors);
		break;
	}
	ASSERT((r == SPEC_E_INVALID) == (json_array_size(errors) > 0));
	json_decref(errors);
	return 0;
}
