/*
 * A refusal of an egress worker as a denial record. What the session dialled is its own word and is
 * shown, but for the hosts of its endpoints and their companions: these are named by their labels.
 */
#include <arpa/inet.h>
#include <string.h>

#include "base/net_class.h"
#include "base/str.h"

#include "supervisor/api/denials.h"
#include "supervisor/api/egress.h"

#define SHOWN_BYTES 72

#define ADVICE_ALLOW                                                                               \
	"add it to the session's egress rules (PUT .../egress, sandboxctl egress --allow), or to " \
	"[network] in sandboxd.conf"
#define ADVICE_PRIVATE "the operator may list the network in [network] allow_private"
#define ADVICE_NONE    "no rule can lead there"

static const struct {
	const char *rule;
	const char *advice;
} reasons[EGRESS_REASON_MAX_] = {
	[EGRESS_REASON_RULE] = {"no rule of this session names it",                               ADVICE_ALLOW  },
	[EGRESS_REASON_PORT] = {"a rule names the host, not this port",                           ADVICE_ALLOW  },
	[EGRESS_REASON_PRODUCTION] =
		{"a production host",
				"use the sandbox's own endpoint; production stays out of reach"                 },
	[EGRESS_REASON_NAME] = {"not a name that can be asked for",
				"ask for the A record of a plain host name"                                     },
	[EGRESS_REASON_LOOPBACK] = {"it leads to loopback",
                                "the operator may list it in [network] host_services"                           },
	[EGRESS_REASON_PRIVATE] = {"it leads to a private address",                                  ADVICE_PRIVATE},
	[EGRESS_REASON_LINK_LOCAL] = {"it leads to a link-local address",                               ADVICE_NONE   },
	[EGRESS_REASON_METADATA] = {"it leads to a cloud's metadata service",                         ADVICE_NONE   },
	[EGRESS_REASON_RESERVED] = {"it leads to a reserved address",                                 ADVICE_NONE   },
	[EGRESS_REASON_RESOLVE] = {"the name servers have no address for it",
                                "check the name, and the host's resolver"                                       },
	[EGRESS_REASON_CONNECT] = {"allowed, but nothing answers there",
                                "check that the server runs and is reachable from this host"                    },
	[EGRESS_REASON_GUARD] = {"the kernel's second line refuses it",                            ADVICE_PRIVATE},
	[EGRESS_REASON_SNI] = {"TLS names another host than was dialled",
				"dial the host that the certificate is for"                                     },
	[EGRESS_REASON_HOST] = {"HTTP names another host than was dialled",
				"dial the host that the request is for"                                         },
	[EGRESS_REASON_PATH] = {"production shares the host, and this path is not the sandbox's",
				"the operator may list it in shared_paths"                                      },
	[EGRESS_REASON_PROTOCOL] = {"not the protocol that the rule checks",
                                "use TLS on port 443, and HTTP on port 80 or on a shared host"                  },
	[EGRESS_REASON_LIMIT] = {"a limit of the session's network",
                                "keep fewer connections open at once"                                           },
	[EGRESS_REASON_LABELS] = {"too long or too random below a wildcard",
                                "name the host in a rule of its own"                                            },
	[EGRESS_REASON_REMOVED] = {"the rule for this connection was removed",                       ADVICE_ALLOW  },
};

/* Printable, cut. */
static void shown_host(const struct net_policy *policy, const struct egress_denial *denial,
		       char shown[SHOWN_BYTES])
{
	const char *label = policy_label_of(policy, denial->name, &denial->address);

	/* Production's own label tells which endpoint it is of; its name is what was dialled. */
	if (!label && denial->reason != EGRESS_REASON_PRODUCTION &&
	    (str_has_prefix(denial->label, "endpoint:") ||
	     str_has_prefix(denial->label, "companion:")))
		label = denial->label;
	if (label)
		(void)str_escape(shown, SHOWN_BYTES, label, strlen(label), false);
	else if (denial->name[0] != '\0')
		(void)str_escape(shown, SHOWN_BYTES, denial->name, strlen(denial->name), false);
	else if (!inet_ntop((int)denial->address.family, denial->address.bytes, shown, SHOWN_BYTES))
		IGNORE_RESULT(str_copy(shown, SHOWN_BYTES, "an address"));
}

static void what_text(const struct egress_denial *denial, const char *host,
		      char what[DENIAL_TEXT_BYTES])
{
	static const char *const channels[EGRESS_CHANNEL_MAX_] = {
		[EGRESS_CHANNEL_TCP] = "connection",
		[EGRESS_CHANNEL_DNS] = "name",
		[EGRESS_CHANNEL_HTTP] = "HTTP request",
		[EGRESS_CHANNEL_TLS] = "TLS connection",
	};
	const char *channel = channels[denial->channel];

	if (denial->channel == EGRESS_CHANNEL_DNS)
		IGNORE_RESULT(str_format(what, DENIAL_TEXT_BYTES, "%s %s", channel, host));
	else
		IGNORE_RESULT(str_format(what, DENIAL_TEXT_BYTES, "%s to %s port %u", channel, host,
					 denial->port));
}

/* Where no rule can lead, nobody is told to make one. */
static uint32_t reason_of(const struct egress_denial *denial)
{
	enum net_class net_class;

	if (denial->reason != EGRESS_REASON_RULE || denial->address.family == 0)
		return denial->reason;
	net_class = net_class_of(&denial->address);
	return net_class == NET_CLASS_PUBLIC || net_class == NET_CLASS_PRIVATE
		       ? denial->reason
		       : net_class_reason(net_class);
}

void egress_note_denial(struct app *app, struct session *session,
			const struct egress_denial *denial)
{
	const struct net_policy *policy = egress_policy_kept(app, session);
	uint32_t reason = reason_of(denial);
	char label[EGRESS_LABEL_BYTES];
	char host[SHOWN_BYTES];
	char rule[DENIAL_TEXT_BYTES];
	char what[DENIAL_TEXT_BYTES];

	/* Without it nobody knows which hosts are to be kept back. */
	if (!policy)
		return;
	(void)str_escape(label, sizeof(label), denial->label, strlen(denial->label), false);
	shown_host(policy, denial, host);
	what_text(denial, host, what);
	if (reason == EGRESS_REASON_PRODUCTION && label[0] != '\0')
		IGNORE_RESULT(str_format(rule, sizeof(rule), "a production host of %s", label));
	else
		IGNORE_RESULT(str_copy(rule, sizeof(rule), reasons[reason].rule));
	denials_note(app, session,
		     &(struct denial_report){
			     .kind = DENIAL_NETWORK,
			     .count = denial->count,
			     .what = what,
			     .rule = rule,
			     .source = "egress worker",
			     .advice = reasons[reason].advice,
		     });
}
