#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "supervisor/config/name_servers.h"
#include "tests/lib/test.h"

static void expect(const char *text, const char *const *addresses, uint32_t n)
{
	struct egress_config egress = {.n_name_servers = 99};

	name_servers_read(text, strlen(text), &egress);
	assert_int_equal(egress.n_name_servers, n);
	for (uint32_t i = 0; i < n; i++) {
		int family = strchr(addresses[i], ':') ? AF_INET6 : AF_INET;
		uint8_t bytes[16] = {0};

		assert_int_equal(inet_pton(family, addresses[i], bytes), 1);
		assert_int_equal(egress.name_server[i].family, family);
		assert_int_equal(egress.name_server[i].prefix, family == AF_INET ? 32 : 128);
		assert_memory_equal(egress.name_server[i].bytes, bytes, sizeof(bytes));
	}
}
#define EXPECT(text, ...)                                                                          \
	expect(text, (const char *const[]){__VA_ARGS__},                                           \
	       sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_name_servers_as_resolvers_read_them(void **state)
{
	(void)state;
	EXPECT("nameserver 10.0.0.2\n", "10.0.0.2");
	EXPECT("# x\nsearch a b\nnameserver\t 10.0.0.2 # one\nnameserver 2001:db8::1\noptions ndots:0",
	       "10.0.0.2", "2001:db8::1");
	EXPECT("nameserver fe80::1%eth0\r\nnameserver 127.0.0.53", "fe80::1", "127.0.0.53");
	EXPECT("nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4\n"
	       "nameserver 1.1.1.5\n",
	       "1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4");
}

static void test_name_servers_none_is_this_host(void **state)
{
	(void)state;
	EXPECT("", "127.0.0.1");
	EXPECT("nameserver", "127.0.0.1");
	EXPECT("nameserver ", "127.0.0.1");
	EXPECT("nameservers 1.1.1.1\n nameserver 1.1.1.1\n;nameserver 1.1.1.1\n", "127.0.0.1");
	EXPECT("nameserver 1.1.1.1.1\nnameserver 010.1.1.1\nnameserver example.com\n", "127.0.0.1");
	EXPECT("nameserver 1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111\n", "127.0.0.1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name_servers_as_resolvers_read_them),
		cmocka_unit_test(test_name_servers_none_is_this_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
