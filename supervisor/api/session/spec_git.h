/*
 * What the routes of git ask for, checked. Pure.
 *
 * Texts become arguments of git: none begins with a dash, and what names a ref is one by git's own
 * rules (git-check-ref-format(1)).
 */
#pragma once

#include "sandboxd/git.h"
#include "supervisor/api/session/spec.h"

#define GIT_PATH_BYTES      (FILE_PATH_BYTES + 16) /* absolute */
#define GIT_MESSAGE_MAX     ((size_t)64 * 1024)
#define GIT_PATHS_MAX       1000
#define GIT_LOG_DEFAULT     20u
#define GIT_LOG_MAX         1000u
#define GIT_PATCH_BYTES     (256u * 1024)
#define GIT_PATCH_MAX_BYTES (4u * 1024 * 1024)

enum git_act {
	GIT_ACT_CLONE,
	GIT_ACT_FETCH,
	GIT_ACT_PULL,
	GIT_ACT_PUSH,
	GIT_ACT_BRANCH,
	GIT_ACT_CHECKOUT,
	GIT_ACT_ADD,
	GIT_ACT_COMMIT,
	GIT_ACT_STATUS,
	GIT_ACT_DIFF,
	GIT_ACT_LOG,
	GIT_ACT_MAX_,
};

struct spec_git {
	enum git_act act;
	char *path; /* of the working tree: absolute, below one of the session's folders */
	char *url;
	char *remote; /* a name; "origin" where the caller gives neither */
	char *branch;
	char *ref; /* also a commit, with ~ and ^: where to begin, what to show */
	char *message;
	char *author_name;
	char *author_email;
	char *username; /* with password: a credential for `host` and nothing else */
	char *password;
	char *host; /* host[:port] in lower case; from the URL where that is given */
	char *ca;   /* PEM: authorities in place of the session's own */
	char **paths;
	size_t n_paths;
	uint32_t depth;
	uint32_t limit; /* entries of a log, bytes of a diff */
	uint32_t timeout_ms;
	bool all;
	bool allow_empty;
	bool force;
	bool prune;
	bool set_upstream;
	bool staged;
};
#define SPEC_GIT_NULL ((struct spec_git){0})
void spec_git_done(struct spec_git *spec); /* wipes the credential */

/* POST .../git/{act}. */
MUST_USE int spec_parse_git(const char *text, size_t size, const struct spec_options *options,
			    enum git_act act, struct spec_git *ret_spec, json_t **ret_errors);
/* One parameter of a GET, decoded. NULL, or what is wrong with it; "" : out of memory. */
const char *spec_git_parameter(struct spec_git *spec, const char *name, const char *text,
			       size_t length);

bool git_ref_valid(const char *text, size_t length);
/* The same, or a commit's name, with ~ and ^ and numbers behind it. */
bool git_revision_valid(const char *text, size_t length);
/* NULL, or what is wrong: anything but http(s)://host[:port]/path is. ret_host: host[:port] in
 * lower case, without the scheme's own port. */
const char *git_url_check(const char *text, size_t length, char ret_host[GIT_URL_MAX_BYTES + 1],
			  bool *ret_tls);
