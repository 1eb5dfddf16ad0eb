/*
 * Why PostgreSQL is not there, in words of our own: libpq's name the host, the role and the
 * database, and a server's may repeat values.
 */
#pragma once

#include <libpq-fe.h>

/* Of a connection that failed; never NULL, and not the connection's. */
const char *pg_reason_of_connection(const PGconn *conn);
/* Of a statement that the server refused; NULL: nothing is known but the SQLSTATE. */
const char *pg_reason_of_sqlstate(const char *sqlstate);
