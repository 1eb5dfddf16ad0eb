#include "supervisor/config/option_list.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/egress_rule.h"
#include "base/endpoint_list.h"
#include "base/host_service.h"
#include "base/net_class.h"
#include "base/str.h"

#include "supervisor/config/option_key.h"

static bool is_rule(const char *entry, size_t length)
{
	struct egress_rule rule;

	return egress_rule_parse(entry, length, &rule) == 0;
}

static bool is_bucket(const char *entry, size_t length)
{
	struct endpoint_value value;

	return endpoint_bucket_parse(entry, length, &value) == 0;
}

static bool is_path(const char *entry, size_t length)
{
	struct egress_path path;

	return endpoint_path_parse(entry, length, &path) == 0;
}

static bool is_gateway(const char *entry, size_t length)
{
	struct gateway gateway;

	return gateway_parse(entry, length, &gateway) == 0;
}

/* Rules, buckets, paths and gateways stay text: the api worker reads them again for each session.
 */
static int add_text(const struct option_row *row, const char *entry, size_t length,
		    struct config_answer *answer)
{
	char *list = (char *)answer + row->offset;
	size_t used = strlen(list);
	bool (*is_valid)(const char *entry, size_t length) =
		row->type == OPTION_TYPE_RULES      ? is_rule
		: row->type == OPTION_TYPE_BUCKETS  ? is_bucket
		: row->type == OPTION_TYPE_GATEWAYS ? is_gateway
						    : is_path;

	if (!is_valid(entry, length))
		return -EINVAL;
	return str_format(list + used, CONFIG_LIST_BYTES - used, "%s%.*s", used > 0 ? " " : "",
			  (int)length, entry);
}

/* A whole network of another class would open more than private ranges. */
static int add_network(const char *entry, size_t length, struct network_config *network)
{
	const char *bracket = memrchr(entry, ']', length);
	struct egress_rule rule;

	if (memchr(bracket ? bracket : entry, ':',
		   length - (bracket ? (size_t)(bracket - entry) : 0)) ||
	    egress_rule_parse(entry, length, &rule) < 0 || rule.kind != EGRESS_RULE_NETWORK ||
	    net_class_of(&rule.network) != NET_CLASS_PRIVATE ||
	    network->n_private == CONFIG_PRIVATE_MAX)
		return -EINVAL;
	network->private_network[network->n_private++] = rule.network;
	return 0;
}

/* host:port with one port, and no network. */
static int parse_place(const char *text, size_t length, struct egress_rule *ret_rule)
{
	if (!memchr(text, ':', length) || egress_rule_parse(text, length, ret_rule) < 0 ||
	    ret_rule->n_ports != 1 || ret_rule->port[0].first != ret_rule->port[0].last)
		return -EINVAL;
	if (ret_rule->kind == EGRESS_RULE_NETWORK)
		return memchr(text, '/', length) ? -EINVAL : 0;
	return ret_rule->kind == EGRESS_RULE_NAME ? 0 : -EINVAL;
}

static const char unix_scheme[] = "unix:";

static int read_socket(const char *path, size_t length, struct config_host_service *service)
{
	if (!host_service_path_valid(path, length))
		return -EINVAL;
	return str_copy_n(service->path, sizeof(service->path), path, length);
}

static int read_service(const char *entry, size_t length, struct config_host_service *service)
{
	const char *equals = memchr(entry, '=', length);
	size_t n = equals ? (size_t)(equals - entry) : length;
	bool is_socket = equals && length - n > strlen(unix_scheme) &&
			 strncmp(equals + 1, unix_scheme, strlen(unix_scheme)) == 0;
	struct egress_rule from;
	struct egress_rule to = {0};
	const char *host;
	int r = parse_place(entry, n, &from);

	if (r == 0 && is_socket)
		r = read_socket(equals + 1 + strlen(unix_scheme),
				length - n - 1 - strlen(unix_scheme), service);
	else if (r == 0 && equals)
		r = parse_place(equals + 1, length - n - 1, &to);
	if (r < 0)
		return r;
	host = from.kind == EGRESS_RULE_NETWORK ? entry : from.name;
	n = from.kind == EGRESS_RULE_NETWORK
		    ? (size_t)((const char *)memrchr(entry, ':', n) - entry)
		    : strlen(host);
	service->name_port = from.port[0].first;
	service->port = equals && !is_socket ? to.port[0].first : from.port[0].first;
	service->address = equals ? to.network : from.network;
	if (!equals && str_equal(from.name, "localhost"))
		service->address = (struct egress_address){
			.bytes = {127, 0, 0, 1},
                          .family = AF_INET, .prefix = 32
                };
	/* A name says nothing about where on this host it is. */
	if (service->address.family == 0 && !is_socket)
		return -EINVAL;
	return str_copy_n(service->name, sizeof(service->name), host, n);
}

static int add_service(const char *entry, size_t length, struct network_config *network)
{
	struct config_host_service service = {0};
	int r = read_service(entry, length, &service);

	if (r < 0 || network->n_host_services == CONFIG_HOST_SERVICES_MAX)
		return -EINVAL;
	network->host_service[network->n_host_services++] = service;
	return 0;
}

int option_list_place(const char *text, size_t length, struct redis_place *ret_place)
{
	struct config_host_service service = {0};

	if (memchr(text, '=', length) || read_service(text, length, &service) < 0)
		return -EINVAL;
	*ret_place = (struct redis_place){.address = service.address, .port = service.port};
	return 0;
}

int option_list_set(const struct option_row *row, const char *value, struct config_answer *answer)
{
	const char *at = value;
	const char *entry;
	size_t length;
	int r = 0;

	while (r == 0 && endpoint_list_next(&at, &entry, &length)) {
		if (row->type == OPTION_TYPE_NETWORKS)
			r = add_network(entry, length, &answer->api.network);
		else if (row->type == OPTION_TYPE_HOST_SERVICES)
			r = add_service(entry, length, &answer->api.network);
		else if (row->type == OPTION_TYPE_SNAPSHOT_KEYS)
			r = option_key_add(entry, length, &answer->api.snapshot_keys);
		else
			r = add_text(row, entry, length, answer);
	}
	return r < 0 ? -EINVAL : 0;
}

void option_list_clear(const struct option_row *row, struct config_answer *answer)
{
	if (row->type == OPTION_TYPE_NETWORKS) {
		answer->api.network.n_private = 0;
		memset(answer->api.network.private_network, 0,
		       sizeof(answer->api.network.private_network));
	} else if (row->type == OPTION_TYPE_HOST_SERVICES) {
		answer->api.network.n_host_services = 0;
		memset(answer->api.network.host_service, 0,
		       sizeof(answer->api.network.host_service));
	} else if (row->type == OPTION_TYPE_SNAPSHOT_KEYS) {
		explicit_bzero(&answer->api.snapshot_keys, sizeof(answer->api.snapshot_keys));
	} else {
		memset((char *)answer + row->offset, 0, CONFIG_LIST_BYTES);
	}
}
