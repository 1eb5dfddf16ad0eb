#include "supervisor/api/session/spec_git.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/endpoint_value.h"
#include "base/num.h"
#include "base/str.h"

#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/fit.h"

#define MSG_URL     "Value error, must be http://host/path or https://host/path"
#define MSG_REF     "Value error, is no name of a branch"
#define MSG_REV     "Value error, is no name of a branch or commit"
#define MSG_REMOTE  "Value error, is no name of a remote"
#define MSG_PERSON  "Value error, must be one line without < and >"
#define MSG_HOST    "Value error, must be host or host:port"
#define MSG_PLAIN   "Value error, credentials are for https only"
#define MSG_SCOPE   "Value error, host is needed where no url is given"
#define MSG_FOREIGN "Value error, is not the host of the url"

#define PERSON_MAX         256
#define HTTP_PORT          80
#define HTTPS_PORT         443
#define DEPTH_MAX          1000000u
#define TIMEOUT_DEFAULT_MS (10u * 60 * 1000)

/* Texts. */

bool git_ref_valid(const char *text, size_t length)
{
	char before = '/';

	if (length == 0 || length > GIT_REF_MAX_BYTES || text[0] == '-' ||
	    !str_utf8_valid(text, length) || (length == 1 && text[0] == '@'))
		return false;
	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if ((unsigned char)c <= ' ' || c == '\x7f' || strchr("~^:?*[\\", c))
			return false;
		if ((c == '.' || c == '/') && (before == '/' || (c == '.' && before == '.')))
			return false;
		if (c == '{' && before == '@')
			return false;
		before = c;
	}
	if (before == '/' || before == '.')
		return false;
	/* No part of it ends with .lock. */
	for (const char *at = text; at < text + length; at++) {
		size_t part = strcspn(at, "/");

		if (part >= 5 && memcmp(at + part - 5, ".lock", 5) == 0)
			return false;
		at += part;
	}
	return true;
}

bool git_revision_valid(const char *text, size_t length)
{
	size_t name = strcspn(text, "~^");

	for (size_t i = name; i < length; i++)
		if (!strchr("~^0123456789", text[i]))
			return false;
	return name <= length && git_ref_valid(text, name);
}

const char *git_url_check(const char *text, size_t length, char ret_host[GIT_URL_MAX_BYTES + 1],
			  bool *ret_tls)
{
	struct endpoint_value value;
	const struct endpoint_target *target = &value.target[0];
	bool is_v6;
	const char *problem;

	if (length == 0 || length > GIT_URL_MAX_BYTES || strlen(text) != length)
		return MSG_URL;
	problem = endpoint_value_read(ENDPOINT_FORM_URL, text, length, &value);
	if (problem)
		return problem;
	if (value.n_targets != 1 || strpbrk(text, "?#") || text[length - 1] == '/')
		return MSG_URL;
	is_v6 = target->kind == ENDPOINT_HOST_IPV6;
	*ret_tls = value.tls;
	if (target->port == (value.tls ? HTTPS_PORT : HTTP_PORT))
		fit_text(ret_host, GIT_URL_MAX_BYTES + 1, "%s%s%s", is_v6 ? "[" : "", target->host,
			 is_v6 ? "]" : "");
	else
		fit_text(ret_host, GIT_URL_MAX_BYTES + 1, "%s%s%s:%u", is_v6 ? "[" : "",
			 target->host, is_v6 ? "]" : "", target->port);
	return NULL;
}

static bool is_remote(const char *text, size_t length)
{
	return length <= 64 && git_ref_valid(text, length) && str_only(text, length, "._-");
}

static bool is_person(const char *text, size_t length)
{
	if (length == 0 || length > PERSON_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)text[i] < ' ' || strchr("<>", text[i]))
			return false;
	return true;
}

static bool is_host(const char *text, size_t length)
{
	char url[GIT_URL_MAX_BYTES + 1];
	char host[GIT_URL_MAX_BYTES + 1];
	bool is_tls;

	return length > 0 && !strpbrk(text, "/@") &&
	       str_format(url, sizeof(url), "https://%s/x", text) >= 0 &&
	       !git_url_check(url, strlen(url), host, &is_tls) && str_equal(host, text);
}

/* Members of a body. */

void spec_git_done(struct spec_git *spec)
{
	char *texts[] = {spec->path,         spec->url,      spec->remote, spec->branch,
			 spec->ref,          spec->message,  spec->host,   spec->author_name,
			 spec->author_email, spec->username, spec->ca};

	if (spec->password)
		explicit_bzero(spec->password, strlen(spec->password));
	free(spec->password);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		free(texts[i]);
	body_strings_free(spec->paths, spec->n_paths);
	*spec = SPEC_GIT_NULL;
}

/* A text, or NULL and it was said what is wrong. */
static const char *text_of(struct body *body, const char *field, const json_t *value,
			   size_t max_bytes)
{
	if (!json_is_string(value))
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	else if (body_has_nul(value))
		body_wrong(body, "value_error", field, BODY_MSG_NUL);
	else if (json_string_length(value) > max_bytes)
		body_wrong(body, "string_too_long", field, "String is too long");
	else
		return json_string_value(value);
	return NULL;
}

static void keep(struct body *body, char **dest, const char *text)
{
	free(*dest);
	*dest = strdup(text);
	if (!*dest)
		body->fatal = -ENOMEM;
}

static void read_checked(struct body *body, const char *field, const json_t *value, char **dest,
			 bool (*is_valid)(const char *text, size_t length), const char *msg)
{
	const char *text;

	if (json_is_null(value))
		return;
	text = text_of(body, field, value, GIT_MESSAGE_MAX);
	if (text && !is_valid(text, strlen(text)))
		body_wrong(body, "value_error", field, msg);
	else if (text)
		keep(body, dest, text);
}

static const char *place(const char *text, size_t length, char dest[GIT_PATH_BYTES])
{
	struct spec_file_path path;
	const char *problem = spec_file_path(text, length, &path);

	if (problem)
		return problem;
	fit_text(dest, GIT_PATH_BYTES, "%s%s%s", path.root == WIRE_FILE_TMP ? "/tmp" : "/session",
		 str_equal(path.text, ".") ? "" : "/", str_equal(path.text, ".") ? "" : path.text);
	return NULL;
}

static void read_path(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;
	const char *text = text_of(body, field, value, FILE_PATH_BYTES - 1);
	char absolute[GIT_PATH_BYTES];
	const char *problem = text ? place(text, strlen(text), absolute) : NULL;

	if (problem)
		body_wrong(body, "value_error", field, problem);
	else if (text)
		keep(body, &spec->path, absolute);
}

static void read_url(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;
	char host[GIT_URL_MAX_BYTES + 1];
	const char *problem;
	const char *text;
	bool is_tls;

	if (json_is_null(value))
		return;
	text = text_of(body, field, value, GIT_URL_MAX_BYTES);
	problem = text ? git_url_check(text, strlen(text), host, &is_tls) : NULL;
	if (problem)
		body_wrong(body, "value_error", field, problem);
	else if (text)
		keep(body, &spec->url, text);
}

static void read_remote(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;

	read_checked(body, field, value, &spec->remote, is_remote, MSG_REMOTE);
}

static void read_branch(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;

	read_checked(body, field, value, &spec->branch, git_ref_valid, MSG_REF);
}

static void read_ref(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;

	read_checked(body, field, value, &spec->ref, git_revision_valid, MSG_REV);
}

static void read_author_name(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;

	read_checked(body, field, value, &spec->author_name, is_person, MSG_PERSON);
}

static void read_author_email(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;

	read_checked(body, field, value, &spec->author_email, is_person, MSG_PERSON);
}

static void read_message(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;
	const char *text = text_of(body, field, value, GIT_MESSAGE_MAX);

	if (text)
		keep(body, &spec->message, text);
}

static void read_ca(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;
	const char *text =
		json_is_null(value) ? NULL : text_of(body, field, value, GIT_CA_MAX_BYTES);

	if (text)
		keep(body, &spec->ca, text);
}

/* {username, password, host?}. Items name the member, never what is in it. */
static void read_credentials(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;
	const struct {
		const char *name;
		size_t max_bytes;
		char **dest;
	} rows[] = {
		{"username", GIT_USERNAME_MAX_BYTES, &spec->username},
		{"password", GIT_PASSWORD_MAX_BYTES, &spec->password},
		{"host",     GIT_URL_MAX_BYTES,      &spec->host    },
	};
	const char *name;
	json_t *member;

	if (!body_is_object(body, field, value))
		return;
	json_object_foreach(value, name, member)
	{
		size_t i = 0;

		while (i < ARRAY_SIZE(rows) && !str_equal(name, rows[i].name))
			i++;
		if (i == ARRAY_SIZE(rows))
			body_wrong_in(body, "extra_forbidden", field, name,
				      "Extra inputs are not permitted");
		else if (!json_is_string(member) || body_has_nul(member) ||
			 json_string_length(member) == 0 ||
			 json_string_length(member) > rows[i].max_bytes)
			body_wrong_in(body, "string_type", field, name,
				      "Input should be a valid string, not empty and not too long");
		else
			keep(body, rows[i].dest, json_string_value(member));
	}
	if (!json_object_get(value, "password") || !json_object_get(value, "username"))
		body_wrong(body, "missing", field, "username and password are required");
	/* The header that they become ends the name at the first colon. */
	if (spec->username && strpbrk(spec->username, ":\r\n"))
		body_wrong_in(body, "value_error", field, "username",
			      "Value error, must not contain ':' or a line's end");
	if (spec->host && !is_host(spec->host, strlen(spec->host)))
		body_wrong_in(body, "value_error", field, "host", MSG_HOST);
}

static void read_paths(struct body *body, const char *field, json_t *value)
{
	struct spec_git *spec = body->dest;
	size_t n = json_array_size(value);

	if (json_is_null(value))
		return;
	if (!json_is_array(value) || n == 0 || n > GIT_PATHS_MAX) {
		body_wrong(body, "list_type", field,
			   "Input should be a valid list of 1 to 1000 paths");
		return;
	}
	spec->paths = calloc(n + 1, sizeof(*spec->paths));
	if (!spec->paths) {
		body->fatal = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const char *text =
			text_of(body, field, json_array_get(value, i), FILE_PATH_BYTES - 1);

		if (!text)
			return;
		if (text[0] == '\0') {
			body_wrong(body, "value_error", field, "Value error, must not be empty");
			return;
		}
		keep(body, &spec->paths[i], text);
		spec->n_paths = i + 1;
	}
}

static void read_flag(struct body *body, const char *field, const json_t *value, bool *ret_flag)
{
	if (json_is_boolean(value))
		*ret_flag = json_is_true(value);
	else if (!json_is_null(value))
		body_wrong(body, "bool_type", field, "Input should be a valid boolean");
}

static void read_all(struct body *body, const char *field, json_t *value)
{
	read_flag(body, field, value, &((struct spec_git *)body->dest)->all);
}

static void read_allow_empty(struct body *body, const char *field, json_t *value)
{
	read_flag(body, field, value, &((struct spec_git *)body->dest)->allow_empty);
}

static void read_force(struct body *body, const char *field, json_t *value)
{
	read_flag(body, field, value, &((struct spec_git *)body->dest)->force);
}

static void read_prune(struct body *body, const char *field, json_t *value)
{
	read_flag(body, field, value, &((struct spec_git *)body->dest)->prune);
}

static void read_set_upstream(struct body *body, const char *field, json_t *value)
{
	read_flag(body, field, value, &((struct spec_git *)body->dest)->set_upstream);
}

static void read_depth(struct body *body, const char *field, json_t *value)
{
	if (!json_is_null(value))
		(void)body_read_integer(body, field, value, 1, DEPTH_MAX,
					&((struct spec_git *)body->dest)->depth);
}

static void read_timeout(struct body *body, const char *field, json_t *value)
{
	if (!json_is_null(value))
		(void)body_read_integer(body, field, value, 1, SPEC_TIMEOUT_MAX_MS,
					&((struct spec_git *)body->dest)->timeout_ms);
}

/* What belongs together. */

static void check_network(struct body *body)
{
	struct spec_git *spec = body->dest;
	char host[GIT_URL_MAX_BYTES + 1] = "";
	bool is_tls = true;

	if (spec->url && git_url_check(spec->url, strlen(spec->url), host, &is_tls))
		return; /* was said */
	if (spec->url && spec->remote)
		body_wrong(body, "value_error", "url",
			   "Value error, url and remote exclude each other");
	if (!spec->password)
		return;
	if (!is_tls)
		body_wrong(body, "value_error", "credentials", MSG_PLAIN);
	if (!spec->url && !spec->host)
		body_wrong(body, "value_error", "credentials", MSG_SCOPE);
	else if (spec->url && spec->host && !str_equal(spec->host, host))
		body_wrong_in(body, "value_error", "credentials", "host", MSG_FOREIGN);
	else if (spec->url && !spec->host)
		keep(body, &spec->host, host);
}

static void check_add(struct body *body)
{
	const struct spec_git *spec = body->dest;

	if (spec->all == (spec->n_paths > 0))
		body_wrong(body, "value_error", "paths",
			   "Value error, either paths or all is needed");
}

#define NETWORK                                                                                    \
	{"credentials", false, read_credentials}, {"ca_certificates", false, read_ca},             \
		{"timeout_ms", false, read_timeout},                                               \
	{                                                                                          \
		"url", false, read_url                                                             \
	}
#define END                                                                                        \
	{                                                                                          \
		NULL, false, NULL                                                                  \
	}

static const struct {
	struct body_field fields[12];
	void (*check)(struct body *body);
} acts[GIT_ACT_MAX_] = {
	[GIT_ACT_CLONE] = {{{"path", true, read_path},
			    {"url", true, read_url},
			    {"branch", false, read_branch},
			    {"depth", false, read_depth},
			    {"credentials", false, read_credentials},
			    {"ca_certificates", false, read_ca},
			    {"timeout_ms", false, read_timeout},
			    END},
			   check_network						  },
	[GIT_ACT_FETCH] = {{{"path", true, read_path},
			    {"remote", false, read_remote},
			    {"branch", false, read_branch},
			    {"depth", false, read_depth},
			    {"prune", false, read_prune},
			    NETWORK,
			    END},
			   check_network						  },
	[GIT_ACT_PULL] = {{{"path", true, read_path},
			   {"remote", false, read_remote},
			   {"branch", false, read_branch},
			   NETWORK,
			   END},
			   check_network						  },
	[GIT_ACT_PUSH] = {{{"path", true, read_path},
			   {"remote", false, read_remote},
			   {"branch", true, read_branch},
			   {"set_upstream", false, read_set_upstream},
			   {"force", false, read_force},
			   NETWORK,
			   END},
			   check_network						  },
	[GIT_ACT_BRANCH] = {{{"path", true, read_path},
			     {"branch", true, read_branch},
			     {"ref", false, read_ref},
			     END},
                           NULL							   },
	[GIT_ACT_CHECKOUT] = {{{"path", true, read_path}, {"ref", true, read_ref}, END}, NULL},
	[GIT_ACT_ADD] = {{{"path", true, read_path},
			  {"paths", false, read_paths},
			  {"all", false, read_all},
			  END},
			   check_add						      },
	[GIT_ACT_COMMIT] = {{{"path", true, read_path},
			     {"message", true, read_message},
			     {"author_name", true, read_author_name},
			     {"author_email", true, read_author_email},
			     {"allow_empty", false, read_allow_empty},
			     END},
                           NULL							   },
};

int spec_parse_git(const char *text, size_t size, const struct spec_options *options,
		   enum git_act act, struct spec_git *ret_spec, json_t **ret_errors)
{
	struct spec_git spec = {.act = act};
	struct body body = {.options = options, .dest = &spec};
	int r;

	ASSERT(acts[act].fields[0].name);
	r = body_parse(&body, text, size, acts[act].fields, false);
	if (r == 0 && acts[act].check)
		acts[act].check(&body);
	if (r == 0 && body.errors)
		r = SPEC_E_INVALID;
	if (r == 0 && !spec.url && !spec.remote)
		keep(&body, &spec.remote, "origin");
	if (r == 0 && spec.timeout_ms == 0)
		spec.timeout_ms = TIMEOUT_DEFAULT_MS;
	if (r == 0 && body.fatal < 0)
		r = body.fatal;
	if (r != 0)
		spec_git_done(&spec);
	else
		*ret_spec = spec;
	return body_finish(&body, r, ret_errors);
}

/* Parameters of a GET. */

static const char *take_number(const char *text, uint32_t max, uint32_t *ret_number)
{
	uint64_t number;

	if (num_parse_u64(text, 1, max, &number) < 0)
		return "Value error, is no number in the range";
	*ret_number = (uint32_t)number;
	return NULL;
}

static const char *take_flag(const char *text, bool *ret_flag)
{
	*ret_flag = str_equal(text, "true") || str_equal(text, "1");
	return *ret_flag || str_equal(text, "false") || str_equal(text, "0")
		       ? NULL
		       : "Input should be a valid boolean";
}

static const char *take_text(char **dest, const char *text)
{
	free(*dest);
	*dest = strdup(text);
	return *dest ? NULL : "";
}

const char *spec_git_parameter(struct spec_git *spec, const char *name, const char *text,
			       size_t length)
{
	char absolute[GIT_PATH_BYTES];
	const char *problem;

	if (strlen(text) != length)
		return BODY_MSG_NUL;
	if (str_equal(name, "path")) {
		problem = place(text, length, absolute);
		return problem ? problem : take_text(&spec->path, absolute);
	}
	if (str_equal(name, "ref"))
		return git_revision_valid(text, length) ? take_text(&spec->ref, text) : MSG_REV;
	if (str_equal(name, "staged"))
		return take_flag(text, &spec->staged);
	if (str_equal(name, "limit"))
		return take_number(text, GIT_LOG_MAX, &spec->limit);
	ASSERT(str_equal(name, "max_bytes"));
	return take_number(text, GIT_PATCH_MAX_BYTES, &spec->limit);
}
