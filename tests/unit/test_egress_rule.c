#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/egress_rule.h"

#include "tests/lib/test.h"

static struct egress_rule rule_of(const char *text, uint32_t flags)
{
	struct egress_rule rule;

	assert_int_equal(egress_rule_parse(text, strlen(text), &rule), 0);
	assert_true(egress_rule_valid(&rule));
	rule.flags = flags;
	return rule;
}

static void test_egress_rule_parse_forms(void **state)
{
	struct egress_rule rule;

	(void)state;
	rule = rule_of("API.example.com.", 0);
	assert_int_equal(rule.kind, EGRESS_RULE_NAME);
	assert_string_equal(rule.name, "api.example.com");
	assert_int_equal(rule.n_ports, 2);
	assert_int_equal(rule.port[0].first, 80);
	assert_int_equal(rule.port[1].last, 443);
	rule = rule_of("*.kafka.internal:9092,9093,10000-10010", 0);
	assert_int_equal(rule.kind, EGRESS_RULE_SUFFIX);
	assert_string_equal(rule.name, "kafka.internal");
	assert_int_equal(rule.n_ports, 3);
	assert_int_equal(rule.port[2].first, 10000);
	assert_int_equal(rule.port[2].last, 10010);
	rule = rule_of("10.0.0.0/8:5432", 0);
	assert_int_equal(rule.kind, EGRESS_RULE_NETWORK);
	assert_int_equal(rule.network.prefix, 8);
	assert_int_equal(rule.n_ports, 1);
	rule = rule_of("192.0.2.7", 0);
	assert_int_equal(rule.network.prefix, 32);
	rule = rule_of("[2606:4700::1111]:853", 0);
	assert_int_equal(rule.network.family, AF_INET6);
	assert_int_equal(rule.network.prefix, 128);
	rule = rule_of("[2606:4700::]/32", 0);
	assert_int_equal(rule.network.prefix, 32);
}

static void test_egress_rule_parse_refuses(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		":80",
		"a:",
		"a:0",
		"a:65536",
		"a:080",
		"a:80,",
		"a:,80",
		"a:80-",
		"a:-80",
		"a:90-80",
		"a:80:81",
		"a:1,2,3,4,5,6,7,8,9",
		"a :80",
		"*",
		"*.",
		"*.com",
		"**.a.b",
		"a.*.b",
		"*a.b.c",
		"*.1.2.3.4",
		"http://a",
		"a/24",
		"a.b/path:80",
		"1.2.3",
		"01.2.3.4",
		"1.2.3.4.",
		"0x1.2.3.4",
		"16909060",
		"1.2.3.4/0",
		"1.2.3.4/33",
		"1.2.3.4/08",
		"1.2.3.4/",
		"1.2.3.4/24",
		"::1",
		"2606:4700::1111",
		"[2606:4700::1111",
		"[2606:4700:0::1111]",
		"[2606:4700::ABCD]",
		"[1.2.3.4]",
		"[::1%lo]",
		"[2606:4700::1]/32",
		"[]",
	};
	struct egress_rule rule = {.n_ports = 77};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (egress_rule_parse(bad[i], strlen(bad[i]), &rule) != -EINVAL)
			fail_msg("%s is a rule", bad[i]);
	assert_int_equal(egress_rule_parse("a.b\0.c", 6, &rule), -EINVAL);
	assert_int_equal(egress_rule_parse("1.1.1.1\0", 8, &rule), -EINVAL);
	assert_int_equal(egress_rule_parse("a:80\0", 5, &rule), -EINVAL);
	assert_int_equal(rule.n_ports, 77);
}

static void test_egress_rule_match_names(void **state)
{
	const struct egress_rule rules[] = {
		rule_of("api.example.com:443", 0),
		rule_of("*.example.com:8443", 0),
		rule_of("api.example.com:8000-8010", 0),
	};
	static const struct {
		const char *name;
		uint32_t port;
		uint32_t expected;
		uint32_t reason;
	} rows[] = {
		{"api.example.com",          443,  0,              0                 },
		{"api.example.com",          8443, 1,              0                 },
		{"api.example.com",          8005, 2,              0                 },
		{"api.example.com",          80,   EGRESS_NO_RULE, EGRESS_REASON_PORT},
		{"a.b.example.com",          8443, 1,              0                 },
		{"example.com",              8443, EGRESS_NO_RULE, EGRESS_REASON_RULE},
		{"evilexample.com",          8443, EGRESS_NO_RULE, EGRESS_REASON_RULE},
		{"api.example.com.evil.com", 443,  EGRESS_NO_RULE, EGRESS_REASON_RULE},
		{"api.example.com",          0,    0,              0                 },
		{"x.example.com",            0,    1,              0                 },
		{"x.org",                    0,    EGRESS_NO_RULE, EGRESS_REASON_RULE},
	};
	struct egress_address none = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint32_t reason = 0;
		uint32_t found = egress_rule_match(rules, ARRAY_SIZE(rules), rows[i].name, &none,
						   rows[i].port, &reason);

		assert_int_equal(found, rows[i].expected);
		if (found == EGRESS_NO_RULE)
			assert_int_equal(reason, rows[i].reason);
	}
}

static void test_egress_rule_match_addresses(void **state)
{
	const struct egress_rule rules[] = {
		rule_of("1.2.3.4:443", 0),
		rule_of("10.32.0.0/11:5432", 0),
		rule_of("[2606:4700::]/33:443", 0),
		rule_of("a.b:443", 0),
	};
	static const struct {
		const char *text;
		uint32_t port;
		uint32_t expected;
	} rows[] = {
		{"1.2.3.4",          443,  0             },
		{"1.2.3.5",          443,  EGRESS_NO_RULE},
		{"1.2.3.4",          80,   EGRESS_NO_RULE},
		{"10.32.0.0",        5432, 1             },
		{"10.63.255.255",    5432, 1             },
		{"10.64.0.0",        5432, EGRESS_NO_RULE},
		{"2606:4700::1",     443,  2             },
		{"2606:4700:8000::", 443,  EGRESS_NO_RULE},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct egress_address address;
		uint32_t reason;

		assert_int_equal(egress_address_parse(rows[i].text, strlen(rows[i].text), &address),
				 0);
		assert_int_equal(egress_rule_match(rules, ARRAY_SIZE(rules), "", &address,
						   rows[i].port, &reason),
				 rows[i].expected);
	}
}

/* A caller that allows a production host by name, or all around it, does not reach it. */
static void test_egress_rule_match_production_comes_first(void **state)
{
	const struct egress_rule rules[] = {
		rule_of("db.prod.example.com:5432", 0),
		rule_of("*.example.com:5432", 0),
		rule_of("8.0.0.0/8:5432", 0),
		rule_of("db.prod.example.com:1-65535", EGRESS_PRODUCTION),
		rule_of("8.8.0.0/16:1-65535", EGRESS_PRODUCTION),
	};
	struct egress_address address;
	uint32_t reason;

	(void)state;
	assert_int_equal(egress_address_parse("8.8.1.1", 7, &address), 0);
	assert_int_equal(
		egress_rule_match(rules, 5, "db.prod.example.com", &address, 5432, &reason), 3);
	assert_int_equal(egress_rule_match(rules, 5, "x.example.com", &address, 5432, &reason), 1);
	assert_int_equal(egress_rule_match(rules, 5, "", &address, 5432, &reason), 4);
	assert_int_equal(egress_rule_production(rules, 5, &address, 80), 4);
	assert_int_equal(egress_rule_production(rules, 4, &address, 80), EGRESS_NO_RULE);
}

static void test_egress_rule_match_nothing_allows_nothing(void **state)
{
	struct egress_address address = {.family = AF_INET};
	uint32_t reason;

	(void)state;
	assert_int_equal(egress_rule_match(NULL, 0, "a.b", &address, 443, &reason), EGRESS_NO_RULE);
	assert_int_equal(egress_rule_match(NULL, 0, "", &address, 443, &reason), EGRESS_NO_RULE);
}

static void test_egress_rule_valid_refuses(void **state)
{
	const struct egress_rule good = rule_of("a.b:443", 0);
	struct egress_rule rule;

	(void)state;
	rule = good;
	rule.n_ports = 0;
	assert_false(egress_rule_valid(&rule));
	rule = good;
	rule.n_ports = EGRESS_PORTS_MAX + 1;
	assert_false(egress_rule_valid(&rule));
	rule = good;
	rule.kind = EGRESS_RULE_KIND_MAX_;
	assert_false(egress_rule_valid(&rule));
	rule = good;
	rule.name[0] = 'A';
	assert_false(egress_rule_valid(&rule));
	rule = good;
	memset(rule.name, 'a', sizeof(rule.name));
	assert_false(egress_rule_valid(&rule));
	rule = good;
	rule.flags = EGRESS_RULE_FLAGS_ALL_ + 1;
	assert_false(egress_rule_valid(&rule));
	rule = good;
	memset(rule.label, 'a', sizeof(rule.label));
	assert_false(egress_rule_valid(&rule));
	rule = good;
	rule.reroute_port = 65536;
	assert_false(egress_rule_valid(&rule));
	rule = good;
	rule.reroute.family = 77;
	assert_false(egress_rule_valid(&rule));
	rule = rule_of("10.0.0.0/8", 0);
	rule.network.prefix = 129;
	assert_false(egress_rule_valid(&rule));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_egress_rule_parse_forms),
		cmocka_unit_test(test_egress_rule_parse_refuses),
		cmocka_unit_test(test_egress_rule_match_names),
		cmocka_unit_test(test_egress_rule_match_addresses),
		cmocka_unit_test(test_egress_rule_match_production_comes_first),
		cmocka_unit_test(test_egress_rule_match_nothing_allows_nothing),
		cmocka_unit_test(test_egress_rule_valid_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
