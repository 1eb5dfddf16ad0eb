#include <string.h>

#include "supervisor/egress/dns.h"
#include "tests/lib/test.h"

/* Header (one question, recursion desired) and the question behind it. */
#define HEAD                                                                                       \
	"\x12\x34\x01\0\0\1\0\0\0\0\0"                                                             \
	"\0"
#define NAME "\3api\7example\3com\0"

static struct dns_question parse(const char *packet, size_t size)
{
	struct dns_question question;

	dns_parse((const uint8_t *)packet, size, &question);
	return question;
}

#define PARSE(text) parse(text, sizeof(text) - 1)

static void test_dns_parse_kinds(void **state)
{
	struct dns_question question = PARSE(HEAD NAME "\0\1\0\1");

	(void)state;
	assert_int_equal(question.kind, DNS_KIND_ADDRESS);
	assert_string_equal(question.name, "api.example.com");
	assert_int_equal(question.bytes, 33);
	assert_int_equal(PARSE(HEAD NAME "\0\x1c\0\1").kind, DNS_KIND_NODATA); /* AAAA */
	assert_int_equal(PARSE(HEAD NAME "\0\x41\0\1").kind, DNS_KIND_NODATA); /* HTTPS */
	assert_int_equal(PARSE(HEAD NAME "\0\x40\0\1").kind, DNS_KIND_NODATA); /* SVCB */
	assert_int_equal(PARSE(HEAD NAME "\0\x10\0\1").kind, DNS_KIND_OTHER);  /* TXT */
	assert_int_equal(PARSE(HEAD NAME "\0\xff\0\1").kind, DNS_KIND_OTHER);  /* ANY */
	assert_int_equal(PARSE(HEAD NAME "\0\1\0\3").kind, DNS_KIND_OTHER);    /* CHAOS */
	assert_int_equal(PARSE(HEAD "\3API\7eXample\3COM\0\0\1\0\1").kind, DNS_KIND_ADDRESS);
}

static void test_dns_parse_names_that_are_no_host(void **state)
{
	(void)state;
	assert_int_equal(PARSE(HEAD "\0\0\1\0\1").kind, DNS_KIND_OTHER); /* the root */
	assert_int_equal(PARSE(HEAD "\4_tcp\3com\0\0\1\0\1").kind, DNS_KIND_OTHER);
	/* One label "api.example" is not two, and a NUL is no end. */
	assert_int_equal(PARSE(HEAD "\xb"
				    "api.example\3com\0\0\1\0\1")
				 .kind,
			 DNS_KIND_OTHER);
	assert_int_equal(PARSE(HEAD "\4evil\x8"
				    "\0api.com\0\0\1\0\1")
				 .kind,
			 DNS_KIND_OTHER);
	assert_string_equal(PARSE(HEAD "\4_tcp\3com\0\0\1\0\1").name, "");
}

static void test_dns_parse_refuses(void **state)
{
	char packet[DNS_PACKET_MAX + 1] = {0};

	(void)state;
	assert_int_equal(PARSE("\x12\x34\x01").kind, DNS_KIND_DROP);
	assert_int_equal(PARSE("\x12\x34\x81\0\0\1\0\0\0\0\0\0" NAME "\0\1\0\1").kind,
			 DNS_KIND_DROP); /* an answer */
	assert_int_equal(parse(packet, sizeof(packet)).kind, DNS_KIND_DROP);
	assert_int_equal(PARSE("\x12\x34\x01\0\0\2\0\0\0\0\0\0" NAME "\0\1\0\1").kind,
			 DNS_KIND_FORMAT); /* two questions */
	assert_int_equal(PARSE("\x12\x34\x01\0\0\1\0\1\0\0\0\0" NAME "\0\1\0\1").kind,
			 DNS_KIND_FORMAT);
	assert_int_equal(PARSE(HEAD "\xc0\x0c\0\1\0\1").kind, DNS_KIND_FORMAT); /* a pointer */
	assert_int_equal(PARSE(HEAD "\3api").kind, DNS_KIND_FORMAT);
	assert_int_equal(PARSE(HEAD "\x3f"
				    "api")
				 .kind,
			 DNS_KIND_FORMAT);
	assert_int_equal(PARSE(HEAD NAME "\0\1\0").kind, DNS_KIND_FORMAT);
	assert_int_equal(PARSE(HEAD NAME "\0\1\0\1more").kind, DNS_KIND_FORMAT);
	/* EDNS. */
	assert_int_equal(
		PARSE("\x12\x34\x01\0\0\1\0\0\0\0\0\1" NAME "\0\1\0\1\0\0\x29\x10\0\0\0\0\0\0\0")
			.kind,
		DNS_KIND_ADDRESS);
}

static void test_dns_reply_holds_question_and_address(void **state)
{
	static const char packet[] = HEAD NAME "\0\1\0\1";
	static const uint8_t address[4] = {198, 18, 7, 9};
	uint8_t reply[DNS_REPLY_MAX];
	size_t size = dns_reply((const uint8_t *)packet, sizeof(packet) - 1, 33, DNS_RCODE_NONE,
				address, reply);

	(void)state;
	assert_int_equal(size, 33 + 16);
	assert_memory_equal(reply, "\x12\x34\x81\x80\0\1\0\1\0\0\0\0", 12);
	assert_memory_equal(reply + 12, packet + 12, 21);
	assert_memory_equal(reply + 33, "\xc0\x0c\0\1\0\1\0\0\0\0\0\4\xc6\x12\7\x9", 16);
	size = dns_reply((const uint8_t *)packet, sizeof(packet) - 1, 33, DNS_RCODE_REFUSED, NULL,
			 reply);
	assert_int_equal(size, 33);
	assert_int_equal(reply[3], 0x85);
	/* What another process says about the packet is not believed. */
	assert_int_equal(dns_reply((const uint8_t *)packet, 33, 34, DNS_RCODE_NONE, NULL, reply),
			 0);
	assert_int_equal(dns_reply((const uint8_t *)packet, 33, 3, DNS_RCODE_NONE, NULL, reply), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dns_parse_kinds),
		cmocka_unit_test(test_dns_parse_names_that_are_no_host),
		cmocka_unit_test(test_dns_parse_refuses),
		cmocka_unit_test(test_dns_reply_holds_question_and_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
