#include "base/endpoint_list.h"

#include <errno.h>
#include <string.h>

#include "base/egress_rule.h"
#include "base/host_name.h"
#include "base/net_class.h"
#include "base/path.h"
#include "base/secret.h"
#include "base/str.h"

#include "sandboxd/limits.h"

bool endpoint_list_next(const char **at, const char **ret_entry, size_t *ret_length)
{
	const char *entry = *at + strspn(*at, " \t");

	*ret_entry = entry;
	*ret_length = strcspn(entry, " \t");
	*at = entry + *ret_length;
	return *ret_length > 0;
}

/* A colon that is no part of an IPv6 address. */
static bool has_port(const char *text, size_t length)
{
	const char *bracket = memrchr(text, ']', length);
	const char *from = bracket ? bracket : text;

	return memchr(from, ':', (size_t)(text + length - from)) != NULL;
}

int endpoint_production_parse(const char *text, size_t length, struct egress_rule *ret_rule)
{
	int r = egress_rule_parse(text, length, ret_rule);

	if (r < 0 || has_port(text, length))
		return r;
	memset(ret_rule->port, 0, sizeof(ret_rule->port));
	ret_rule->n_ports = 1;
	ret_rule->port[0] = (struct egress_port_range){1, UINT16_MAX};
	return 0;
}

int endpoint_path_parse(const char *text, size_t length, struct egress_path *ret_path)
{
	struct egress_path path = {0};
	const char *slash = memchr(text, '/', length);
	size_t host = slash ? (size_t)(slash - text) : length;
	char name[HOST_NAME_BYTES];
	size_t n = length - host;

	if (!slash || host_name_canonical(text, host, name) < 0 || n >= sizeof(path.prefix) ||
	    !str_only(slash, n, "/._-~"))
		return -EINVAL;
	memcpy(path.host, name, sizeof(name));
	/* A slash at the end says the same as none. */
	while (n > 0 && slash[n - 1] == '/')
		n--;
	memcpy(path.prefix, slash, n);
	if (n > 0 && path_check_relative(path.prefix + 1) < 0)
		return -EINVAL;
	if (n == 0)
		path.prefix[0] = '/';
	*ret_path = path;
	return 0;
}

int endpoint_bucket_parse(const char *text, size_t length, struct endpoint_value *value)
{
	char uri[ENDPOINT_VALUE_MAX_BYTES];

	if (str_format(uri, sizeof(uri), "s3://%.*s", (int)length, text) < 0 ||
	    endpoint_value_read(ENDPOINT_FORM_WAREHOUSE, uri, strlen(uri), value) ||
	    value->bucket[0] == '\0')
		return -EINVAL;
	value->prefix_at -= strlen("s3://");
	return 0;
}

static size_t prefix_length(const char *prefix)
{
	size_t length = strcspn(prefix, " \t");

	while (length > 0 && prefix[length - 1] == '/')
		length--;
	return length;
}

bool endpoint_buckets_overlap(const struct endpoint_value *a, const char *a_prefix,
			      const struct endpoint_value *b, const char *b_prefix)
{
	size_t a_length = prefix_length(a_prefix);
	size_t b_length = prefix_length(b_prefix);
	size_t shorter = a_length < b_length ? a_length : b_length;
	const char *longer = a_length < b_length ? b_prefix : a_prefix;

	if (!str_equal(a->bucket, b->bucket) || strncmp(a_prefix, b_prefix, shorter) != 0)
		return false;
	return shorter == 0 || a_length == b_length || longer[shorter] == '/';
}

int endpoint_target_rule(const struct endpoint_target *target, struct egress_rule *ret_rule)
{
	char text[ENDPOINT_HOST_BYTES + 16];
	int r = str_format(text, sizeof(text),
			   target->kind == ENDPOINT_HOST_IPV6 ? "[%s]:%u" : "%s:%u", target->host,
			   target->port);

	return r < 0 ? r : egress_rule_parse(text, strlen(text), ret_rule);
}

int gateway_parse(const char *text, size_t length, struct gateway *ret_gateway)
{
	const char *equals = memchr(text, '=', length);
	size_t name_length = equals ? (size_t)(equals - text) : 0;
	struct endpoint_value value;
	struct egress_rule rule;
	struct gateway gateway;

	if (!equals || !variable_name_allowed(text, name_length) ||
	    str_copy_n(gateway.name, sizeof(gateway.name), text, name_length) < 0 ||
	    endpoint_value_read(ENDPOINT_FORM_URL, equals + 1, length - name_length - 1, &value) ||
	    value.n_targets != 1)
		return -EINVAL;
	gateway.target = value.target[0];
	/* A name that means this host is the relay's to refuse; here the plain mistake. */
	if (endpoint_target_rule(&gateway.target, &rule) < 0 || str_equal(rule.name, "localhost") ||
	    (rule.kind == EGRESS_RULE_NETWORK && net_class_of(&rule.network) == NET_CLASS_LOOPBACK))
		return -EINVAL;
	*ret_gateway = gateway;
	return 0;
}

static bool ports_overlap(const struct egress_rule *a, const struct egress_rule *b)
{
	for (uint32_t i = 0; i < a->n_ports; i++)
		for (uint32_t j = 0; j < b->n_ports; j++)
			if (a->port[i].first <= b->port[j].last &&
			    b->port[j].first <= a->port[i].last)
				return true;
	return false;
}

/* "x.a.b" lies below "a.b". */
static bool is_below(const char *name, const char *suffix)
{
	size_t n = strlen(name);
	size_t m = strlen(suffix);

	return n > m && name[n - m - 1] == '.' && str_equal(name + n - m, suffix);
}

static bool names_overlap(const struct egress_rule *a, const struct egress_rule *b)
{
	bool a_wild = a->kind == EGRESS_RULE_SUFFIX;
	bool b_wild = b->kind == EGRESS_RULE_SUFFIX;

	if (a_wild && b_wild)
		return str_equal(a->name, b->name) || is_below(a->name, b->name) ||
		       is_below(b->name, a->name);
	if (a_wild)
		return is_below(b->name, a->name);
	if (b_wild)
		return is_below(a->name, b->name);
	return str_equal(a->name, b->name);
}

bool egress_rules_overlap(const struct egress_rule *a, const struct egress_rule *b)
{
	bool a_network = a->kind == EGRESS_RULE_NETWORK;

	if (a_network != (b->kind == EGRESS_RULE_NETWORK) || !ports_overlap(a, b))
		return false;
	if (!a_network)
		return names_overlap(a, b);
	return net_address_within(&a->network, &b->network) ||
	       net_address_within(&b->network, &a->network);
}

bool endpoint_production_has(const char *list, const struct egress_rule *rule)
{
	const char *entry;
	size_t length;

	while (endpoint_list_next(&list, &entry, &length)) {
		struct egress_rule production;

		if (endpoint_production_parse(entry, length, &production) == 0 &&
		    egress_rules_overlap(&production, rule))
			return true;
	}
	return false;
}
