#include "supervisor/egress/http_head.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/egress_rule.h"
#include "base/num.h"
#include "base/str.h"

#define DIGITS_MAX       18
#define CHUNK_DIGITS_MAX 15
#define HOST_TEXT_BYTES  (HOST_NAME_BYTES + 16)

struct span {
	const char *at;
	size_t size;
};

struct reading {
	struct http_head head;
	struct span target;
	bool is_http_1_0;
	bool has_host;
	bool has_length;
	bool is_chunked;
};

static bool span_is(struct span span, const char *text)
{
	return span.size == strlen(text) && strncasecmp(span.at, text, span.size) == 0;
}

static bool is_token(struct span span)
{
	return span.size > 0 && str_only(span.at, span.size, "!#$%&'*+-.^_`|~");
}

/* The text up to `end`, which is dropped from *rest with it. */
static bool cut(struct span *rest, char end, struct span *ret_head)
{
	const char *at = memchr(rest->at, end, rest->size);

	if (!at)
		return false;
	*ret_head = (struct span){rest->at, (size_t)(at - rest->at)};
	rest->size -= ret_head->size + 1;
	rest->at = at + 1;
	return true;
}

static bool read_port(struct span text, uint32_t *ret_port)
{
	char copy[8];

	return str_copy_n(copy, sizeof(copy), text.at, text.size) == 0 &&
	       num_parse_u32(copy, 1, UINT16_MAX, ret_port) == 0;
}

/* "name", "name:port", "192.0.2.1:80", "[2001:db8::1]:80". */
static bool read_authority(struct span text, char host[HOST_NAME_BYTES + 2], uint32_t *ret_port)
{
	struct egress_address address;
	struct span name = text;
	struct span rest = {text.at + text.size, 0};
	bool bracketed = text.size > 0 && text.at[0] == '[';
	const char *end = memchr(text.at, bracketed ? ']' : ':', text.size);

	*ret_port = 0;
	if (bracketed) {
		if (!end)
			return false;
		name = (struct span){text.at + 1, (size_t)(end - text.at) - 1};
		rest = (struct span){end + 1, text.size - name.size - 2};
	} else if (end) {
		name.size = (size_t)(end - text.at);
		rest = (struct span){end, text.size - name.size};
	}
	if (rest.size > 0) {
		if (rest.at[0] != ':')
			return false;
		rest = (struct span){rest.at + 1, rest.size - 1};
		if (!read_port(rest, ret_port))
			return false;
	}
	if (!bracketed && host_name_canonical(name.at, name.size, host) == 0)
		return true;
	if (name.size == 0 || egress_address_parse(name.at, name.size, &address) < 0 ||
	    bracketed != !!memchr(name.at, ':', name.size))
		return false;
	return str_copy_n(host, HOST_NAME_BYTES, name.at, name.size) == 0;
}

/* One character of a path with its escape undone; 0: one that servers read differently. */
static char path_character(struct span *rest)
{
	char c = rest->at[0];
	int high, low;

	if (c != '%') {
		rest->at++;
		rest->size--;
		if (c == '\\' || c == ';' || c == '#')
			c = '\0';
		return c;
	}
	if (rest->size < 3)
		return '\0';
	high = str_hex_digit(rest->at[1]);
	low = str_hex_digit(rest->at[2]);
	rest->at += 3;
	rest->size -= 3;
	if (high < 0 || low < 0)
		return '\0';
	c = (char)(high << 4 | low); /* NOLINT(bugprone-narrowing-conversions): a byte */
	/* Separators, dots and a percent sign in disguise; bytes of control. */
	if ((unsigned char)c < 0x20 || c == 0x7f || strchr("/\\.%;?#", c))
		return '\0';
	return c;
}

/* Every segment has one reading: no empty one but the last, no "." and no "..". */
static bool segments_are_plain(const char *path)
{
	for (const char *at = path; at; at = strchr(at + 1, '/')) {
		size_t size = strcspn(at + 1, "/");
		bool is_last = at[1 + size] == '\0';

		if ((size == 0 && !is_last) || (size == 1 && at[1] == '.') ||
		    (size == 2 && at[1] == '.' && at[2] == '.'))
			return false;
	}
	return true;
}

static void read_path(struct span path, char ret_path[HTTP_PATH_BYTES])
{
	char text[HTTP_PATH_BYTES];
	const char *query = memchr(path.at, '?', path.size);
	size_t used = 0;

	ret_path[0] = '\0';
	if (query)
		path.size = (size_t)(query - path.at);
	if (path.size == 0 || path.at[0] != '/')
		return;
	while (path.size > 0) {
		char c = path_character(&path);

		if (c == '\0' || used + 1 >= sizeof(text))
			return;
		text[used++] = c;
	}
	text[used] = '\0';
	/* Longer forms of a dot or a slash are one to a careless decoder. */
	if (str_utf8_valid(text, used) && segments_are_plain(text))
		memcpy(ret_path, text, used + 1);
}

/* METHOD SP target SP HTTP/1.x */
static bool read_request_line(struct span line, struct reading *reading)
{
	struct span method;

	if (!cut(&line, ' ', &method) || !is_token(method) || span_is(method, "CONNECT") ||
	    !cut(&line, ' ', &reading->target) || reading->target.size == 0)
		return false;
	if (!span_is(line, "HTTP/1.1") && !span_is(line, "HTTP/1.0"))
		return false;
	reading->is_http_1_0 = line.at[line.size - 1] == '0';
	for (size_t i = 0; i < reading->target.size; i++)
		if (reading->target.at[i] <= 0x20 || reading->target.at[i] >= 0x7f)
			return false;
	return memcmp(line.at, "HTTP", 4) == 0;
}

/* Also the target of the absolute form, whose authority must say what Host says. */
static bool read_target(struct reading *reading)
{
	static const char scheme[] = "http://";
	struct span target = reading->target;
	char host[HOST_NAME_BYTES + 2];
	struct span authority;
	uint32_t port;

	if (target.at[0] == '/') {
		read_path(target, reading->head.path);
		return true;
	}
	if (span_is(target, "*"))
		return true;
	if (target.size < sizeof(scheme) || strncasecmp(target.at, scheme, 7) != 0)
		return false;
	target.at += 7;
	target.size -= 7;
	authority = (struct span){target.at, 0};
	while (authority.size < target.size && !strchr("/?", target.at[authority.size]))
		authority.size++;
	if (!read_authority(authority, host, &port) || strcmp(host, reading->head.host) != 0 ||
	    port != reading->head.port)
		return false;
	read_path((struct span){target.at + authority.size, target.size - authority.size},
		  reading->head.path);
	return true;
}

static bool on_host(struct reading *reading, struct span value)
{
	if (reading->has_host)
		return false;
	reading->has_host = true;
	return read_authority(value, reading->head.host, &reading->head.port);
}

static bool on_length(struct reading *reading, struct span value)
{
	char digits[DIGITS_MAX + 1];

	if (reading->has_length || value.size > DIGITS_MAX)
		return false;
	reading->has_length = true;
	return str_copy_n(digits, sizeof(digits), value.at, value.size) == 0 &&
	       num_parse_u64(digits, 0, UINT64_MAX, &reading->head.body_bytes) == 0;
}

static bool on_encoding(struct reading *reading, struct span value)
{
	if (reading->is_chunked || !span_is(value, "chunked"))
		return false;
	reading->is_chunked = true;
	return true;
}

static bool on_upgrade(struct reading *reading, struct span value)
{
	if (reading->head.upgrade != HTTP_UPGRADE_NONE)
		return false;
	reading->head.upgrade =
		span_is(value, "websocket") ? HTTP_UPGRADE_WEBSOCKET : HTTP_UPGRADE_OTHER;
	return true;
}

static bool on_indirect(struct reading *reading, struct span value)
{
	(void)value;
	reading->head.indirect = 1;
	return true;
}

static const struct header_row {
	const char *name;
	bool (*read)(struct reading *reading, struct span value);
} headers[] = {
	{"Host",               on_host    },
	{"Content-Length",     on_length  },
	{"Transfer-Encoding",  on_encoding},
	{"Upgrade",            on_upgrade },
 /* Servers and frameworks that believe these serve another host or path than the line says.
  */
	{"Forwarded",          on_indirect},
	{"X-Forwarded-Host",   on_indirect},
	{"X-Forwarded-Path",   on_indirect},
	{"X-Forwarded-Prefix", on_indirect},
	{"X-Forwarded-Uri",    on_indirect},
	{"X-Host",             on_indirect},
	{"X-Original-Uri",     on_indirect},
	{"X-Original-Url",     on_indirect},
	{"X-Rewrite-Url",      on_indirect},
};

/* Object stores of every vendor (X-Amz-, X-Goog-, X-Ms- ...) copy from where such a header says. */
static const char *const indirect_endings[] = {"-Copy-Source", "-Rename-Source"};

static bool ends_as(struct span name, const char *ending)
{
	size_t size = strlen(ending);

	return name.size > size && strncasecmp(name.at + name.size - size, ending, size) == 0;
}

/* A server that puts headers into variables reads "_" as "-"; the others do not. */
static bool reads_as(struct span name, const char *header)
{
	if (name.size != strlen(header))
		return false;
	for (size_t i = 0; i < name.size; i++) {
		const char *c = name.at[i] == '_' ? "-" : &name.at[i];

		if (strncasecmp(c, &header[i], 1) != 0)
			return false;
	}
	return true;
}

static bool read_header(const char *data, struct span line, struct reading *reading)
{
	struct span name;
	const char *begin = line.at;

	if (!cut(&line, ':', &name) || !is_token(name))
		return false;
	for (size_t i = 0; i < line.size; i++) {
		unsigned char c = (unsigned char)line.at[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	while (line.size > 0 && (line.at[0] == ' ' || line.at[0] == '\t')) {
		line.at++;
		line.size--;
	}
	while (line.size > 0 && (line.at[line.size - 1] == ' ' || line.at[line.size - 1] == '\t'))
		line.size--;
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		if (!reads_as(name, headers[i].name))
			continue;
		if (!span_is(name, headers[i].name))
			return false;
		if (headers[i].read == on_upgrade)
			reading->head.upgrade_at = (uint32_t)(begin - data);
		return headers[i].read(reading, line);
	}
	for (size_t i = 0; i < ARRAY_SIZE(indirect_endings); i++)
		if (ends_as(name, indirect_endings[i]))
			reading->head.indirect = 1;
	return true;
}

/* A line without its CR LF; a lone CR or LF is in none. */
static bool read_line(struct span *rest, struct span *ret_line)
{
	if (!cut(rest, '\n', ret_line) || ret_line->size == 0 ||
	    ret_line->at[ret_line->size - 1] != '\r')
		return false;
	ret_line->size--;
	return !memchr(ret_line->at, '\r', ret_line->size);
}

static bool read_head(const char *data, size_t size, struct reading *reading)
{
	struct span rest = {data, size};
	struct span line;

	if (!read_line(&rest, &line) || !read_request_line(line, reading))
		return false;
	for (;;) {
		if (!read_line(&rest, &line))
			return false;
		if (line.size == 0)
			break;
		if (!read_header(data, line, reading))
			return false;
	}
	if (!reading->has_host || !read_target(reading))
		return false;
	/* Both, or a coding that an old server ignores: two readings of where the request ends. */
	if (reading->is_chunked && (reading->has_length || reading->is_http_1_0))
		return false;
	reading->head.body = reading->is_chunked ? HTTP_BODY_CHUNKED : HTTP_BODY_LENGTH;
	return true;
}

void http_head_parse(const char *data, size_t size, struct http_head *ret_head)
{
	struct reading reading = {.head = {.verdict = HTTP_MORE}};
	const char *end;

	*ret_head = (struct http_head){.verdict = HTTP_BAD};
	if (size > HTTP_HEAD_MAX)
		return;
	end = memmem(data, size, "\r\n\r\n", 4);
	if (!end) {
		/* What can never become a request is refused at once, not after a timeout. */
		if (size < HTTP_HEAD_MAX && (size == 0 || is_token((struct span){data, 1})) &&
		    !memmem(data, size, "\n\n", 2))
			ret_head->verdict = HTTP_MORE;
		return;
	}
	reading.head.head_bytes = (uint32_t)(end - data) + 4;
	if (!read_head(data, reading.head.head_bytes, &reading))
		return;
	reading.head.verdict = HTTP_OK;
	*ret_head = reading.head;
}

void http_chunk_parse(const char *data, size_t size, int is_first, struct http_chunk *ret_chunk)
{
	size_t skip = is_first ? 0 : 2; /* the end of the chunk before it */
	size_t digits = 0;
	uint64_t bytes = 0;
	size_t need;

	*ret_chunk = (struct http_chunk){.verdict = HTTP_BAD};
	if (memcmp(data, "\r\n", size < skip ? size : skip) != 0)
		return;
	while (skip + digits < size && str_hex_digit(data[skip + digits]) >= 0) {
		if (digits == CHUNK_DIGITS_MAX)
			return;
		bytes = bytes << 4 | (unsigned int)str_hex_digit(data[skip + digits]);
		digits++;
	}
	/* The line's end; behind the last one, which is written in one way, the empty line too. */
	need = bytes == 0 ? 4 : 2;
	if (skip + digits < size) {
		size_t there = size - skip - digits;

		if (digits == 0 || (bytes == 0 && digits != 1) ||
		    memcmp(data + skip + digits, "\r\n\r\n", there < need ? there : need) != 0)
			return;
	}
	ret_chunk->verdict = HTTP_MORE;
	if (digits == 0 || size < skip + digits + need)
		return;
	ret_chunk->verdict = HTTP_OK;
	ret_chunk->head_bytes = (uint32_t)(skip + digits + need);
	ret_chunk->is_last = bytes == 0;
	ret_chunk->bytes = bytes;
}
