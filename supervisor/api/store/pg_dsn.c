#include "supervisor/api/store/pg_dsn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

/* Ours, whatever the dsn says. Server-side bounds end what a lost client has begun. */
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
	{"passfile",            "/dev/null"								 },
};

/* Files of this machine, which the worker has none of but for certificates to trust. */
static const char *const refused[] = {"service", "servicefile", "sslkey",
				      "sslcert", "sslcrl",      "sslcrldir"};

#define CERTIFICATES     "/etc/ssl/certs/"
#define ALL_CERTIFICATES CERTIFICATES "ca-certificates.crt"

static const char *const schemes[] = {"postgresql", "postgres"};

/* The part behind the scheme and its driver, or NULL. */
static const char *behind_scheme(const char *dsn)
{
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
		const char *at = dsn + strlen(schemes[i]);

		if (!str_has_prefix(dsn, schemes[i]))
			continue;
		if (*at == '+')
			at += 1 + strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
		if (str_has_prefix(at, "://"))
			return at;
	}
	return NULL;
}

static bool is_number(const char *host)
{
	struct in6_addr address;

	return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* Hosts may be a list. */
static bool hosts_are_numbers(const char *hosts)
{
	char host[INET6_ADDRSTRLEN];
	size_t length;

	for (const char *at = hosts;; at += length + 1) {
		length = strcspn(at, ",");
		if (str_copy_n(host, sizeof(host), at, length) < 0 || !is_number(host))
			return false;
		if (at[length] == '\0')
			return true;
	}
}

static bool is_listed(const char *keyword)
{
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		if (str_equal(refused[i], keyword))
			return true;
	return false;
}

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

/* The worker resolves no names: with an address, `host` is who the certificate has to name. */
static bool host_is_taken(const struct pg_dsn *dsn, const char *keyword, const char *value)
{
	if (str_equal(keyword, "host") && value_of(dsn, "hostaddr"))
		return value[0] != '/';
	return hosts_are_numbers(value);
}

static bool checks_certificate(const struct pg_dsn *dsn)
{
	const char *mode = value_of(dsn, "sslmode");

	return mode && str_has_prefix(mode, "verify-");
}

static bool is_certificate(const char *path)
{
	return str_has_prefix(path, CERTIFICATES) && !strstr(path, "/.");
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

	if (!has_files && is_listed(option->keyword))
		return err_fail(err, -EINVAL, "dsn", "%s is not taken", option->keyword);
	if (!has_files && str_equal(option->keyword, "sslrootcert") && !is_certificate(value))
		return err_fail(err, -EINVAL, "dsn", "sslrootcert must be below " CERTIFICATES);
	if (str_equal(option->keyword, "password") && dsn->password)
		return 0;
	if (is_host(option->keyword)) {
		if (str_equal(value, "localhost"))
			value = "127.0.0.1";
		if (!has_files && !host_is_taken(dsn, option->keyword, value))
			return err_fail(err, -EINVAL, "dsn",
					"the host must be an address or localhost, or have a "
					"hostaddr");
	}
	return add(dsn, n, option->keyword, value) < 0
		       ? err_fail(err, -EINVAL, "dsn", "too many options")
		       : 0;
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
	if (dsn->password)
		r = add(dsn, &n, "password", dsn->password);
	if (r == 0 && !has_files && !value_of(dsn, "sslrootcert") && checks_certificate(dsn))
		r = add(dsn, &n, "sslrootcert", ALL_CERTIFICATES);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(ours); i++)
		r = add(dsn, &n, ours[i].keyword, ours[i].value);
	return r < 0 ? err_fail(err, r, "dsn", "too many options") : 0;
}

int pg_dsn_parse(struct pg_dsn *ret_dsn, const char *dsn, const char *password, bool has_files,
		 struct err *err)
{
	AUTO_FREE char *plain = NULL;
	const char *rest = behind_scheme(dsn);
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
	*dsn = PG_DSN_NULL;
}
