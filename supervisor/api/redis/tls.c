#include "supervisor/api/redis/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

/* Of the worker's root: the host's. */
#define AUTHORITIES "/etc/ssl/certs/ca-certificates.crt"

struct redis_tls_trust {
	SSL_CTX *context;
};

struct redis_tls {
	SSL *ssl;
	bool wants_write;
};

int redis_tls_trust_new(struct redis_tls_trust **ret_trust)
{
	struct redis_tls_trust *trust = calloc(1, sizeof(*trust));

	if (!trust)
		return -ENOMEM;
	trust->context = SSL_CTX_new(TLS_client_method());
	if (!trust->context || SSL_CTX_set_min_proto_version(trust->context, TLS1_2_VERSION) != 1) {
		redis_tls_trust_free(trust);
		return -ENOMEM;
	}
	if (SSL_CTX_load_verify_file(trust->context, AUTHORITIES) != 1) {
		ERR_clear_error();
		redis_tls_trust_free(trust);
		return -EIO;
	}
	SSL_CTX_set_verify(trust->context, SSL_VERIFY_PEER, NULL);
	/* What was not written may have moved by the next try, or grown. */
	(void)SSL_CTX_set_mode(trust->context,
			       SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	*ret_trust = trust;
	return 0;
}

struct redis_tls_trust *redis_tls_trust_free(struct redis_tls_trust *trust)
{
	if (trust)
		SSL_CTX_free(trust->context);
	free(trust);
	return NULL;
}

static bool expect_server(SSL *ssl, const struct redis_server *server)
{
	const struct egress_address *address = &server->place.address;
	char text[INET6_ADDRSTRLEN];
	char name[sizeof(server->name)]; /* the macro for SNI takes it without its const */

	memcpy(name, server->name, sizeof(name));
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (server->name[0] != '\0')
		return SSL_set_tlsext_host_name(ssl, name) == 1 &&
		       SSL_set1_host(ssl, server->name) == 1;
	return inet_ntop((int)address->family, address->bytes, text, sizeof(text)) &&
	       X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), text) == 1;
}

int redis_tls_new(const struct redis_tls_trust *trust, int fd, const struct redis_server *server,
		  struct redis_tls **ret_tls)
{
	struct redis_tls *tls = calloc(1, sizeof(*tls));

	if (!tls)
		return -ENOMEM;
	tls->ssl = SSL_new(trust->context);
	if (!tls->ssl || SSL_set_fd(tls->ssl, fd) != 1 || !expect_server(tls->ssl, server)) {
		redis_tls_free(tls);
		return -ENOMEM;
	}
	SSL_set_connect_state(tls->ssl);
	*ret_tls = tls;
	return 0;
}

struct redis_tls *redis_tls_free(struct redis_tls *tls)
{
	if (tls)
		SSL_free(tls->ssl);
	free(tls);
	return NULL;
}

/* r: of a call that did not succeed. */
static int failure_of(struct redis_tls *tls, int r, int otherwise)
{
	int reason = SSL_get_error(tls->ssl, r);

	tls->wants_write = reason == SSL_ERROR_WANT_WRITE;
	/* What this thread's calls leave there is taken for the next one's. */
	ERR_clear_error();
	if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	return reason == SSL_ERROR_ZERO_RETURN ? 0 : otherwise;
}

int redis_tls_greet(struct redis_tls *tls)
{
	int r = SSL_do_handshake(tls->ssl);

	tls->wants_write = false;
	if (r == 1)
		return 0;
	r = failure_of(tls, r, -EPROTO);
	if (r == -EAGAIN)
		return r;
	return SSL_get_verify_result(tls->ssl) != X509_V_OK ? -EKEYREJECTED : -EPROTO;
}

ssize_t redis_tls_read(struct redis_tls *tls, void *data, size_t size)
{
	size_t n;
	int r = SSL_read_ex(tls->ssl, data, size, &n);

	tls->wants_write = false;
	return r == 1 ? (ssize_t)n : failure_of(tls, r, -EIO);
}

ssize_t redis_tls_write(struct redis_tls *tls, const void *data, size_t size)
{
	size_t n;
	int r = SSL_write_ex(tls->ssl, data, size, &n);

	tls->wants_write = false;
	return r == 1 ? (ssize_t)n : failure_of(tls, r, -EIO);
}

bool redis_tls_wants_write(const struct redis_tls *tls)
{
	return tls->wants_write;
}

bool redis_tls_has_more(const struct redis_tls *tls)
{
	return SSL_pending(tls->ssl) > 0;
}
