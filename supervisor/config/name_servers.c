#include "supervisor/config/name_servers.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#define KEYWORD "nameserver"
#define BLANKS  " \t"
#define BITS_V4 32
#define BITS_V6 128

static bool is_one_of(char c, const char *set)
{
	return c != '\0' && strchr(set, c);
}

static bool read_address(const char *word, size_t length, struct egress_address *ret_address)
{
	char text[INET6_ADDRSTRLEN];
	struct egress_address address = {.family = AF_INET, .prefix = BITS_V4};
	const char *scope = memchr(word, '%', length);

	/* fe80::1%eth0: the scope is no part of the address. */
	if (scope)
		length = (size_t)(scope - word);
	if (length >= sizeof(text))
		return false;
	memcpy(text, word, length);
	text[length] = '\0';
	if (inet_pton(AF_INET, text, address.bytes) != 1) {
		address = (struct egress_address){.family = AF_INET6, .prefix = BITS_V6};
		if (inet_pton(AF_INET6, text, address.bytes) != 1)
			return false;
	}
	*ret_address = address;
	return true;
}

static void read_line(const char *line, size_t length, struct egress_config *egress)
{
	const size_t keyword = strlen(KEYWORD);
	size_t at = keyword;
	size_t end;

	if (egress->n_name_servers == CONFIG_MAX_NS || length <= keyword ||
	    memcmp(line, KEYWORD, keyword) != 0 || !is_one_of(line[keyword], BLANKS))
		return;
	while (at < length && is_one_of(line[at], BLANKS))
		at++;
	end = at;
	while (end < length && !is_one_of(line[end], BLANKS "\r#;"))
		end++;
	if (read_address(line + at, end - at, &egress->name_server[egress->n_name_servers]))
		egress->n_name_servers++;
}

void name_servers_read(const char *text, size_t size, struct egress_config *egress)
{
	static const char fallback[] = KEYWORD " 127.0.0.1";
	size_t at = 0;

	egress->n_name_servers = 0;
	while (at < size) {
		const char *end = memchr(text + at, '\n', size - at);
		size_t length = end ? (size_t)(end - text) - at : size - at;

		read_line(text + at, length, egress);
		at += length + 1;
	}
	if (egress->n_name_servers == 0)
		read_line(fallback, strlen(fallback), egress);
}
