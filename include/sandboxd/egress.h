/*
 * The api worker and an egress worker, directly: which names a session may reach, and what was
 * refused.
 *
 * Theory. The supervisor makes one SOCK_SEQPACKET socket pair for each egress worker, whenever the
 * api worker or that egress worker has (re)started, or the api worker has lost its end of one
 * (LAUNCH_LINK), and hands one end to each (LAUNCH_EVENT_LINK). It never reads from it: policies
 * are text, and the supervisor reads none. A new pair replaces the former one, and whoever gets it
 * begins with EGRESS_HELLO. Nothing is remembered from pair to pair: the api worker sends the
 * policy of each session again, and until then an egress worker goes on with the one it had, if it
 * had any. A session without a policy is allowed nothing.
 *
 * The sessions' sockets come from the supervisor (LAUNCH_EVENT_NET), policies from the api worker;
 * either may be first.
 *
 * A policy is BEGIN, each RULE with its PATHs behind it, END: applied at the END as a whole and
 * acknowledged with ACK. A rule that an egress worker cannot read, or a number of rules that is
 * not the announced one, refuses the whole policy (ACK with an error): the session is then allowed
 * nothing, not what it was allowed before.
 *
 * Both ends are of one release. Texts are NUL-terminated and NUL-padded; names are canonical
 * (lower-case LDH, no trailing dot). Any surprise ends the connection.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/limits.h"

#define EGRESS_MAGIC   0x45475231u
#define EGRESS_VERSION 1

#define EGRESS_NAME_BYTES       254 /* a name of 253 characters and its NUL */
#define EGRESS_LABEL_BYTES      64
#define EGRESS_PATH_BYTES       256
#define EGRESS_PORTS_MAX        8
#define EGRESS_RULES_MAX        256 /* of one session */
#define EGRESS_CALLER_RULES_MAX 64  /* of these, what a caller asks for */
#define EGRESS_PATHS_MAX        32  /* of one rule */
#define EGRESS_NO_RULE          UINT32_MAX

enum egress_type {
	EGRESS_HELLO = 1, /* struct egress_hello; the first message, from both ends */
	/* to the egress worker */
	EGRESS_POLICY = 2, /* session; struct egress_policy: a policy begins */
	EGRESS_RULE = 3,   /* session; struct egress_rule */
	EGRESS_PATH = 4,   /* session; struct egress_path: of the rule before it */
	EGRESS_END = 5,    /* session: the policy ends and is in force */
	EGRESS_FORGET = 6, /* session: it has ended */
	EGRESS_COUNT = 7,  /* session, serial: asks for its counters */
	/* to the api worker */
	EGRESS_ACK = 8,       /* session, generation; error: 0 or errno of a policy not taken */
	EGRESS_DENIAL = 9,    /* session; struct egress_denial */
	EGRESS_COUNTERS = 10, /* session, serial; struct egress_counters: one a rule (more = 1),
				 then one of the whole session (rule EGRESS_NO_RULE, more = 0).
				 error: ENOENT where the session is not known */
	EGRESS_TYPE_MAX_,
};

enum egress_rule_kind {
	EGRESS_RULE_NAME = 1, /* `name` itself */
	EGRESS_RULE_SUFFIX,   /* anything below `name`: *.name */
	EGRESS_RULE_NETWORK,  /* address/prefix; a literal is a prefix of 32 or 128 */
	EGRESS_RULE_KIND_MAX_,
};

enum egress_rule_flag {
	EGRESS_ALLOW_PRIVATE = 1u << 0, /* private ranges that the operator listed: the second line
					   (cgroup) knows them too */
	EGRESS_NO_SNI_CHECK = 1u << 1,
	EGRESS_NO_HOST_CHECK = 1u << 2,
	EGRESS_PRODUCTION = 1u << 3,   /* refuses (reason PRODUCTION), before every other rule; with
					  a reroute it goes there instead */
	EGRESS_PATHS = 1u << 4,        /* plain HTTP: only what its PATHs list */
	EGRESS_HOST_SERVICE = 1u << 5, /* the reroute is an address of this host that the operator
					  listed: loopback is no reason to refuse it */
	EGRESS_RULE_FLAGS_ALL_ = (1u << 6) - 1,
};

struct egress_address {
	uint8_t bytes[16]; /* network order; IPv4 in the first four, the others 0 */
	uint32_t family;   /* AF_INET, AF_INET6; 0: none */
	uint32_t prefix;   /* bits that count */
};

struct egress_port_range {
	uint16_t first;
	uint16_t last;
};

struct egress_hello {
	uint32_t message_bytes; /* sizeof(struct egress_msg) */
	uint32_t zero;
};

/* Bounds of one session; 0: the egress worker's own default. */
struct egress_policy {
	uint32_t n_rules;
	uint32_t max_connections;
	uint32_t max_connects_per_s;
	uint32_t max_names; /* that its DNS stub hands out addresses for */
	uint64_t max_bytes_per_s;
	uint32_t connect_timeout_ms;
	uint32_t idle_timeout_s;
};

struct egress_rule {
	uint32_t index; /* 0, 1, 2 ... */
	uint32_t kind;  /* enum egress_rule_kind */
	uint32_t flags; /* enum egress_rule_flag */
	uint32_t n_ports;
	struct egress_port_range port[EGRESS_PORTS_MAX];
	char label[EGRESS_LABEL_BYTES]; /* endpoint:NAME, companion:NAME, allow, profile: shown, and
					   never a value */
	char name[EGRESS_NAME_BYTES + 2];
	struct egress_address network;
	/* Where it really goes: a name, else an address, else (both empty) where it was going. */
	char reroute_name[EGRESS_NAME_BYTES + 2];
	struct egress_address reroute;
	uint32_t reroute_port; /* 0: the dialled one */
	uint32_t n_paths;
	uint64_t reroute_service; /* or to that Unix socket of this host (host_service_id); 0: none
				   */
};

/* Allowed on the plain HTTP of that rule: this Host (empty: the rule's own name) and this path, or
 * what is below it. */
struct egress_path {
	uint32_t rule;
	uint32_t zero;
	char host[EGRESS_NAME_BYTES + 2];
	char prefix[EGRESS_PATH_BYTES];
};

enum egress_channel {
	EGRESS_CHANNEL_TCP = 1,
	EGRESS_CHANNEL_DNS,
	EGRESS_CHANNEL_HTTP, /* a request on a connection that was allowed */
	EGRESS_CHANNEL_TLS,
	EGRESS_CHANNEL_MAX_,
};

enum egress_reason {
	EGRESS_REASON_RULE = 1,   /* no rule for it */
	EGRESS_REASON_PORT,       /* a rule for the name, not for the port */
	EGRESS_REASON_PRODUCTION, /* `label` names the endpoint */
	EGRESS_REASON_NAME,       /* not a canonical name, or a question of another kind */
	EGRESS_REASON_LOOPBACK,   /* what it resolved to, or the dialled literal */
	EGRESS_REASON_PRIVATE,
	EGRESS_REASON_LINK_LOCAL,
	EGRESS_REASON_METADATA,
	EGRESS_REASON_RESERVED, /* multicast, broadcast, mapped and translated forms, the rest */
	EGRESS_REASON_RESOLVE,  /* the name servers have no address, or do not answer */
	EGRESS_REASON_CONNECT,  /* refused, unreachable or silent out there */
	EGRESS_REASON_GUARD,    /* the kernel's second line refused what the rules allowed */
	EGRESS_REASON_SNI,
	EGRESS_REASON_HOST,
	EGRESS_REASON_PATH,
	EGRESS_REASON_PROTOCOL, /* not the TLS or HTTP that the check needs */
	EGRESS_REASON_LIMIT,    /* one of struct egress_policy */
	EGRESS_REASON_LABELS,   /* too long or too random below a *.suffix */
	EGRESS_REASON_REMOVED,  /* the policy no longer permits this connection */
	EGRESS_REASON_MAX_,
};

struct egress_denial {
	uint32_t channel;                 /* enum egress_channel */
	uint32_t reason;                  /* enum egress_reason */
	uint32_t rule;                    /* index, or EGRESS_NO_RULE */
	uint32_t port;                    /* 0: of no port (DNS) */
	uint32_t count;                   /* of the same since it was last told: 1 and more */
	uint32_t source_port;             /* in the session; 0: unknown */
	uint64_t at;                      /* CLOCK_REALTIME, microseconds */
	char name[EGRESS_NAME_BYTES + 2]; /* as dialled or asked for; "": a literal */
	struct egress_address address;    /* the dialled literal; else family 0 */
	char label[EGRESS_LABEL_BYTES];   /* of the rule; "": none */
};

struct egress_counters {
	uint32_t rule; /* index, or EGRESS_NO_RULE: all, what no rule knows included */
	uint32_t open; /* connections now */
	uint64_t connections;
	uint64_t denials;
	uint64_t bytes_out; /* of the session */
	uint64_t bytes_in;
	uint64_t dns_answers;
	uint64_t untold; /* denials that the rate limit kept back */
};

struct egress_msg {
	uint32_t magic;
	uint16_t version;
	uint16_t type;       /* enum egress_type */
	uint32_t serial;     /* COUNT and its COUNTERS */
	uint32_t error;      /* ACK, COUNTERS: 0 or an errno */
	uint32_t generation; /* POLICY to END and ACK: chosen by the api worker, repeated */
	uint32_t more;
	uint8_t session[ID_BYTES]; /* HELLO: all zero */
	union {
		struct egress_hello hello;
		struct egress_policy policy;
		struct egress_rule rule;
		struct egress_path path;
		struct egress_denial denial;
		struct egress_counters counters;
	} u;
};
_Static_assert(sizeof(struct egress_msg) <= 1024, "one message stays small");
