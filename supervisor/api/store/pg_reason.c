#include "supervisor/api/store/pg_reason.h"

#include <stddef.h>
#include <string.h>

#include "base/auto.h"
#include "base/str.h"

struct reason {
	const char *sign;
	const char *text;
};

/* The library has no codes for these; where its words change, the general text is left. */
static const struct reason of_connection[] = {
	{"certificate",                "the server's certificate is not accepted"             },
	{"Connection refused",         "the server cannot be reached: connection refused"     },
	{"No route to host",           "the server cannot be reached: no route to host"       },
	{"Network is unreachable",     "the server cannot be reached: network is unreachable" },
	{"timeout expired",            "the server cannot be reached: no answer in time"      },
	{"timed out",                  "the server cannot be reached: no answer in time"      },
	{"translate host name",        "the server cannot be reached: its name has no address"},
	{"does not support SSL",       "the server cannot be reached: it has no TLS"          },
	{"starting up",                "the server is starting"                               },
	{"shutting down",              "the server is stopping"                               },
	{"too many",                   "the server takes no more connections"                 },
	{"remaining connection slots", "the server takes no more connections"                 },
};

static const struct reason of_sqlstate[] = {
	{"25006", "the server is read-only"                        },
	{"53100", "the server's disk is full"                      },
	{"57014", "the server took too long"                       },
	{"55P03", "the server took too long for a lock"            },
	{"42501", "the server does not give the service the rights"},
};

const char *pg_reason_of_connection(const PGconn *conn)
{
	const char *message = PQerrorMessage(conn);

	for (size_t i = 0; i < ARRAY_SIZE(of_connection); i++)
		if (strstr(message, of_connection[i].sign))
			return of_connection[i].text;
	if (PQconnectionNeedsPassword(conn))
		return "the server wants a password";
	return PQconnectionUsedPassword(conn) ? "the server refuses the login"
					      : "the server cannot be reached";
}

const char *pg_reason_of_sqlstate(const char *sqlstate)
{
	for (size_t i = 0; i < ARRAY_SIZE(of_sqlstate); i++)
		if (str_equal(of_sqlstate[i].sign, sqlstate))
			return of_sqlstate[i].text;
	return NULL;
}
