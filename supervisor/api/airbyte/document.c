/*
 * Written by libyaml's emitter, so that no value can become structure. Text is quoted always, and
 * what is not ASCII is escaped. Dagster expands templates in the fields of `workspace` only, which
 * hold nothing but ours.
 */
#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "base/id.h"
#include "base/str.h"

#include "supervisor/api/airbyte/airbyte.h"

#define TYPE "dagster_airbyte.AirbyteWorkspaceComponent"

/* Fields of `workspace` by kind of deployment, in the order in which they are written. */
static const struct {
	const char *name;
	const char *variable; /* behind the prefix */
	uint32_t kinds;       /* bit per enum config_airbyte */
} fields[] = {
	{"rest_api_base_url",          "REST_API_BASE_URL",
	 1u << CONFIG_AIRBYTE_CLIENT | 1u << CONFIG_AIRBYTE_PASSWORD | 1u << CONFIG_AIRBYTE_OPEN                             },
	{"configuration_api_base_url", "CONFIGURATION_API_BASE_URL",
	 1u << CONFIG_AIRBYTE_CLIENT | 1u << CONFIG_AIRBYTE_PASSWORD | 1u << CONFIG_AIRBYTE_OPEN                             },
	{"workspace_id",               "WORKSPACE_ID",               UINT32_MAX                                              },
	{"client_id",                  "CLIENT_ID",                  1u << CONFIG_AIRBYTE_CLIENT | 1u << CONFIG_AIRBYTE_CLOUD},
	{"client_secret",              "CLIENT_SECRET",
	 1u << CONFIG_AIRBYTE_CLIENT | 1u << CONFIG_AIRBYTE_CLOUD                                                            },
	{"username",                   "USERNAME",                   1u << CONFIG_AIRBYTE_PASSWORD                           },
	{"password",                   "PASSWORD",                   1u << CONFIG_AIRBYTE_PASSWORD                           },
};

struct writer {
	yaml_emitter_t emitter;
	struct buf *text;
	int error; /* the first one */
};

static int on_bytes(void *userdata, unsigned char *data, size_t size)
{
	struct writer *writer = userdata;

	if (writer->error == 0)
		writer->error = buf_append(writer->text, data, size);
	return writer->error == 0;
}

/* made: the event was initialised. The emitter frees it in every case. */
static void emit(struct writer *writer, yaml_event_t *event, int made)
{
	if (writer->error == 0 && !made)
		writer->error = -ENOMEM;
	if (!made)
		return;
	if (writer->error != 0)
		yaml_event_delete(event);
	else if (!yaml_emitter_emit(&writer->emitter, event) && writer->error == 0)
		writer->error = -ENOMEM;
}

static void put(struct writer *writer, const char *text, size_t length, bool quoted)
{
	/* What libyaml declares is not const; it only copies. */
	const union {
		const char *in;
		yaml_char_t *out;
	} bytes = {text};
	yaml_event_t event;

	emit(writer, &event,
	     yaml_scalar_event_initialize(&event, NULL, NULL, bytes.out, (int)length, 1, 1,
					  quoted ? YAML_DOUBLE_QUOTED_SCALAR_STYLE
						 : YAML_PLAIN_SCALAR_STYLE));
}

static void key(struct writer *writer, const char *name)
{
	put(writer, name, strlen(name), false);
}

static void begin_map(struct writer *writer)
{
	yaml_event_t event;

	emit(writer, &event,
	     yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE));
}

static void end_map(struct writer *writer)
{
	yaml_event_t event;

	emit(writer, &event, yaml_mapping_end_event_initialize(&event));
}

static void begin_list(struct writer *writer)
{
	yaml_event_t event;

	emit(writer, &event,
	     yaml_sequence_start_event_initialize(&event, NULL, NULL, 1,
						  YAML_BLOCK_SEQUENCE_STYLE));
}

static void end_list(struct writer *writer)
{
	yaml_event_t event;

	emit(writer, &event, yaml_sequence_end_event_initialize(&event));
}

static void put_variable(struct writer *writer, const struct api_config *config, size_t i,
			 bool as_template)
{
	char text[CONFIG_TEXT_BYTES + 64];
	int n = as_template ? str_format(text, sizeof(text), "{{ env.%s%s }}",
					 config->airbyte_prefix, fields[i].variable)
			    : str_format(text, sizeof(text), "%s%s", config->airbyte_prefix,
					 fields[i].variable);

	if (n < 0 && writer->error == 0)
		writer->error = -EINVAL;
	else if (n >= 0)
		put(writer, text, strlen(text), as_template);
}

/* Of any version and case: it is Airbyte's, not ours. */
static bool is_uuid(const char *text)
{
	return strlen(text) == ID_TEXT_BYTES - 1 &&
	       strspn(text, "0123456789abcdefABCDEF-") == ID_TEXT_BYTES - 1;
}

static bool has_field(const struct api_config *config, size_t i)
{
	return (fields[i].kinds & (1u << config->airbyte_workspace)) != 0;
}

static void put_workspace(struct writer *writer, const struct api_config *config)
{
	key(writer, "workspace");
	begin_map(writer);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (!has_field(config, i))
			continue;
		key(writer, fields[i].name);
		put_variable(writer, config, i, true);
	}
	end_map(writer);
}

static void put_selector(struct writer *writer, const struct airbyte_source *source, bool by_id)
{
	const char *text = by_id ? source->connection_id : source->name;

	key(writer, "connection_selector");
	begin_map(writer);
	key(writer, by_id ? "by_id" : "by_name");
	begin_list(writer);
	put(writer, text, by_id ? strlen(text) : source->name_length, true);
	end_list(writer);
	end_map(writer);
}

static void put_requirements(struct writer *writer, const struct api_config *config)
{
	key(writer, "requirements");
	begin_map(writer);
	key(writer, "env");
	begin_list(writer);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (has_field(config, i))
			put_variable(writer, config, i, false);
	end_list(writer);
	end_map(writer);
}

static void put_document(struct writer *writer, const struct airbyte_source *source, bool by_id,
			 const struct api_config *config)
{
	yaml_event_t event;

	emit(writer, &event, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING));
	emit(writer, &event, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1));
	begin_map(writer);
	key(writer, "type");
	put(writer, TYPE, strlen(TYPE), false);
	key(writer, "attributes");
	begin_map(writer);
	put_workspace(writer, config);
	put_selector(writer, source, by_id);
	end_map(writer);
	put_requirements(writer, config);
	end_map(writer);
	emit(writer, &event, yaml_document_end_event_initialize(&event, 1));
	emit(writer, &event, yaml_stream_end_event_initialize(&event));
}

int airbyte_document(const struct airbyte_source *source, const struct api_config *config,
		     struct buf *ret_text)
{
	struct writer writer = {.text = ret_text};
	bool by_id = is_uuid(source->connection_id);

	if (!by_id && (source->name_length == 0 || source->name_length > AIRBYTE_NAME_MAX ||
		       memchr(source->name, '\0', source->name_length) ||
		       !str_utf8_valid(source->name, source->name_length)))
		return -EINVAL;
	if (!yaml_emitter_initialize(&writer.emitter))
		return -ENOMEM;
	yaml_emitter_set_output(&writer.emitter, on_bytes, &writer);
	yaml_emitter_set_width(&writer.emitter, -1);
	put_document(&writer, source, by_id, config);
	yaml_emitter_delete(&writer.emitter);
	return writer.error;
}
