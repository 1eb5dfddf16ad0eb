#include "supervisor/api/git_reply.h"

#include <string.h>

#include "base/str.h"

#include "supervisor/api/git/parse.h"
#include "supervisor/api/http/reply.h"

#define SHOWN_BYTES ((size_t)4096)

static bool is_cut(const struct git_said *said)
{
	return (said->end.flags & WIRE_EXIT_TRUNCATED) != 0;
}

static json_t *diff_json(const struct git_said *said)
{
	json_t *doc = json_pack("{s:b}", "truncated", is_cut(said));
	size_t size = said->output.text[0].size;

	if (!doc)
		return NULL;
	if (is_cut(said))
		size -= str_utf8_partial((const char *)said->output.text[0].data, size);
	git_text_set(doc, "diff", size ? (const char *)said->output.text[0].data : "", size);
	(void)json_object_set(doc, "files", said->counts);
	return doc;
}

static json_t *commit_json(const struct git_said *said)
{
	json_t *log = git_log_json(&said->output.text[0], 1, is_cut(said));
	json_t *commit = json_incref(json_array_get(json_object_get(log, "commits"), 0));

	json_decref(log);
	return commit;
}

void reply_git(struct request *request, const struct spec_git *spec, const struct git_said *said)
{
	json_t *doc = NULL;

	switch (spec->act) {
	case GIT_ACT_PUSH:
		doc = json_pack("{s:s, s:s?}", "branch", spec->branch, "result",
				git_push_result(&said->output.text[0]));
		break;
	case GIT_ACT_COMMIT:
		doc = commit_json(said);
		break;
	case GIT_ACT_DIFF:
		doc = diff_json(said);
		break;
	case GIT_ACT_LOG:
		doc = git_log_json(&said->output.text[0],
				   spec->limit > 0 ? spec->limit : GIT_LOG_DEFAULT, is_cut(said));
		break;
	case GIT_ACT_CLONE:
	case GIT_ACT_FETCH:
	case GIT_ACT_PULL:
	case GIT_ACT_BRANCH:
	case GIT_ACT_CHECKOUT:
	case GIT_ACT_ADD:
	case GIT_ACT_STATUS:
	case GIT_ACT_MAX_:
		doc = git_status_json(&said->output.text[0], is_cut(said));
		break;
	}
	reply_json(request, MHD_HTTP_OK, doc);
}

/* sandbox-git knows why. */
static bool of_exit(int32_t code, enum runtime_error *ret_error)
{
	static const enum runtime_error rows[] = {
		[0] = RUNTIME_GIT_FAILED, /* GIT_EXIT_REQUEST */
		[GIT_EXIT_AUTH - GIT_EXIT_REQUEST] = RUNTIME_GIT_AUTH,
		[GIT_EXIT_NOT_FOUND - GIT_EXIT_REQUEST] = RUNTIME_GIT_NOT_FOUND,
		[GIT_EXIT_CONNECT - GIT_EXIT_REQUEST] = RUNTIME_GIT_UNREACHABLE,
		[GIT_EXIT_TLS - GIT_EXIT_REQUEST] = RUNTIME_GIT_UNREACHABLE,
		[GIT_EXIT_REDIRECT - GIT_EXIT_REQUEST] = RUNTIME_DENIED,
		[GIT_EXIT_SERVER - GIT_EXIT_REQUEST] = RUNTIME_GIT_UNREACHABLE,
		[GIT_EXIT_PROTOCOL - GIT_EXIT_REQUEST] = RUNTIME_GIT_FAILED,
		[GIT_EXIT_REF - GIT_EXIT_REQUEST] = RUNTIME_DENIED,
	};
	_Static_assert(ARRAY_SIZE(rows) == GIT_EXIT_MAX_ - GIT_EXIT_REQUEST, "one row per code");

	if (code < GIT_EXIT_REQUEST || code >= GIT_EXIT_MAX_)
		return false;
	*ret_error = rows[code - GIT_EXIT_REQUEST];
	return true;
}

/* git's own words, of LC_ALL=C; what none of them says is git_failed. */
static enum runtime_error of_text(const char *text)
{
	static const struct {
		const char *text;
		enum runtime_error error;
	} rows[] = {
		{"not a git repository",         RUNTIME_GIT_NO_REPOSITORY},
		{"already exists",               RUNTIME_EXISTS           },
		{"nothing to commit",            RUNTIME_GIT_NOTHING      },
		{"nothing added to commit",      RUNTIME_GIT_NOTHING      },
		{"no changes added to commit",   RUNTIME_GIT_NOTHING      },
		{"! [rejected]",                 RUNTIME_GIT_REJECTED     },
		{"\t[rejected]",                 RUNTIME_GIT_REJECTED     },
		{"\t[remote rejected]",          RUNTIME_GIT_REJECTED     },
		{"would be overwritten",         RUNTIME_GIT_CONFLICT     },
		{"Not possible to fast-forward", RUNTIME_GIT_CONFLICT     },
		{"Diverging branches",           RUNTIME_GIT_CONFLICT     },
		{"unmerged",                     RUNTIME_GIT_CONFLICT     },
		{"did not match any file",       RUNTIME_GIT_NOT_FOUND    },
		{"pathspec",                     RUNTIME_GIT_NOT_FOUND    },
		{"not found in upstream",        RUNTIME_GIT_NOT_FOUND    },
		{"couldn't find remote ref",     RUNTIME_GIT_NOT_FOUND    },
		{"does not match any",           RUNTIME_GIT_NOT_FOUND    },
		{"no upstream configured",       RUNTIME_GIT_NOT_FOUND    },
		{"not something we can merge",   RUNTIME_GIT_NOT_FOUND    },
		{"invalid reference",            RUNTIME_GIT_NOT_FOUND    },
		{"unknown revision",             RUNTIME_GIT_NOT_FOUND    },
		{"bad revision",                 RUNTIME_GIT_NOT_FOUND    },
		{"not a commit",                 RUNTIME_GIT_NOT_FOUND    },
		{"No space left on device",      RUNTIME_NO_SPACE         },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (strstr(text, rows[i].text))
			return rows[i].error;
	return RUNTIME_GIT_FAILED;
}

/* The end of what was said, whole characters and lines where that can be. */
static void set_shown(json_t *doc, const char *name, const char *text)
{
	size_t length = strlen(text);
	const char *at = text;

	if (length > SHOWN_BYTES) {
		at = text + length - SHOWN_BYTES;
		at = strchr(at, '\n') ? strchr(at, '\n') + 1 : at;
	}
	git_text_set(doc, name, at, strlen(at));
}

static const char *detail_of(const struct git_said *said, enum runtime_error error)
{
	if (said->no_rule)
		return "no rule of the sandbox permits the git server's host";
	if (error == RUNTIME_GIT_AUTH && said->is_anonymous)
		return "the git server wants credentials, and none were given";
	return runtime_error_row(error)->detail;
}

void reply_git_failed(struct request *request, enum git_step step, struct git_said *said)
{
	const char *out_text = buf_text(&said->output.text[0]);
	const char *err_text = buf_text(&said->output.text[1]);
	const struct runtime_error_row *row;
	enum runtime_error error;
	bool retryable;
	json_t *doc;

	if (said->end.flags & WIRE_EXIT_TIMED_OUT)
		error = RUNTIME_TIMEOUT;
	else if (!out_text || !err_text)
		error = RUNTIME_BUSY;
	else if (step == GIT_STEP_REMOTE)
		error = strstr(err_text, "git repository") ? RUNTIME_GIT_NO_REPOSITORY
							   : RUNTIME_GIT_NOT_FOUND;
	else if (step != GIT_STEP_NETWORK || !of_exit(said->end.code, &error))
		error = of_text(err_text);
	if (error == RUNTIME_GIT_FAILED && out_text)
		error = of_text(out_text);
	row = runtime_error_row(error);
	retryable = row->retryable && !said->no_rule;
	doc = json_pack("{s:s, s:s, s:b, s:i}", "detail", detail_of(said, error), "code", row->code,
			"retryable", retryable, "exit_code", (int)said->end.code);
	if (doc && err_text)
		set_shown(doc, "stderr", err_text);
	if (retryable)
		request_add_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "1");
	reply_json(request, row->status, doc);
}
