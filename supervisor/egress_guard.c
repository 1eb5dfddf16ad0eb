/*
 * Theory. The kernel asks before each connect and each datagram to an address. In this order:
 *
 *   allowed   exactly this address and port: name servers, the operator's host_services, the
 *             sessions' Redis server. Nothing else of this host is ever reached.
 *   never     production addresses, by their ports; loopback, link-local and metadata on any port
 *   networks  the longest prefix decides: the classes of base/net_class.h, with the operator's
 *             allow_private in between
 *
 * and what is in none is refused. IPv4 addresses stand in their IPv6 form everywhere, so that the
 * two ways to name one are one. The programs read maps that nobody can change any more: another
 * configuration makes new ones.
 *
 * A worker's sockets are its own group's by birth, and those that the supervisor hands it are of a
 * session's network namespace, where there is nothing to connect to.
 */
#include "supervisor/egress_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/net_class.h"

#include "sandboxd/config.h"
#include "supervisor/bpf.h"

#define MAPPED_BITS 96 /* ::ffff:0:0/96 */
#define ALL_BITS    128
#define RANGES_MAX  8
#define CODE_MAX    128

struct prefix_key {
	uint32_t bits;
	uint8_t address[16];
};

struct exact_key {
	uint8_t address[16];
	uint32_t port; /* host order */
};

struct port_ranges {
	struct egress_port_range range[RANGES_MAX];
};

struct guard_maps {
	int allowed_fd;
	int never_fd;
	int networks_fd;
};

/* --- maps ------------------------------------------------------------------------------------ */

static struct prefix_key key_of(const struct egress_address *address)
{
	struct prefix_key key = {.bits = address->prefix};

	if (address->family == AF_INET) {
		key.bits += MAPPED_BITS;
		key.address[10] = key.address[11] = 0xff;
		memcpy(&key.address[12], address->bytes, sizeof(struct in_addr));
	} else {
		memcpy(key.address, address->bytes, sizeof(key.address));
	}
	return key;
}

static int allow_exactly(const struct guard_maps *maps, const struct egress_address *address,
			 uint32_t port)
{
	const struct prefix_key prefix = key_of(address);
	struct exact_key key = {.port = port};
	const uint32_t yes = 1;

	memcpy(key.address, prefix.address, sizeof(key.address));
	return bpf_map_set(maps->allowed_fd, &key, &yes);
}

static int fill_allowed(const struct guard_maps *maps, const struct egress_guard *guard)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < guard->n_name_servers; i++)
		r = allow_exactly(maps, &guard->name_server[i], 53);
	for (uint32_t i = 0; r == 0 && i < guard->network->n_host_services; i++) {
		const struct config_host_service *service = &guard->network->host_service[i];

		/* A socket: the worker connects to no address for it. */
		if (service->path[0] == '\0')
			r = allow_exactly(maps, &service->address, service->port);
	}
	if (r == 0 && guard->redis && guard->redis->port != 0)
		r = allow_exactly(maps, &guard->redis->address, guard->redis->port);
	return r;
}

static bool is_never(enum net_class net_class)
{
	return net_class == NET_CLASS_LOOPBACK || net_class == NET_CLASS_LINK_LOCAL ||
	       net_class == NET_CLASS_METADATA;
}

/* The map gives the longest prefix alone, so a network's ranges hold those of the networks around
 * it. More than there is room for: all ports. */
static struct port_ranges ranges_of(const struct network_config *network,
				    const struct egress_address *address)
{
	struct port_ranges ranges;
	size_t n = 0;

	for (size_t i = 0; i < RANGES_MAX; i++)
		ranges.range[i] = (struct egress_port_range){.first = UINT16_MAX, .last = 0};
	for (uint32_t i = 0; i < network->n_production; i++) {
		const struct config_production *row = &network->production[i];

		if (row->network.prefix > address->prefix ||
		    !net_address_within(address, &row->network))
			continue;
		if (n == RANGES_MAX) {
			ranges.range[0] =
				(struct egress_port_range){.first = 0, .last = UINT16_MAX};
			break;
		}
		ranges.range[n++] = row->port;
	}
	return ranges;
}

static int fill_never(const struct guard_maps *maps, const struct network_config *network)
{
	const struct port_ranges all = {
		.range[0] = {.first = 0, .last = UINT16_MAX}
        };
	size_t n_rows = 0;
	const struct net_class_row *rows = net_class_table(&n_rows);
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < network->n_production; i++) {
		const struct egress_address *address = &network->production[i].network;
		const struct prefix_key key = key_of(address);
		const struct port_ranges ranges = ranges_of(network, address);

		r = bpf_map_set(maps->never_fd, &key, &ranges);
	}
	/* Last: what is both is refused on any port. */
	for (size_t i = 0; r == 0 && i < n_rows; i++) {
		const struct prefix_key key = key_of(&rows[i].network);

		if (is_never(rows[i].net_class))
			r = bpf_map_set(maps->never_fd, &key, &all);
	}
	return r;
}

static int fill_networks(const struct guard_maps *maps, const struct network_config *network)
{
	const struct egress_address all_ipv4 = {.family = AF_INET};
	const uint32_t yes = 1;
	size_t n_rows = 0;
	const struct net_class_row *rows = net_class_table(&n_rows);
	struct prefix_key key = key_of(&all_ipv4);
	int r = bpf_map_set(maps->networks_fd, &key, &yes);

	for (size_t i = 0; r == 0 && i < n_rows; i++) {
		const uint32_t verdict = rows[i].net_class == NET_CLASS_PUBLIC;

		key = key_of(&rows[i].network);
		r = bpf_map_set(maps->networks_fd, &key, &verdict);
	}
	for (uint32_t i = 0; r == 0 && i < network->n_private; i++) {
		key = key_of(&network->private_network[i]);
		r = bpf_map_set(maps->networks_fd, &key, &yes);
	}
	return r;
}

static void close_maps(struct guard_maps *maps)
{
	maps->allowed_fd = fd_close(maps->allowed_fd);
	maps->never_fd = fd_close(maps->never_fd);
	maps->networks_fd = fd_close(maps->networks_fd);
}

/* Room for all that the configuration can name and for every class. */
static uint32_t with_classes(uint32_t n)
{
	size_t n_rows = 0;

	(void)net_class_table(&n_rows);
	return n + (uint32_t)n_rows + 1;
}

static int make_maps(const struct egress_guard *guard, struct guard_maps *ret_maps)
{
	const struct bpf_map_form allowed = {
		.type = BPF_MAP_TYPE_HASH,
		.key_bytes = sizeof(struct exact_key),
		.value_bytes = sizeof(uint32_t),
		.max_entries = CONFIG_HOST_SERVICES_MAX + CONFIG_MAX_NS + 1,
	};
	const struct bpf_map_form never = {
		.type = BPF_MAP_TYPE_LPM_TRIE,
		.key_bytes = sizeof(struct prefix_key),
		.value_bytes = sizeof(struct port_ranges),
		.max_entries = with_classes(CONFIG_PRODUCTION_MAX),
		.flags = BPF_F_NO_PREALLOC,
	};
	const struct bpf_map_form networks = {
		.type = BPF_MAP_TYPE_LPM_TRIE,
		.key_bytes = sizeof(struct prefix_key),
		.value_bytes = sizeof(uint32_t),
		.max_entries = with_classes(CONFIG_PRIVATE_MAX),
		.flags = BPF_F_NO_PREALLOC,
	};
	struct guard_maps maps = {.allowed_fd = -1, .never_fd = -1, .networks_fd = -1};
	int r;

	r = maps.allowed_fd = bpf_map_new(&allowed, "guard_allowed");
	if (r >= 0)
		r = maps.never_fd = bpf_map_new(&never, "guard_never");
	if (r >= 0)
		r = maps.networks_fd = bpf_map_new(&networks, "guard_networks");
	if (r >= 0)
		r = fill_allowed(&maps, guard);
	if (r == 0)
		r = fill_never(&maps, guard->network);
	if (r == 0)
		r = fill_networks(&maps, guard->network);
	if (r < 0) {
		close_maps(&maps);
		return r;
	}
	*ret_maps = maps;
	return 0;
}

/* --- programs -------------------------------------------------------------------------------- */

#define FIELD(name) offsetof(struct bpf_sock_addr, name)
/* On the program's stack: struct prefix_key, then the port, which makes an exact_key of its end. */
#define AT_BITS     (-24)
#define AT_ADDRESS  (-20)
#define AT_PORT     (-4)

enum label {
	LABEL_ALLOW = RANGES_MAX, /* below: behind one range of ports */
	LABEL_REFUSE,
	LABEL_NETWORKS,
};
_Static_assert(LABEL_NETWORKS < INSN_LABELS, "labels of bpf.h");

struct code {
	struct bpf_insn insns[CODE_MAX];
	size_t n;
};

static void append(struct code *code, const struct bpf_insn *insns, size_t n)
{
	ASSERT(code->n + n <= CODE_MAX);
	memcpy(&code->insns[code->n], insns, n * sizeof(*insns));
	code->n += n;
}
#define APPEND(code, ...)                                                                          \
	append(code, (const struct bpf_insn[]){__VA_ARGS__},                                       \
	       ARRAY_SIZE(((const struct bpf_insn[]){__VA_ARGS__})))

/* The keys onto the stack, the port in register 7. */
static void add_keys(struct code *code, int family)
{
	APPEND(code, INSN_MOV(BPF_REG_6, BPF_REG_1), INSN_STORE32_K(BPF_REG_10, AT_BITS, ALL_BITS));
	if (family == AF_INET)
		APPEND(code, INSN_STORE32_K(BPF_REG_10, AT_ADDRESS, 0),
		       INSN_STORE32_K(BPF_REG_10, AT_ADDRESS + 4, 0),
		       INSN_STORE32_K(BPF_REG_10, AT_ADDRESS + 8, htonl(0xffff)),
		       INSN_LOAD32(BPF_REG_2, BPF_REG_6, FIELD(user_ip4)),
		       INSN_STORE32(BPF_REG_10, AT_ADDRESS + 12, BPF_REG_2));
	for (int i = 0; family == AF_INET6 && i < 4; i++)
		APPEND(code,
		       INSN_LOAD32(BPF_REG_2, BPF_REG_6,
				   (int16_t)(FIELD(user_ip6) + 4 * (size_t)i)),
		       INSN_STORE32(BPF_REG_10, (int16_t)(AT_ADDRESS + 4 * i), BPF_REG_2));
	APPEND(code, INSN_LOAD32(BPF_REG_7, BPF_REG_6, FIELD(user_port)), INSN_TO_BE16(BPF_REG_7),
	       INSN_STORE32(BPF_REG_10, AT_PORT, BPF_REG_7));
}

/* Register 0: the value, or 0. */
static void add_lookup(struct code *code, int map_fd, int16_t key_at)
{
	APPEND(code, INSN_LOAD_MAP(BPF_REG_1, map_fd), INSN_MOV(BPF_REG_2, BPF_REG_10),
	       INSN_ADD_K(BPF_REG_2, key_at), INSN_CALL(BPF_FUNC_map_lookup_elem));
}

static void add_ranges(struct code *code)
{
	for (int i = 0; i < RANGES_MAX; i++) {
		const int16_t at = (int16_t)((size_t)i * sizeof(struct egress_port_range));

		APPEND(code, INSN_LOAD16(BPF_REG_2, BPF_REG_0, at),
		       INSN_IF_LESS(BPF_REG_7, BPF_REG_2, (int16_t)i),
		       INSN_LOAD16(BPF_REG_2, BPF_REG_0, (int16_t)(at + 2)),
		       INSN_IF_MORE(BPF_REG_7, BPF_REG_2, (int16_t)i), INSN_GOTO(LABEL_REFUSE),
		       INSN_LABEL((int16_t)i));
	}
}

static int load(const struct guard_maps *maps, int family, enum bpf_attach_type attach)
{
	struct code code = {.n = 0};

	add_keys(&code, family);
	add_lookup(&code, maps->allowed_fd, AT_ADDRESS);
	APPEND(&code, INSN_IF_SET(BPF_REG_0, LABEL_ALLOW));
	add_lookup(&code, maps->never_fd, AT_BITS);
	APPEND(&code, INSN_IF_ZERO(BPF_REG_0, LABEL_NETWORKS));
	add_ranges(&code);
	APPEND(&code, INSN_LABEL(LABEL_NETWORKS));
	add_lookup(&code, maps->networks_fd, AT_BITS);
	APPEND(&code, INSN_IF_ZERO(BPF_REG_0, LABEL_REFUSE), INSN_LOAD32(BPF_REG_2, BPF_REG_0, 0),
	       INSN_IF_ZERO(BPF_REG_2, LABEL_REFUSE), INSN_LABEL(LABEL_ALLOW),
	       INSN_MOV_K(BPF_REG_0, 1), INSN_RETURN(), INSN_LABEL(LABEL_REFUSE),
	       INSN_MOV_K(BPF_REG_0, 0), INSN_RETURN());
	return bpf_program_load(&(struct bpf_program){
		.type = BPF_PROG_TYPE_CGROUP_SOCK_ADDR,
		.attach = attach,
		.name = "egress_guard",
		.insns = code.insns,
		.n_insns = code.n,
	});
}

static const struct hook {
	enum bpf_attach_type attach;
	int family;
} hooks[] = {
	{BPF_CGROUP_INET4_CONNECT, AF_INET },
	{BPF_CGROUP_INET6_CONNECT, AF_INET6},
	{BPF_CGROUP_UDP4_SENDMSG,  AF_INET },
	{BPF_CGROUP_UDP6_SENDMSG,  AF_INET6},
};

_Static_assert(ARRAY_SIZE(hooks) == EGRESS_GUARD_HOOKS, "one program a hook");

void egress_guard_programs_init(struct egress_guard_programs *programs)
{
	for (size_t i = 0; i < ARRAY_SIZE(programs->fd); i++)
		programs->fd[i] = -1;
}

void egress_guard_programs_done(struct egress_guard_programs *programs)
{
	for (size_t i = 0; i < ARRAY_SIZE(programs->fd); i++)
		programs->fd[i] = fd_close(programs->fd[i]);
}

/* All, or those of before again: hooks of two configurations side by side would be neither. */
static int attach_all(const struct egress_guard_programs *programs,
		      const struct egress_guard_programs *former, int group_fd)
{
	for (size_t i = 0; i < ARRAY_SIZE(hooks); i++) {
		int r = bpf_attach_group(programs->fd[i], group_fd, hooks[i].attach);

		if (r >= 0)
			continue;
		while (i-- > 0)
			/* Each was attached there before. If that fails as well, the new one
			 * stays: some program is there at any moment. */
			if (former->fd[i] >= 0)
				IGNORE_RESULT(
					bpf_attach_group(former->fd[i], group_fd, hooks[i].attach));
		return r;
	}
	return 0;
}

int egress_guard_apply(const struct egress_guard *guard, int group_fd,
		       struct egress_guard_programs *programs, struct err *err)
{
	struct egress_guard_programs made;
	struct guard_maps maps;
	int r = make_maps(guard, &maps);

	if (r < 0)
		return err_fail(err, r, "egress-guard", "maps");
	egress_guard_programs_init(&made);
	/* All are loaded before the first is attached. */
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(hooks); i++)
		r = made.fd[i] = load(&maps, hooks[i].family, hooks[i].attach);
	if (r >= 0)
		r = attach_all(&made, programs, group_fd);
	close_maps(&maps);
	egress_guard_programs_done(r < 0 ? &made : programs);
	if (r < 0)
		return err_fail(err, r, "egress-guard", "programs of the workers' group");
	*programs = made;
	return 0;
}
