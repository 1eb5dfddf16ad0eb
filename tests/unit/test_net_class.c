/* D7: every range, by its first and last address and its neighbours. */
#include <arpa/inet.h>
#include <string.h>

#include "base/egress_rule.h"
#include "base/net_class.h"

#include "tests/lib/test.h"

static struct egress_address address_of(const char *text)
{
	struct egress_address address = {.family = strchr(text, ':') ? AF_INET6 : AF_INET};

	assert_int_equal(inet_pton((int)address.family, text, address.bytes), 1);
	return address;
}

static void test_net_class_of_every_range(void **state)
{
	static const struct {
		const char *text;
		enum net_class expected;
	} rows[] = {
		{"0.0.0.0",              NET_CLASS_LOOPBACK  },
		{"0.255.255.255",        NET_CLASS_LOOPBACK  },
		{"1.1.1.1",              NET_CLASS_PUBLIC    },
		{"9.255.255.255",        NET_CLASS_PUBLIC    },
		{"10.0.0.0",             NET_CLASS_PRIVATE   },
		{"10.255.255.255",       NET_CLASS_PRIVATE   },
		{"11.0.0.0",             NET_CLASS_PUBLIC    },
		{"100.63.255.255",       NET_CLASS_PUBLIC    },
		{"100.64.0.0",           NET_CLASS_PRIVATE   },
		{"100.100.100.200",      NET_CLASS_METADATA  },
		{"100.100.100.201",      NET_CLASS_PRIVATE   },
		{"100.127.255.255",      NET_CLASS_PRIVATE   },
		{"100.128.0.0",          NET_CLASS_PUBLIC    },
		{"127.0.0.1",            NET_CLASS_LOOPBACK  },
		{"127.255.255.255",      NET_CLASS_LOOPBACK  },
		{"128.0.0.0",            NET_CLASS_PUBLIC    },
		{"168.63.129.16",        NET_CLASS_METADATA  },
		{"169.254.0.1",          NET_CLASS_LINK_LOCAL},
		{"169.254.169.254",      NET_CLASS_METADATA  },
		{"169.254.170.2",        NET_CLASS_METADATA  },
		{"169.254.170.23",       NET_CLASS_METADATA  },
		{"169.255.0.0",          NET_CLASS_PUBLIC    },
		{"172.15.255.255",       NET_CLASS_PUBLIC    },
		{"172.16.0.0",           NET_CLASS_PRIVATE   },
		{"172.31.255.255",       NET_CLASS_PRIVATE   },
		{"172.32.0.0",           NET_CLASS_PUBLIC    },
		{"192.0.0.1",            NET_CLASS_RESERVED  },
		{"192.0.0.192",          NET_CLASS_METADATA  },
		{"192.0.1.0",            NET_CLASS_PUBLIC    },
		{"192.0.2.1",            NET_CLASS_RESERVED  },
		{"192.88.99.1",          NET_CLASS_RESERVED  },
		{"192.168.0.0",          NET_CLASS_PRIVATE   },
		{"192.168.255.255",      NET_CLASS_PRIVATE   },
		{"192.169.0.0",          NET_CLASS_PUBLIC    },
		{"198.17.255.255",       NET_CLASS_PUBLIC    },
		{"198.18.0.0",           NET_CLASS_RESERVED  },
		{"198.19.255.255",       NET_CLASS_RESERVED  },
		{"198.51.100.1",         NET_CLASS_RESERVED  },
		{"203.0.113.255",        NET_CLASS_RESERVED  },
		{"223.255.255.255",      NET_CLASS_PUBLIC    },
		{"224.0.0.1",            NET_CLASS_RESERVED  },
		{"239.255.255.255",      NET_CLASS_RESERVED  },
		{"240.0.0.1",            NET_CLASS_RESERVED  },
		{"255.255.255.255",      NET_CLASS_RESERVED  },
		{"::",                   NET_CLASS_LOOPBACK  },
		{"::1",                  NET_CLASS_LOOPBACK  },
		{"::2",                  NET_CLASS_RESERVED  },
		{"::127.0.0.1",          NET_CLASS_RESERVED  },
		{"::ffff:1.1.1.1",       NET_CLASS_RESERVED  },
		{"::ffff:0:1.1.1.1",     NET_CLASS_RESERVED  },
		{"64:ff9b::a9fe:a9fe",   NET_CLASS_RESERVED  },
		{"64:ff9b:1::1",         NET_CLASS_RESERVED  },
		{"100::1",               NET_CLASS_RESERVED  },
		{"2001::1",              NET_CLASS_RESERVED  },
		{"2001:2::1",            NET_CLASS_RESERVED  },
		{"2001:20::1",           NET_CLASS_RESERVED  },
		{"2001:200::1",          NET_CLASS_PUBLIC    },
		{"2001:db8::1",          NET_CLASS_RESERVED  },
		{"2001:4860:4860::8888", NET_CLASS_PUBLIC    },
		{"2002:a9fe:a9fe::1",    NET_CLASS_RESERVED  },
		{"2606:4700::1111",      NET_CLASS_PUBLIC    },
		{"3ffe::1",              NET_CLASS_PUBLIC    },
		{"3fff::1",              NET_CLASS_RESERVED  },
		{"4000::1",              NET_CLASS_RESERVED  },
		{"5f00::1",              NET_CLASS_RESERVED  },
		{"fc00::1",              NET_CLASS_PRIVATE   },
		{"fd00:ec2::254",        NET_CLASS_METADATA  },
		{"fd00:ec3::254",        NET_CLASS_PRIVATE   },
		{"fd00:42::42",          NET_CLASS_METADATA  },
		{"fd00:42::43",          NET_CLASS_PRIVATE   },
		{"fd20:ce::254",         NET_CLASS_METADATA  },
		{"fdff::1",              NET_CLASS_PRIVATE   },
		{"fe80::1",              NET_CLASS_LINK_LOCAL},
		{"febf::1",              NET_CLASS_LINK_LOCAL},
		{"fec0::1",              NET_CLASS_RESERVED  },
		{"ff02::1",              NET_CLASS_RESERVED  },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct egress_address address = address_of(rows[i].text);

		if (net_class_of(&address) != rows[i].expected)
			fail_msg("%s is of class %d", rows[i].text, (int)net_class_of(&address));
	}
}

static void test_net_class_of_unknown_family_is_reserved(void **state)
{
	struct egress_address address = {.family = AF_UNIX};

	(void)state;
	assert_int_equal(net_class_of(&address), NET_CLASS_RESERVED);
}

/* The table feeds a map of prefixes: no bits behind one, no prefix twice. */
static void test_net_class_table_is_well_formed(void **state)
{
	size_t n;
	const struct net_class_row *rows = net_class_table(&n);

	(void)state;
	for (size_t i = 0; i < n; i++) {
		struct egress_address first = rows[i].network;

		for (uint32_t bit = first.prefix; bit < 128; bit++)
			assert_int_equal(first.bytes[bit / 8] & (0x80u >> bit % 8), 0);
		for (size_t j = 0; j < i; j++)
			assert_false(rows[j].network.prefix == first.prefix &&
				     net_address_within(&first, &rows[j].network));
		assert_true(net_address_within(&first, &rows[i].network));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_net_class_of_every_range),
		cmocka_unit_test(test_net_class_of_unknown_family_is_reserved),
		cmocka_unit_test(test_net_class_table_is_well_formed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
