#include "tests/bench/client.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

int client_connect(struct client *client, const char *socket_path)
{
	union {
		struct sockaddr_un un;
		struct sockaddr any;
	} address = {.un = {.sun_family = AF_UNIX}};
	int fd, r;

	client->fd = -1;
	r = str_copy(address.un.sun_path, sizeof(address.un.sun_path), socket_path);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, &address.any, sizeof(address.un)) < 0) {
		r = -errno;
		(void)fd_close(fd);
		return r;
	}
	client->fd = fd;
	return 0;
}

void client_done(struct client *client)
{
	client->fd = fd_close(client->fd);
}

static int read_byte(struct reader *reader, char *ret_byte)
{
	ssize_t n;

	if (reader->at == reader->size) {
		n = io_read(reader->fd, reader->raw, sizeof(reader->raw));
		if (n < 0)
			return (int)n;
		if (n == 0)
			return -EPIPE;
		reader->at = 0;
		reader->size = (size_t)n;
	}
	*ret_byte = reader->raw[reader->at++];
	return 0;
}

static int read_line(struct reader *reader, char *line, size_t line_bytes)
{
	size_t n = 0;
	char byte = 0;
	int r;

	for (;;) {
		r = read_byte(reader, &byte);
		if (r < 0)
			return r;
		if (byte == '\n')
			break;
		if (byte != '\r' && n + 1 < line_bytes)
			line[n++] = byte;
	}
	line[n] = '\0';
	return 0;
}

static int read_body(struct client *client, struct reader *reader, size_t size)
{
	char byte = 0;
	int r;

	for (size_t i = 0; i < size; i++) {
		r = read_byte(reader, &byte);
		if (r < 0)
			return r;
		if (client->answer_bytes + 1 < sizeof(client->answer))
			client->answer[client->answer_bytes++] = byte;
	}
	return 0;
}

static int read_chunks(struct client *client, struct reader *reader)
{
	char line[128];
	size_t size;
	int r;

	for (;;) {
		r = read_line(reader, line, sizeof(line));
		if (r < 0)
			return r;
		size = 0;
		for (const char *c = line; *c && strchr("0123456789abcdefABCDEF", *c); c++)
			size = size * 16 + (size_t)(*c <= '9' ? *c - '0' : (*c | 0x20) - 'a' + 10);
		r = read_body(client, reader, size);
		if (r < 0)
			return r;
		r = read_line(reader, line, sizeof(line));
		if (r < 0)
			return r;
		if (size == 0)
			return 0;
	}
}

static int read_answer(struct client *client)
{
	struct reader *reader = &client->reader;
	uint64_t length = 0;
	bool chunked = false;
	char line[1024];
	int r;

	reader->fd = client->fd;
	reader->at = 0;
	reader->size = 0;
	client->answer_bytes = 0;
	r = read_line(reader, line, sizeof(line));
	if (r < 0)
		return r;
	if (strlen(line) < 12)
		return -EPROTO;
	client->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
	for (;;) {
		r = read_line(reader, line, sizeof(line));
		if (r < 0)
			return r;
		if (line[0] == '\0')
			break;
		if (strncasecmp(line, "content-length: ", 16) == 0) {
			r = num_parse_u64(line + 16, 0, UINT32_MAX, &length);
			if (r < 0)
				return r;
		}
		if (strncasecmp(line, "transfer-encoding: chunked", 26) == 0)
			chunked = true;
	}
	r = chunked ? read_chunks(client, reader) : read_body(client, reader, (size_t)length);
	client->answer[client->answer_bytes] = '\0';
	return r;
}

int client_request(struct client *client, const char *method, const char *path, const char *body)
{
	char head[1024];
	size_t body_bytes = body ? strlen(body) : 0;
	int r;

	r = str_format(head, sizeof(head),
		       "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		       "%sContent-Length: %zu\r\n\r\n",
		       method, path, client->identity ? client->identity : "", body_bytes);
	if (r < 0)
		return r;
	/* One segment where it fits: the daemon then sees the whole request at once. */
	if (body && strlen(head) + body_bytes < sizeof(head)) {
		memcpy(head + strlen(head), body, body_bytes + 1);
		body_bytes = 0;
	}
	r = io_write_all(client->fd, head, strlen(head));
	if (r == 0 && body_bytes > 0)
		r = io_write_all(client->fd, body, body_bytes);
	if (r < 0)
		return r;
	return read_answer(client);
}

int client_member(const struct client *client, const char *name, char *text, size_t text_bytes)
{
	char key[64];
	const char *at, *end;
	int r;

	r = str_format(key, sizeof(key), "\"%s\":", name);
	if (r < 0)
		return r;
	at = strstr(client->answer, key);
	if (!at)
		return -ENOENT;
	at += strlen(key);
	while (*at == ' ')
		at++;
	if (*at != '"')
		return -ENOENT;
	end = strchr(++at, '"');
	if (!end)
		return -ENOENT;
	return str_copy_n(text, text_bytes, at, (size_t)(end - at));
}
