/*
 * Theory. Whatever stands in the repository's or the user's configuration was written by the
 * session; it runs as the session's user, as any command does, and that is all it can reach. The
 * words below only keep an act the act that was asked for: no editor, no pager, no prompt, no
 * signature, no helper for credentials, nothing recursive. What has a credential reads no
 * configuration at all (sandbox-git); git itself may use no other transport than its socket.
 */
#include "supervisor/api/git/words.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_BYTES (1024u * 1024)

/* Fields of a commit, each with a unit separator behind it. */
#define LOG_FORMAT "--format=%H%x1f%P%x1f%an%x1f%ae%x1f%aI%x1f%cn%x1f%ce%x1f%cI%x1f%s%x1f%b%x1f"

static const enum git_step steps[GIT_ACT_MAX_][6] = {
	[GIT_ACT_CLONE] = {GIT_STEP_NETWORK, GIT_STEP_STATUS,            GIT_STEP_END},
	[GIT_ACT_FETCH] = {GIT_STEP_REMOTE,                GIT_STEP_NETWORK,                            GIT_STEP_STATUS, GIT_STEP_END},
	[GIT_ACT_PULL] = {GIT_STEP_REMOTE, GIT_STEP_NETWORK,GIT_STEP_MERGE, GIT_STEP_STATUS,
			   GIT_STEP_END},
	[GIT_ACT_PUSH] = {GIT_STEP_REMOTE,  GIT_STEP_NETWORK,            GIT_STEP_END},
	[GIT_ACT_BRANCH] = {GIT_STEP_SWITCH, GIT_STEP_STATUS,                                 GIT_STEP_END},
	[GIT_ACT_CHECKOUT] = {GIT_STEP_SWITCH,  GIT_STEP_STATUS,           GIT_STEP_END},
	[GIT_ACT_ADD] = {GIT_STEP_ADD,                GIT_STEP_STATUS,                            GIT_STEP_END},
	[GIT_ACT_COMMIT] = {GIT_STEP_COMMIT,    GIT_STEP_LOG,GIT_STEP_END},
	[GIT_ACT_STATUS] = {GIT_STEP_STATUS,GIT_STEP_END   },
	[GIT_ACT_DIFF] = {GIT_STEP_COUNTS,     GIT_STEP_PATCH, GIT_STEP_END},
	[GIT_ACT_LOG] = {GIT_STEP_LOG,                GIT_STEP_END                           },
};

const enum git_step *git_steps(const struct spec_git *spec)
{
	const enum git_step *first = steps[spec->act];

	/* The caller has said where. */
	return spec->url && *first == GIT_STEP_REMOTE ? first + 1 : first;
}

struct words {
	struct spec_command *spec;
	int error;
};

static void add_to(char ***list, size_t *n, size_t max, const char *word, int *error)
{
	char **grown;

	if (*error < 0)
		return;
	if (*n >= max) {
		*error = -E2BIG;
		return;
	}
	grown = realloc(*list, (*n + 2) * sizeof(*grown));
	if (grown)
		*list = grown;
	if (grown)
		grown[*n] = strdup(word);
	if (!grown || !grown[*n]) {
		*error = -ENOMEM;
		return;
	}
	grown[++*n] = NULL;
}

static void word(struct words *words, const char *text)
{
	add_to(&words->spec->argv, &words->spec->n_argv, EXEC_MAX_ARGV, text, &words->error);
}

static void all(struct words *words, const char *const *texts)
{
	for (size_t i = 0; texts[i]; i++)
		word(words, texts[i]);
}

static void wordf(struct words *words, const char *pattern, ...) PRINTF_LIKE(2, 3);
static void wordf(struct words *words, const char *pattern, ...)
{
	char *text = NULL;
	va_list arguments;

	va_start(arguments, pattern);
	if (vasprintf(&text, pattern, arguments) < 0)
		words->error = -ENOMEM;
	else
		word(words, text);
	va_end(arguments);
	free(text);
}

static void variable(struct words *words, const char *text)
{
	add_to(&words->spec->env, &words->spec->n_env, EXEC_MAX_ENV / 2, text, &words->error);
}

static void variablef(struct words *words, const char *name, const char *value)
{
	char *text = NULL;

	if (asprintf(&text, "%s=%s", name, value) < 0)
		words->error = -ENOMEM;
	else
		variable(words, text);
	free(text);
}

static const char *const begin[] = {"git",
				    "--no-pager",
				    "--literal-pathspecs",
				    "-c",
				    "core.fsmonitor=false",
				    "-c",
				    "core.askPass=",
				    "-c",
				    "credential.helper=",
				    "-c",
				    "commit.gpgSign=false",
				    "-c",
				    "push.gpgSign=false",
				    "-c",
				    "push.pushOption=",
				    "-c",
				    "gc.autoDetach=false",
				    "-c",
				    "submodule.recurse=false",
				    "-c",
				    "core.quotePath=false",
				    NULL};

static const char *const variables[] = {"GIT_TERMINAL_PROMPT=0",
					"GIT_CONFIG_NOSYSTEM=1",
					"GIT_ALLOW_PROTOCOL=fd",
					"GIT_LFS_SKIP_SMUDGE=1",
					"GIT_EDITOR=false",
					"GIT_PAGER=cat",
					"GIT_OPTIONAL_LOCKS=0",
					"GIT_ASKPASS=",
					"SSH_ASKPASS=",
					"LC_ALL=C.UTF-8",
					"LANGUAGE=C",
					NULL};

static const char *origin_of(const struct spec_git *spec)
{
	return spec->url ? spec->url : spec->remote;
}

static const char *tracked_of(const struct spec_git *spec)
{
	return spec->remote ? spec->remote : "origin";
}

static void words_clone(struct words *words, const struct spec_git *spec)
{
	static const char *const clone[] = {"clone", "-q", "--no-recurse-submodules", NULL};

	all(words, clone);
	if (spec->depth > 0)
		wordf(words, "--depth=%u", spec->depth);
	if (spec->branch)
		wordf(words, "--branch=%s", spec->branch);
	word(words, "--");
	word(words, spec->url);
	word(words, spec->path);
}

static void words_fetch(struct words *words, const struct spec_git *spec)
{
	static const char *const fetch[] = {"fetch",
					    "-q",
					    "--no-recurse-submodules",
					    "--no-auto-maintenance",
					    "--no-write-fetch-head",
					    NULL};

	all(words, fetch);
	if (spec->depth > 0)
		wordf(words, "--depth=%u", spec->depth);
	if (spec->prune)
		word(words, "--prune");
	word(words, "--");
	word(words, origin_of(spec));
	if (spec->branch)
		wordf(words, "+refs/heads/%s:refs/remotes/%s/%s", spec->branch, tracked_of(spec),
		      spec->branch);
	else if (spec->url)
		wordf(words, "+refs/heads/*:refs/remotes/%s/*", tracked_of(spec));
}

static void words_push(struct words *words, const struct spec_git *spec)
{
	static const char *const push[] = {
		"push",        "--porcelain",      "--no-recurse-submodules",
		"--no-signed", "--no-follow-tags", NULL};

	all(words, push);
	if (spec->set_upstream)
		word(words, "--set-upstream");
	if (spec->force)
		word(words, "--force");
	word(words, "--");
	word(words, origin_of(spec));
	wordf(words, "refs/heads/%s:refs/heads/%s", spec->branch, spec->branch);
}

static void step_network(struct words *words, const struct spec_git *spec, const char *url)
{
	words->spec->program = WIRE_PROGRAM_GIT;
	word(words, "-c");
	wordf(words, "url." GIT_TRANSPORT_URL ".insteadOf=%s", url);
	word(words, "-c");
	/* The longest counts, so neither can be moved elsewhere. */
	wordf(words, "url." GIT_TRANSPORT_URL ".pushInsteadOf=%s", url);
	if (spec->act == GIT_ACT_CLONE)
		words_clone(words, spec);
	else if (spec->act == GIT_ACT_PUSH)
		words_push(words, spec);
	else
		words_fetch(words, spec);
}

/* A dot in the name of a remote is any character to git, which reads a regular expression. */
static void step_remote(struct words *words, const struct spec_git *spec)
{
	static const char *const config[] = {"config", "--local",      "--includes",
					     "--null", "--get-regexp", NULL};
	char name[2 * GIT_REF_MAX_BYTES];
	size_t used = 0;

	for (const char *at = spec->remote; *at && used + 2 < sizeof(name); at++) {
		if (*at == '.')
			name[used++] = '\\';
		name[used++] = *at;
	}
	name[used] = '\0';
	all(words, config);
	wordf(words, "^remote\\.%s\\.(url|pushurl)$", name);
}

static void step_merge(struct words *words, const struct spec_git *spec)
{
	static const char *const merge[] = {"merge", "-q", "--ff-only", "--no-verify-signatures",
					    NULL};

	all(words, merge);
	if (spec->branch)
		wordf(words, "refs/remotes/%s/%s", tracked_of(spec), spec->branch);
	else
		word(words, "@{upstream}");
}

static void step_switch(struct words *words, const struct spec_git *spec)
{
	static const char *const switched[] = {"switch", "-q", "--no-recurse-submodules",
					       "--create", NULL};
	static const char *const checkout[] = {"checkout", "-q", "--no-recurse-submodules", NULL};

	if (spec->act == GIT_ACT_BRANCH) {
		all(words, switched);
		word(words, spec->branch);
		if (spec->ref)
			word(words, spec->ref);
		return;
	}
	all(words, checkout);
	word(words, spec->ref);
	word(words, "--");
}

static void step_add(struct words *words, const struct spec_git *spec)
{
	word(words, "add");
	if (spec->all) {
		word(words, "--all");
		return;
	}
	word(words, "--");
	for (size_t i = 0; i < spec->n_paths; i++)
		word(words, spec->paths[i]);
}

static void step_commit(struct words *words, const struct spec_git *spec)
{
	static const char *const commit[] = {"commit", "-q", "--no-gpg-sign", "--file=-", NULL};

	all(words, commit);
	if (spec->allow_empty)
		word(words, "--allow-empty");
	variablef(words, "GIT_AUTHOR_NAME", spec->author_name);
	variablef(words, "GIT_AUTHOR_EMAIL", spec->author_email);
	variablef(words, "GIT_COMMITTER_NAME", spec->author_name);
	variablef(words, "GIT_COMMITTER_EMAIL", spec->author_email);
	words->spec->stdin_text = strdup(spec->message);
	words->spec->stdin_length = strlen(spec->message);
	if (!words->spec->stdin_text)
		words->error = -ENOMEM;
}

static void step_log(struct words *words, const struct spec_git *spec)
{
	static const char *const log[] = {"log",      "-z", "--no-color", "--no-show-signature",
					  LOG_FORMAT, NULL};
	uint32_t limit = spec->limit > 0 ? spec->limit : GIT_LOG_DEFAULT;

	all(words, log);
	/* One more says whether there are more. */
	wordf(words, "--max-count=%u", spec->act == GIT_ACT_LOG ? limit + 1 : 1);
	if (spec->ref)
		word(words, spec->ref);
	word(words, "--");
}

static void step_diff(struct words *words, const struct spec_git *spec, bool counts)
{
	static const char *const diff[] = {"diff",
					   "--no-color",
					   "--no-ext-diff",
					   "--no-textconv",
					   "--no-renames",
					   "--submodule=short",
					   "--src-prefix=a/",
					   "--dst-prefix=b/",
					   NULL};

	all(words, diff);
	if (counts)
		word(words, "--numstat");
	if (counts)
		word(words, "-z");
	if (spec->staged)
		word(words, "--cached");
	if (spec->ref)
		word(words, spec->ref);
	word(words, "--");
	words->spec->max_output = counts            ? LIST_BYTES
				  : spec->limit > 0 ? spec->limit
						    : GIT_PATCH_BYTES;
}

static void step_status(struct words *words)
{
	static const char *const status[] = {
		"status", "--porcelain=v2",        "--branch",
		"-z",     "--untracked-files=all", "--ignore-submodules=none",
		NULL};

	all(words, status);
}

static void step_words(struct words *words, const struct spec_git *spec, enum git_step step,
		       const char *url)
{
	switch (step) {
	case GIT_STEP_REMOTE:
		step_remote(words, spec);
		break;
	case GIT_STEP_NETWORK:
		step_network(words, spec, url);
		break;
	case GIT_STEP_MERGE:
		step_merge(words, spec);
		break;
	case GIT_STEP_SWITCH:
		step_switch(words, spec);
		break;
	case GIT_STEP_ADD:
		step_add(words, spec);
		break;
	case GIT_STEP_COMMIT:
		step_commit(words, spec);
		break;
	case GIT_STEP_STATUS:
		step_status(words);
		break;
	case GIT_STEP_LOG:
		step_log(words, spec);
		break;
	case GIT_STEP_COUNTS:
	case GIT_STEP_PATCH:
		step_diff(words, spec, step == GIT_STEP_COUNTS);
		break;
	case GIT_STEP_END:
		break;
	}
}

int git_words(const struct spec_git *spec, enum git_step step, const char *url,
	      struct spec_command *ret_spec)
{
	struct words words = {.spec = ret_spec};
	bool in_tree = step != GIT_STEP_NETWORK || spec->act != GIT_ACT_CLONE;

	*ret_spec = SPEC_COMMAND_NULL;
	ret_spec->max_output = LIST_BYTES;
	ret_spec->timeout_ms = spec->timeout_ms;
	ret_spec->cwd = strdup(in_tree ? spec->path : "/session");
	if (!ret_spec->cwd)
		words.error = -ENOMEM;
	all(&words, begin);
	for (size_t i = 0; variables[i]; i++)
		variable(&words, variables[i]);
	step_words(&words, spec, step, url);
	return words.error;
}
