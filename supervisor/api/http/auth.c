#include "supervisor/api/http/auth.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"

#include "sandboxd/api.h"

struct auth_scope_row {
	const char *name;
	uint32_t grants;
};

static const struct auth_scope_row scope_rows[] = {
	{API_SCOPE_DATA_READ,     AUTH_DATA_READ | AUTH_SANDBOX_READ  },
	{API_SCOPE_DATA_WRITE,    AUTH_DATA_WRITE | AUTH_SANDBOX_WRITE},
	{API_SCOPE_SANDBOX_READ,  AUTH_SANDBOX_READ                   },
	{API_SCOPE_SANDBOX_WRITE, AUTH_SANDBOX_WRITE                  },
	{API_SCOPE_ADMIN,         AUTH_ADMIN                          },
};

const char *auth_scope_name(enum auth_scope scope)
{
	switch (scope) {
	case AUTH_DATA_READ:
		return API_SCOPE_DATA_READ;
	case AUTH_DATA_WRITE:
		return API_SCOPE_DATA_WRITE;
	case AUTH_SANDBOX_READ:
		return API_SCOPE_SANDBOX_READ;
	case AUTH_SANDBOX_WRITE:
		return API_SCOPE_SANDBOX_WRITE;
	case AUTH_ADMIN:
		return API_SCOPE_ADMIN;
	case AUTH_ALL:
		break;
	}
	return "?";
}

static const char *field_header(const struct api_config *config, enum auth_field field)
{
	switch (field) {
	case AUTH_FIELD_USER:
		return config->header_user;
	case AUTH_FIELD_WORKSPACE:
		return config->header_workspace;
	case AUTH_FIELD_PROJECT:
		return config->header_project;
	case AUTH_FIELD_SCOPES:
		return config->header_scopes;
	case AUTH_FIELD_MAX_:
		break;
	}
	return "";
}

static bool equal_but_underscore(const char *name, const char *wanted)
{
	size_t length = strlen(wanted);

	if (length == 0 || strlen(name) != length)
		return false;
	for (size_t i = 0; i < length; i++) {
		bool both_dash = (name[i] == '_' || name[i] == '-') &&
				 (wanted[i] == '_' || wanted[i] == '-');

		if (!both_dash && strncasecmp(name + i, wanted + i, 1) != 0)
			return false;
	}
	return true;
}

void auth_headers_add(struct auth_headers *headers, const struct api_config *config,
		      const char *name, const char *value, size_t length)
{
	for (enum auth_field field = 0; field < AUTH_FIELD_MAX_; field++) {
		const char *wanted = field_header(config, field);

		if (strcasecmp(name, wanted) == 0) {
			headers->value[field] = value ? value : "";
			headers->length[field] = value ? length : 0;
			headers->n[field]++;
		} else if (equal_but_underscore(name, wanted)) {
			headers->underscore = true;
		}
	}
}

bool auth_peer_trusted(const struct api_config *config, uint32_t uid)
{
	for (uint32_t i = 0; i < config->n_trusted_peers && i < CONFIG_MAX_PEERS; i++) {
		if (config->trusted_peer[i] == uid)
			return true;
	}
	return false;
}

static bool field_well_formed(const struct auth_headers *headers, enum auth_field field)
{
	size_t max = field == AUTH_FIELD_SCOPES ? IDENTITY_SCOPES_MAX : IDENTITY_MAX;
	const char *extra = field == AUTH_FIELD_SCOPES ? "._:@- " : "._:@-";

	if (headers->n[field] == 0)
		return true;
	if (headers->n[field] > 1)
		return false;
	if (headers->length[field] == 0 || headers->length[field] > max)
		return false;
	return str_only(headers->value[field], headers->length[field], extra);
}

static uint32_t parse_scopes(const char *text, size_t length)
{
	uint32_t scopes = 0;
	size_t at = 0;

	while (at < length) {
		size_t end = at;

		while (end < length && text[end] != ' ')
			end++;
		for (size_t i = 0; i < ARRAY_SIZE(scope_rows); i++) {
			if (strlen(scope_rows[i].name) == end - at &&
			    memcmp(scope_rows[i].name, text + at, end - at) == 0)
				scopes |= scope_rows[i].grants;
		}
		at = end + 1;
	}
	return scopes;
}

static void copy_field(char dest[IDENTITY_MAX + 1], const struct auth_headers *headers,
		       enum auth_field field)
{
	if (headers->n[field] == 0)
		return;
	memcpy(dest, headers->value[field], headers->length[field]);
	dest[headers->length[field]] = '\0';
}

enum auth_result auth_decide(const struct auth_headers *headers, bool peer_trusted,
			     bool is_operator, bool need_user, struct identity *ret_identity)
{
	struct identity identity = {0};

	if (headers->underscore)
		return AUTH_BAD_HEADER;
	for (enum auth_field field = 0; field < AUTH_FIELD_MAX_; field++) {
		if (is_operator && headers->n[field] > 0)
			return AUTH_BAD_HEADER;
		if (!field_well_formed(headers, field))
			return AUTH_BAD_HEADER;
	}
	if (!peer_trusted)
		return AUTH_UNAUTHENTICATED;
	if (is_operator) {
		memcpy(identity.user, "operator", sizeof("operator"));
		identity.scopes = AUTH_ALL;
		identity.is_operator = true;
		*ret_identity = identity;
		return AUTH_OK;
	}
	if (need_user && headers->n[AUTH_FIELD_USER] == 0)
		return AUTH_UNAUTHENTICATED;

	copy_field(identity.user, headers, AUTH_FIELD_USER);
	copy_field(identity.workspace, headers, AUTH_FIELD_WORKSPACE);
	copy_field(identity.project, headers, AUTH_FIELD_PROJECT);
	if (headers->n[AUTH_FIELD_SCOPES] > 0)
		identity.scopes = parse_scopes(headers->value[AUTH_FIELD_SCOPES],
					       headers->length[AUTH_FIELD_SCOPES]);
	*ret_identity = identity;
	return AUTH_OK;
}

uint32_t auth_missing(const struct identity *identity, uint32_t wanted)
{
	return wanted & ~identity->scopes;
}

int auth_missing_text(uint32_t missing, struct buf *text)
{
	static const enum auth_scope order[] = {AUTH_DATA_READ, AUTH_DATA_WRITE, AUTH_SANDBOX_READ,
						AUTH_SANDBOX_WRITE, AUTH_ADMIN};
	const char *separator = "";
	int r;

	r = buf_append_str(text, "missing scope(s): [");
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		if (!(missing & (uint32_t)order[i]))
			continue;
		r = buf_printf(text, "%s'%s'", separator, auth_scope_name(order[i]));
		if (r < 0)
			return r;
		separator = ", ";
	}
	return buf_append_str(text, "]");
}
