/*
 * What the service takes of a PostgreSQL connection string, for the program that reads the
 * configuration and the one that connects. Pure.
 */
#pragma once

#include <stdbool.h>

#define DSN_HOSTS_MAX    8
#define DSN_CERTIFICATES "/etc/ssl/certs/"

/* The part from "://" on, behind the scheme (postgresql, postgres) and SQLAlchemy's +driver; NULL:
 * another scheme. */
const char *dsn_behind_scheme(const char *dsn);
/* It names files of this machine, which the worker has none of. */
bool dsn_option_is_refused(const char *keyword);
/* But those of authorities. */
bool dsn_certificate_is_taken(const char *path);
/* What libpq makes of an option of the query, without libpq: false where it does not know the
 * keyword, or would end each try to connect for this value. NULL: one that is no plain text. */
bool dsn_option_is_taken(const char *keyword, const char *value);
/* An address of either family, and no name. */
bool dsn_is_address(const char *host);
bool dsn_are_addresses(const char *hosts); /* between commas */
