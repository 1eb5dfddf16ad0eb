#include "supervisor/api/store/pg_dsn.h"

#include <errno.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/dsn.h"
#include "base/str.h"

/* Ours, whatever the dsn says. Server-side bounds end what a lost client has begun. The passfile is
 * a name that is never there: of anything but a file libpq writes a warning. */
static const struct {
	const char *keyword;
	const char *value;
} ours[] = {
	{"application_name",    "sandboxd"								  },
	{"client_encoding",     "UTF8"								      },
	{"gssencmode",          "disable"								   },
	{"options",             "-c statement_timeout=5000 -c lock_timeout=3000"
		    " -c idle_in_transaction_session_timeout=5000"
		    " -c datestyle=ISO -c timezone=UTC -c standard_conforming_strings=on"},
	{"keepalives_idle",     "5"									 },
	{"keepalives_interval", "2"									 },
	{"keepalives_count",    "3"									 },
	{"tcp_user_timeout",    "8000"								      },
	{"passfile",            "/nonexistent"							      },
};

static bool is_ours(const char *keyword)
{
	for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
		if (str_equal(ours[i].keyword, keyword))
			return true;
	return false;
}

static const char *value_of(const struct pg_dsn *dsn, const char *keyword)
{
	for (const PQconninfoOption *at = dsn->options; at->keyword; at++)
		if (str_equal(at->keyword, keyword))
			return at->val;
	return NULL;
}

static bool is_host(const char *keyword)
{
	return str_equal(keyword, "host") || str_equal(keyword, "hostaddr");
}

/* With an address, `host` is who the certificate has to name. */
static bool host_is_taken(struct pg_dsn *dsn, const char *keyword, const char *value)
{
	if (str_equal(keyword, "host") && value_of(dsn, "hostaddr"))
		return value[0] != '/';
	if (dsn_are_addresses(value))
		return true;
	return str_equal(keyword, "host") && pg_hosts_split(dsn, value, value_of(dsn, "port")) == 0;
}

static bool checks_certificate(const struct pg_dsn *dsn)
{
	const char *mode = value_of(dsn, "sslmode");

	return mode && str_has_prefix(mode, "verify-");
}

static int add(struct pg_dsn *dsn, size_t *n, const char *keyword, const char *value)
{
	if (*n == PG_DSN_MAX)
		return -EINVAL;
	dsn->keyword[*n] = keyword;
	dsn->value[(*n)++] = value;
	return 0;
}

/* One option of the dsn, which has a value. */
static int take_option(struct pg_dsn *dsn, size_t *n, const PQconninfoOption *option,
		       bool has_files, struct err *err)
{
	const char *value = option->val;

	if (!has_files && dsn_option_is_refused(option->keyword))
		return err_fail(err, -EINVAL, "dsn", "%s is not taken", option->keyword);
	if (!has_files && str_equal(option->keyword, "sslrootcert") &&
	    !dsn_certificate_is_taken(value))
		return err_fail(err, -EINVAL, "dsn", "sslrootcert must be below " DSN_CERTIFICATES);
	if (str_equal(option->keyword, "password") && dsn->password)
		return 0;
	if (is_host(option->keyword)) {
		if (str_equal(value, "localhost"))
			value = "127.0.0.1";
		if (!has_files && !host_is_taken(dsn, option->keyword, value))
			return err_fail(err, -EINVAL, "dsn",
					"hosts must be names or addresses, with a port for each "
					"or for all");
	}
	return add(dsn, n, option->keyword, value) < 0
		       ? err_fail(err, -EINVAL, "dsn", "too many options")
		       : 0;
}

/* What pg_dsn_place fills; libpq passes over what has no value. */
static int reserve_places(struct pg_dsn *dsn, size_t *n)
{
	static const char *const keyword[PG_PLACE_MAX_] = {
		[PG_PLACE_HOST] = "host",
		[PG_PLACE_HOSTADDR] = "hostaddr",
		[PG_PLACE_PORT] = "port",
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < PG_PLACE_MAX_; i++) {
		dsn->place_at[i] = *n;
		r = add(dsn, n, keyword[i], NULL);
	}
	return r;
}

static int take(struct pg_dsn *dsn, bool has_files, struct err *err)
{
	const PQconninfoOption *options = dsn->options;
	bool has_host = has_files;
	size_t n = 0;
	int r = 0;

	for (const PQconninfoOption *at = options; r == 0 && at->keyword; at++) {
		if (!at->val || is_ours(at->keyword))
			continue;
		has_host |= is_host(at->keyword);
		r = take_option(dsn, &n, at, has_files, err);
	}
	if (r < 0)
		return r;
	if (!has_host)
		return err_fail(err, -EINVAL, "dsn", "names no host");
	/* The later ones of a keyword count. */
	if (dsn->n_hosts > 0)
		r = reserve_places(dsn, &n);
	if (r == 0 && dsn->password)
		r = add(dsn, &n, "password", dsn->password);
	if (r == 0 && !has_files && !value_of(dsn, "sslrootcert") && checks_certificate(dsn))
		r = add(dsn, &n, "sslrootcert", DSN_CERTIFICATES "ca-certificates.crt");
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(ours); i++)
		r = add(dsn, &n, ours[i].keyword, ours[i].value);
	return r < 0 ? err_fail(err, r, "dsn", "too many options") : 0;
}

int pg_dsn_parse(struct pg_dsn *ret_dsn, const char *dsn, const char *password, bool has_files,
		 struct err *err)
{
	AUTO_FREE char *plain = NULL;
	const char *rest = dsn_behind_scheme(dsn);
	char *complaint = NULL;
	int r;

	*ret_dsn = PG_DSN_NULL;
	if (!rest)
		return err_fail(err, -EINVAL, "dsn", "does not begin with postgresql://");
	if (asprintf(&plain, "postgresql%s", rest) < 0)
		return err_fail(err, -ENOMEM, "dsn", "no memory");
	/* Its complaint quotes the dsn. */
	ret_dsn->options = PQconninfoParse(plain, &complaint);
	explicit_bzero(plain, strlen(plain));
	PQfreemem(complaint);
	if (!ret_dsn->options)
		return err_fail(err, -EINVAL, "dsn", "not a connection string of PostgreSQL");
	if (password[0] != '\0') {
		ret_dsn->password = strdup(password);
		if (!ret_dsn->password) {
			pg_dsn_done(ret_dsn);
			return err_fail(err, -ENOMEM, "dsn", "no memory");
		}
	}
	r = take(ret_dsn, has_files, err);
	if (r < 0)
		pg_dsn_done(ret_dsn);
	return r;
}

void pg_dsn_done(struct pg_dsn *dsn)
{
	PQconninfoOption *options = dsn->options;

	for (PQconninfoOption *at = options; at && at->keyword; at++)
		if (at->val)
			explicit_bzero(at->val, strlen(at->val));
	PQconninfoFree(options);
	if (dsn->password)
		explicit_bzero(dsn->password, strlen(dsn->password));
	free(dsn->password);
	for (size_t i = 0; i < PG_PLACE_MAX_; i++)
		free(dsn->place[i]);
	*dsn = PG_DSN_NULL;
}
