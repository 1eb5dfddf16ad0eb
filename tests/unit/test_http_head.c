#include <stdio.h>
#include <string.h>

#include "supervisor/egress/http_head.h"
#include "tests/lib/test.h"

static struct http_head parse(const char *text)
{
	struct http_head head;

	http_head_parse(text, strlen(text), &head);
	return head;
}

static void test_http_head_parse_good(void **state)
{
	struct http_head head =
		parse("POST /a%20b/c?q=../d HTTP/1.1\r\nhost: Web.Example.com.:8080\r\n"
		      "Content-Length: 12\r\n\r\nbody");

	(void)state;
	assert_int_equal(head.verdict, HTTP_OK);
	assert_string_equal(head.host, "web.example.com");
	assert_int_equal(head.port, 8080);
	assert_string_equal(head.path, "/a b/c");
	assert_int_equal(head.body_bytes, 12);
	assert_int_equal(head.body, HTTP_BODY_LENGTH);
	head = parse(
		"GET / HTTP/1.1\r\nHost: [2606:4700::1]:80\r\nTransfer-Encoding: Chunked\r\n\r\n");
	assert_int_equal(head.verdict, HTTP_OK);
	assert_string_equal(head.host, "2606:4700::1");
	assert_int_equal(head.body, HTTP_BODY_CHUNKED);
	head = parse("GET / HTTP/1.1\r\nHost: a.b\r\nX: y\r\nUpgrade: h2c\r\n\r\n");
	assert_int_equal(head.upgrade, HTTP_UPGRADE_OTHER);
	assert_int_equal(head.upgrade_at, 33);
	assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a").verdict, HTTP_MORE);
}

static void test_http_head_parse_paths_with_two_readings_are_empty(void **state)
{
	static const char *const bad[] = {
		"/a/../b",
		"/..",
		"/.",
		"/a/./b",
		"/a//b",
		"//a",
		"/a%2fb",
		"/%2e",
		"/%2E%2e",
		"/a%5cb",
		"/a\\b",
		"/a;b",
		"/a%3bb",
		"/a%00",
		"/a%",
		"/a%2",
		"/a%zz",
		"/%25",
		"/a%0ab",
		"/a/b/..",
		"/a#b",
		"/..%2f",
		"/a/%c0%ae%c0%ae/b",
		"/%e0%80%af",
		"/%ff",
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct http_head head;

		(void)snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: a.b\r\n\r\n", bad[i]);
		head = parse(text);
		assert_int_equal(head.verdict, HTTP_OK);
		if (head.path[0] != '\0')
			fail_msg("%s reads as %s", bad[i], head.path);
	}
}

static void test_http_head_parse_what_leads_elsewhere(void **state)
{
	static const struct {
		const char *header;
		uint32_t verdict;
		uint32_t indirect;
	} rows[] = {
		{"X-Amz-Copy-Source",       HTTP_OK,  1},
                {"x-goog-copy-source",      HTTP_OK,  1},
		{"x-ms-copy-source",        HTTP_OK,  1},
                {"x-ms-rename-source",      HTTP_OK,  1},
		{"X-Forwarded-Host",        HTTP_OK,  1},
                {"X_Forwarded_Host",        HTTP_BAD, 0},
		{"Transfer_Encoding",       HTTP_BAD, 0},
                {"Content_Length",          HTTP_BAD, 0},
		{"X_Request_Id",            HTTP_OK,  0},
                {"X-Amz-Copy-Source-Range", HTTP_OK,  0},
		{"Copy-Sources",            HTTP_OK,  0},
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_head head;

		(void)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a.b\r\n%s: 1\r\n\r\n",
			       rows[i].header);
		head = parse(text);
		if (head.verdict != rows[i].verdict || head.indirect != rows[i].indirect)
			fail_msg("%s: %u %u", rows[i].header, head.verdict, head.indirect);
	}
}

static void test_http_head_parse_refuses(void **state)
{
	static const char *const bad[] = {
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nhost: a.b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nContent-Length: +1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 1,1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 01\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: \013chunked\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nUpgrade: a\r\nUpgrade: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\n X: folded\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nX : y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\nX\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\rX: y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\nX: y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b\r\n\nX: y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b@c.d\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b:\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.b:0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: ::1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: 127.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: \r\n\r\n",
		"GET  / HTTP/1.1\r\nHost: a.b\r\n\r\n",
		"GET / HTTP/1.1 \r\nHost: a.b\r\n\r\n",
		"GET /\tx HTTP/1.1\r\nHost: a.b\r\n\r\n",
		"GET / http/1.1\r\nHost: a.b\r\n\r\n",
		"GET / HTTP/2.0\r\nHost: a.b\r\n\r\n",
		"GET /\r\n\r\n",
		"GET http://c.d/ HTTP/1.1\r\nHost: a.b\r\n\r\n",
		"GET http://a.b:81/ HTTP/1.1\r\nHost: a.b\r\n\r\n",
		"GET http://x@a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n",
		"GET https://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n",
		"GET a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n",
		"CONNECT a.b:443 HTTP/1.1\r\nHost: a.b\r\n\r\n",
		"\r\nGET / HTTP/1.1\r\nHost: a.b\r\n\r\n",
		"\x16\x03\x01",
		"GET / HTTP/1.1\n\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (parse(bad[i]).verdict != HTTP_BAD)
			fail_msg("%s", bad[i]);
}

static struct http_chunk chunk(const char *text, int is_first)
{
	struct http_chunk found;

	http_chunk_parse(text, strlen(text), is_first, &found);
	return found;
}

static void test_http_chunk_parse(void **state)
{
	static const char *const bad[] = {
		"g\r\n",
		"\r\n",
		"1;x=y\r\n",
		"1 \r\n",
		"1\n",
		"+1\r\n",
		"0x1\r\n",
		"00\r\n\r\n",
		"0\r\nX: y\r\n\r\n",
		"1111111111111111\r\n",
	};
	struct http_chunk found = chunk("1aF\r\nabc", 1);

	(void)state;
	assert_int_equal(found.verdict, HTTP_OK);
	assert_int_equal(found.bytes, 0x1af);
	assert_int_equal(found.head_bytes, 5);
	found = chunk("\r\n0\r\n\r\nGET", 0);
	assert_int_equal(found.verdict, HTTP_OK);
	assert_true(found.is_last);
	assert_int_equal(found.head_bytes, 7);
	assert_int_equal(chunk("\r", 0).verdict, HTTP_MORE);
	assert_int_equal(chunk("\r\n1", 0).verdict, HTTP_MORE);
	assert_int_equal(chunk("0\r\n", 1).verdict, HTTP_MORE);
	assert_int_equal(chunk("", 1).verdict, HTTP_MORE);
	assert_int_equal(chunk("ab1\r\n", 0).verdict, HTTP_BAD); /* no end of the chunk before */
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (chunk(bad[i], 1).verdict != HTTP_BAD)
			fail_msg("%s", bad[i]);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_http_head_parse_good),
		cmocka_unit_test(test_http_head_parse_paths_with_two_readings_are_empty),
		cmocka_unit_test(test_http_head_parse_what_leads_elsewhere),
		cmocka_unit_test(test_http_head_parse_refuses),
		cmocka_unit_test(test_http_chunk_parse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
