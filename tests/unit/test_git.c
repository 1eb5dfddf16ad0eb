/*
 * Bodies for git, the words that they become, and what git says.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/git/parse.h"
#include "supervisor/api/git/words.h"
#include "supervisor/api/session/spec_git.h"
#include "tests/lib/test.h"

static void test_ref_as_git_takes_it(void **state)
{
	static const char *const good[] = {"main", "a/b", "feature/x-1_2.3", "a@b", "ä"};
	static const char *const bad[] = {"",     "-x",    "/a",   "a/",     "a//b",     ".a",
					  "a/.b", "a.",    "a..b", "a.lock", "a.lock/b", "a b",
					  "a~",   "a^",    "a:b",  "a?",     "a*",       "a[",
					  "a\\",  "a\x7f", "@",    "a@{1}",  "a\nb",     "\xff"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (!git_ref_valid(good[i], strlen(good[i])))
			fail_msg("%s", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (git_ref_valid(bad[i], strlen(bad[i])))
			fail_msg("%s", bad[i]);
	assert_true(git_revision_valid("HEAD~1^2", 8));
	assert_false(git_revision_valid("~1", 2));
	assert_false(git_revision_valid("a~1..b", 6));
}

static void test_url_is_http_and_gives_its_host(void **state)
{
	static const char *const bad[] = {"",
					  "https://",
					  "ssh://h/x",
					  "git@h:x",
					  "file:///x",
					  "/x",
					  "ext::id",
					  "https://u@h/x",
					  "https://h/x?y",
					  "https://h/x#y",
					  "https://h/x/",
					  "https://h/x\n",
					  "-x"};
	char host[GIT_URL_MAX_BYTES + 1];
	bool is_tls;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (!git_url_check(bad[i], strlen(bad[i]), host, &is_tls))
			fail_msg("%s", bad[i]);
	assert_null(git_url_check("https://h.example:443/x", 23, host, &is_tls));
	assert_string_equal(host, "h.example");
	assert_true(is_tls);
	assert_null(git_url_check("http://h.example:8080/x", 23, host, &is_tls));
	assert_string_equal(host, "h.example:8080");
	assert_false(is_tls);
}

static struct spec_git parse(enum git_act act, const char *text)
{
	const struct spec_options options = {0};
	struct spec_git spec = SPEC_GIT_NULL;
	json_t *errors = NULL;

	assert_int_equal(spec_parse_git(text, strlen(text), &options, act, &spec, &errors), 0);
	return spec;
}

static void assert_refused(enum git_act act, const char *text)
{
	const struct spec_options options = {0};
	struct spec_git spec = SPEC_GIT_NULL;
	json_t *errors = NULL;
	char *shown;

	if (spec_parse_git(text, strlen(text), &options, act, &spec, &errors) != SPEC_E_INVALID)
		fail_msg("%s", text);
	shown = json_dumps(errors, 0);
	assert_null(strstr(shown, "SECRET"));
	free(shown);
	json_decref(errors);
}

#define CREDENTIALS "\"credentials\":{\"username\":\"u\",\"password\":\"SECRET\""

static void test_credentials_have_a_host(void **state)
{
	struct spec_git spec = parse(
		GIT_ACT_CLONE, "{\"path\":\"w\",\"url\":\"https://H.example/x\"," CREDENTIALS "}}");

	(void)state;
	assert_string_equal(spec.host, "h.example");
	assert_string_equal(spec.path, "/session/w");
	spec_git_done(&spec);
	assert_refused(GIT_ACT_PUSH, "{\"path\":\"w\",\"branch\":\"b\"," CREDENTIALS "}}");
	assert_refused(GIT_ACT_CLONE,
		       "{\"path\":\"w\",\"url\":\"http://h.example/x\"," CREDENTIALS "}}");
	assert_refused(GIT_ACT_CLONE, "{\"path\":\"w\",\"url\":\"https://h.example/x\"," CREDENTIALS
				      ",\"host\":\"g.example\"}}");
	assert_refused(GIT_ACT_CLONE, "{\"path\":\"w\",\"url\":\"https://h.example/x\"," CREDENTIALS
				      ",\"more\":\"SECRET\"}}");
	assert_refused(GIT_ACT_CLONE, "{\"path\":\"w\",\"url\":\"https://u:SECRET@h.example/x\"}");
	spec = parse(GIT_ACT_PUSH,
		     "{\"path\":\"w\",\"branch\":\"b\"," CREDENTIALS ",\"host\":\"h.example\"}}");
	assert_string_equal(spec.remote, "origin");
	spec_git_done(&spec);
}

static bool has_word(const struct spec_command *command, const char *text)
{
	for (size_t i = 0; i < command->n_argv; i++)
		if (str_equal(command->argv[i], text))
			return true;
	return false;
}

static void test_words_have_no_credential(void **state)
{
	struct spec_git spec = parse(
		GIT_ACT_PUSH,
		"{\"path\":\"w\",\"branch\":\"b\",\"url\":\"https://h.example/x\"," CREDENTIALS
		"}}");
	struct spec_command command;

	(void)state;
	for (const enum git_step *step = git_steps(&spec); *step != GIT_STEP_END; step++) {
		assert_int_equal(git_words(&spec, *step, spec.url, &command), 0);
		for (size_t i = 0; i < command.n_argv; i++)
			assert_null(strstr(command.argv[i], "SECRET"));
		for (size_t i = 0; i < command.n_env; i++)
			assert_null(strstr(command.env[i], "SECRET"));
		assert_null(command.stdin_text);
		assert_int_equal(command.program, WIRE_PROGRAM_GIT);
		assert_true(has_word(&command, "refs/heads/b:refs/heads/b"));
		assert_true(
			has_word(&command, "url.fd::3/sandbox.pushInsteadOf=https://h.example/x"));
		spec_command_done(&command);
	}
	spec_git_done(&spec);
}

#define BUF_OF(text) ((struct buf){.data = (uint8_t *)(uintptr_t)(text), .size = sizeof(text) - 1})

static void test_status_is_read(void **state)
{
	static const char text[] =
		"# branch.oid 1234\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +1 -2\0"
		"1 .M N... 100644 100644 100644 aa aa a b.txt\0"
		"2 R. N... 100644 100644 100644 aa aa R100 to\0from\0"
		"u UU N... 100644 100644 100644 100644 aa aa aa un\0? new\xff\0? cut";
	struct buf buf = BUF_OF(text);
	json_t *doc = git_status_json(&buf, true);
	json_t *files = json_object_get(doc, "files");

	(void)state;
	assert_string_equal(json_string_value(json_object_get(doc, "head")), "1234");
	assert_int_equal(json_integer_value(json_object_get(doc, "ahead")), 1);
	assert_int_equal(json_integer_value(json_object_get(doc, "behind")), 2);
	assert_int_equal(json_array_size(files), 4);
	assert_string_equal(json_string_value(json_object_get(json_array_get(files, 0), "path")),
			    "a b.txt");
	assert_string_equal(json_string_value(json_object_get(json_array_get(files, 1), "from")),
			    "from");
	assert_string_equal(json_string_value(json_object_get(json_array_get(files, 2), "index")),
			    "unmerged");
	assert_non_null(json_object_get(json_array_get(files, 3), "path_base64"));
	json_decref(doc);
}

/* Whatever it is, it is read to its end. */
static void test_hostile_text_is_survived(void **state)
{
	static const char *const texts[] = {"",
					    "#",
					    "1",
					    "2 ",
					    "u",
					    "?",
					    "2 R. a b c d e f g h",
					    "1 .M N... 1 2 3",
					    "\x1f\x1f\x1f",
					    "# branch.ab +",
					    "# branch.ab x y"};
	struct buf empty = BUF_NULL(0);
	char *url = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct buf buf = {.data = (uint8_t *)(uintptr_t)texts[i],
				  .size = strlen(texts[i]) + 1};

		json_decref(git_status_json(&buf, false));
		json_decref(git_log_json(&buf, 10, false));
		json_decref(git_counts_json(&buf));
		assert_null(git_push_result(&buf));
		assert_int_equal(git_remote_url(&buf, true, &url), -ENOENT);
	}
	json_decref(git_status_json(&empty, false));
	json_decref(git_log_json(&empty, 10, false));
	json_decref(git_counts_json(&empty));
	assert_null(git_push_result(&empty));
}

static void test_log_says_whether_there_is_more(void **state)
{
#define COMMIT(n)                                                                                  \
	n "\x1f"                                                                                   \
	  "aa bb\x1f"                                                                              \
	  "A\x1f"                                                                                  \
	  "a@b\x1f"                                                                                \
	  "d\x1f"                                                                                  \
	  "C\x1f"                                                                                  \
	  "c@d\x1f"                                                                                \
	  "e\x1f"                                                                                  \
	  "s\x1f"                                                                                  \
	  "b\x1fody\n\x1f"
	static const char text[] = COMMIT("1") "\0" COMMIT("2") "\0" COMMIT("3");
	struct buf buf = BUF_OF(text);
	json_t *doc = git_log_json(&buf, 2, false);
	json_t *first = json_array_get(json_object_get(doc, "commits"), 0);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(doc, "commits")), 2);
	assert_true(json_is_true(json_object_get(doc, "truncated")));
	assert_int_equal(json_array_size(json_object_get(first, "parents")), 2);
	assert_string_equal(json_string_value(json_object_get(first, "body")), "b\x1fody\n");
	json_decref(doc);
	doc = git_log_json(&buf, 3, false);
	assert_int_equal(json_array_size(json_object_get(doc, "commits")), 3);
	assert_false(json_is_true(json_object_get(doc, "truncated")));
	json_decref(doc);
}

static void test_remote_url_of_fetch_and_push(void **state)
{
	static const char text[] =
		"remote.o.url\nhttps://a/x\0remote.o.url\nhttps://b/x\0remote.o.pushurl\nhttps://c/x\0";
	static const char two[] = "remote.o.url\nhttps://a/x\0remote.o.url\nhttps://b/x\0";
	struct buf buf = BUF_OF(text);
	char *url = NULL;

	(void)state;
	assert_int_equal(git_remote_url(&buf, false, &url), 0);
	assert_string_equal(url, "https://a/x");
	free(url);
	assert_int_equal(git_remote_url(&buf, true, &url), 0);
	assert_string_equal(url, "https://c/x");
	free(url);
	buf = BUF_OF(two);
	assert_int_equal(git_remote_url(&buf, true, &url), -E2BIG);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_ref_as_git_takes_it),
	cmocka_unit_test(test_url_is_http_and_gives_its_host),
	cmocka_unit_test(test_credentials_have_a_host),
	cmocka_unit_test(test_words_have_no_credential),
	cmocka_unit_test(test_status_is_read),
	cmocka_unit_test(test_hostile_text_is_survived),
	cmocka_unit_test(test_log_says_whether_there_is_more),
	cmocka_unit_test(test_remote_url_of_fetch_and_push),
};
TEST_MAIN(tests)
