/*
 * What git says in a session, and what a caller says of git: the input's first byte chooses, the
 * rest is the text. Whatever comes, an answer is JSON that can be written, a list is within its
 * bound, and what is taken for a name or URL holds nothing that git would take for more.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

#include "supervisor/api/git/parse.h"
#include "supervisor/api/session/spec_git.h"
#include "tests/fuzz/fuzz.h"

#define LOG_MAX 3

enum what {
	WHAT_STATUS,
	WHAT_LOG,
	WHAT_COUNTS,
	WHAT_PUSH,
	WHAT_REMOTE,
	WHAT_URL,
	WHAT_REF,
	WHAT_BODY,
	WHAT_MAX_,
};

/* Takes the document. */
static void check_document(json_t *doc)
{
	char *text;

	ASSERT(doc);
	text = doc_format(doc, 0);
	ASSERT(text && str_utf8_valid(text, strlen(text)));
	free(text);
	json_decref(doc);
}

static void check_log(const struct buf *text, bool is_cut)
{
	json_t *doc = git_log_json(text, LOG_MAX, is_cut);

	ASSERT(json_array_size(json_object_get(doc, "commits")) <= LOG_MAX);
	check_document(doc);
}

static void check_remote(const struct buf *text, bool for_push)
{
	char host[GIT_URL_MAX_BYTES + 1];
	char *url = NULL;
	bool is_tls;

	if (git_remote_url(text, for_push, &url) < 0) {
		ASSERT(!url);
		return;
	}
	(void)git_url_check(url, strlen(url), host, &is_tls);
	free(url);
}

static void check_url(const char *text, size_t size)
{
	char host[GIT_URL_MAX_BYTES + 1];
	bool is_tls;

	if (git_url_check(text, size, host, &is_tls))
		return;
	ASSERT(size == strlen(text) && host[0] != '\0');
	ASSERT(strncasecmp(text, is_tls ? "https://" : "http://", is_tls ? 8 : 7) == 0);
	/* Nobody's name is in it, and it ends where its host ends. */
	text = strstr(text, "://") + 3;
	ASSERT(!memchr(text, '@', strcspn(text, "/")));
	ASSERT(!strpbrk(text, "?#\n\r") && !strpbrk(host, "/@?#"));
}

static void check_ref(const char *text, size_t size)
{
	if (git_ref_valid(text, size))
		ASSERT(size > 0 && text[0] != '-' && !memchr(text, ':', size) &&
		       !memchr(text, '\0', size) && !memchr(text, '\n', size) &&
		       git_revision_valid(text, size));
	if (git_revision_valid(text, size))
		ASSERT(size > 0 && text[0] != '-' && !memchr(text, ':', size));
}

static void check_body(const char *text, size_t size, enum git_act act)
{
	const struct spec_options options = {0};
	struct spec_git spec = SPEC_GIT_NULL;
	json_t *errors = NULL;

	if (spec_parse_git(text, size, &options, act, &spec, &errors) == 0)
		ASSERT(spec.path && (!spec.password || (spec.host && spec.username)));
	json_decref(errors);
	spec_git_done(&spec);
}

static void run(uint8_t what, const struct buf *text, const char *copy, size_t size)
{
	bool flag = (what & 0x80) != 0;

	switch ((what & 0x0f) % WHAT_MAX_) {
	case WHAT_STATUS:
		check_document(git_status_json(text, flag));
		break;
	case WHAT_LOG:
		check_log(text, flag);
		break;
	case WHAT_COUNTS:
		check_document(git_counts_json(text));
		break;
	case WHAT_PUSH:
		(void)git_push_result(text);
		break;
	case WHAT_REMOTE:
		check_remote(text, flag);
		break;
	case WHAT_URL:
		check_url(copy, size);
		break;
	case WHAT_REF:
		check_ref(copy, size);
		break;
	default:
		check_body(copy, size, (enum git_act)((what >> 4) % GIT_ACT_STATUS));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf text = BUF_NULL(size);
	char *copy;

	if (size < 1)
		return 0;
	copy = malloc(size);
	ASSERT(copy && buf_append(&text, data + 1, size - 1) >= 0);
	memcpy(copy, data + 1, size - 1);
	copy[size - 1] = '\0';
	run(data[0], &text, copy, size - 1);
	buf_done(&text);
	free(copy);
	return 0;
}
