/*
 * Theory. The kernel asks an sk_lookup program of the namespace before it looks for a listening
 * socket, and only then: connections that are established never come here. A session's own servers,
 * the ones on 0.0.0.0 included, are thereby reached on loopback addresses alone, and none of its
 * ports is taken from it.
 *
 * The program cannot know which namespace it runs in, so each session has its own copy with a map
 * of one socket: no index exists by which one session's connections could go to another's listener.
 * Without its socket the program drops, which the dialling side sees as a refused connection.
 */
#include "supervisor/sklookup.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "base/fd.h"

#include "sandboxd/limits.h"
#include "supervisor/bpf.h"

#define FIELD(name) offsetof(struct bpf_sk_lookup, name)

static int make_map(void)
{
	const struct bpf_map_form form = {BPF_MAP_TYPE_SOCKMAP, sizeof(uint32_t), sizeof(uint64_t),
					  1, 0};

	return bpf_map_new(&form, "sandbox_net");
}

enum label {
	LABEL_IPV6,
	LABEL_STEER,
	LABEL_LEAVE,
	LABEL_DROP,
};

static int load_program(int map_fd)
{
	struct bpf_insn insns[] = {
		INSN_MOV(BPF_REG_6, BPF_REG_1),
		INSN_LOAD32(BPF_REG_2, BPF_REG_6, FIELD(protocol)),
		INSN_IF_NE32_K(BPF_REG_2, IPPROTO_TCP, LABEL_LEAVE),
		INSN_LOAD32(BPF_REG_2, BPF_REG_6, FIELD(family)),
		INSN_IF_EQ32_K(BPF_REG_2, AF_INET6, LABEL_IPV6),
		/* IPv4: not 127.0.0.0/8, but for the resolver */
		INSN_LOAD32(BPF_REG_2, BPF_REG_6, FIELD(local_ip4)),
		INSN_MOV(BPF_REG_3, BPF_REG_2),
		INSN_AND32_K(BPF_REG_3, htonl(0xff000000)),
		INSN_IF_NE32_K(BPF_REG_3, htonl(0x7f000000), LABEL_STEER),
		INSN_IF_NE32_K(BPF_REG_2, htonl(SESSION_RESOLVER), LABEL_LEAVE),
		INSN_LOAD32(BPF_REG_2, BPF_REG_6, FIELD(local_port)),
		INSN_IF_EQ32_K(BPF_REG_2, SESSION_RESOLVER_PORT, LABEL_STEER),
		INSN_GOTO(LABEL_LEAVE),
		/* IPv6: not ::1 */
		INSN_LABEL(LABEL_IPV6),
		INSN_LOAD32(BPF_REG_2, BPF_REG_6, FIELD(local_ip6[0])),
		INSN_IF_NE32_K(BPF_REG_2, 0, LABEL_STEER),
		INSN_LOAD32(BPF_REG_2, BPF_REG_6, FIELD(local_ip6[1])),
		INSN_IF_NE32_K(BPF_REG_2, 0, LABEL_STEER),
		INSN_LOAD32(BPF_REG_2, BPF_REG_6, FIELD(local_ip6[2])),
		INSN_IF_NE32_K(BPF_REG_2, 0, LABEL_STEER),
		INSN_LOAD32(BPF_REG_2, BPF_REG_6, FIELD(local_ip6[3])),
		INSN_IF_EQ32_K(BPF_REG_2, htonl(1), LABEL_LEAVE),
		/* to the socket in the map, and to nobody else */
		INSN_LABEL(LABEL_STEER),
		INSN_STORE32_K(BPF_REG_10, -4, 0),
		INSN_LOAD_MAP(BPF_REG_1, map_fd),
		INSN_MOV(BPF_REG_2, BPF_REG_10),
		INSN_ADD_K(BPF_REG_2, -4),
		INSN_CALL(BPF_FUNC_map_lookup_elem),
		INSN_IF_ZERO(BPF_REG_0, LABEL_DROP),
		INSN_MOV(BPF_REG_7, BPF_REG_0),
		INSN_MOV(BPF_REG_1, BPF_REG_6),
		INSN_MOV(BPF_REG_2, BPF_REG_7),
		INSN_MOV_K(BPF_REG_3, 0),
		INSN_CALL(BPF_FUNC_sk_assign),
		INSN_MOV(BPF_REG_8, BPF_REG_0),
		INSN_MOV(BPF_REG_1, BPF_REG_7),
		INSN_CALL(BPF_FUNC_sk_release),
		INSN_IF_SET(BPF_REG_8, LABEL_DROP),
		/* as if there were no program */
		INSN_LABEL(LABEL_LEAVE),
		INSN_MOV_K(BPF_REG_0, SK_PASS),
		INSN_RETURN(),
		INSN_LABEL(LABEL_DROP),
		INSN_MOV_K(BPF_REG_0, SK_DROP),
		INSN_RETURN(),
	};
	const struct bpf_program program = {
		.type = BPF_PROG_TYPE_SK_LOOKUP,
		.attach = BPF_SK_LOOKUP,
		.name = "sandbox_net",
		.insns = insns,
		.n_insns = ARRAY_SIZE(insns),
	};

	return bpf_program_load(&program);
}

int sklookup_make(struct sklookup *ret_lookup)
{
	AUTO_CLOSE int map_fd = make_map();
	int program_fd;

	if (map_fd < 0)
		return map_fd;
	program_fd = load_program(map_fd);
	if (program_fd < 0)
		return program_fd;
	*ret_lookup = (struct sklookup){TAKE_FD(map_fd), program_fd};
	return 0;
}

void sklookup_close(struct sklookup *lookup)
{
	lookup->map_fd = fd_close(lookup->map_fd);
	lookup->program_fd = fd_close(lookup->program_fd);
}

int sklookup_attach(const struct sklookup *lookup, int netns_fd, int listener_fd)
{
	const uint32_t key = 0;
	const uint64_t value = (uint64_t)listener_fd;
	int r = bpf_map_set(lookup->map_fd, &key, &value);

	return r < 0 ? r : bpf_link_new(lookup->program_fd, netns_fd, BPF_SK_LOOKUP);
}

bool sklookup_holds(int link_fd, uint64_t netns_inode)
{
	return link_fd >= 0 && bpf_link_netns(link_fd, BPF_SK_LOOKUP) == netns_inode;
}
