#include "supervisor/egress/inspect.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>

#include "base/sockmsg.h"

#define ANSWER_TIMEOUT_MS 5000 /* a host under load; the work itself is microseconds */

static bool name_valid(const char name[HOST_NAME_BYTES + 2])
{
	char again[HOST_NAME_BYTES];
	size_t length = strnlen(name, HOST_NAME_BYTES);

	return length < HOST_NAME_BYTES &&
	       (length == 0 ||
		(host_name_canonical(name, length, again) == 0 && strcmp(again, name) == 0));
}

static bool answer_valid(const struct inspect_answer *answer, size_t size)
{
	switch ((enum inspect_kind)answer->kind) {
	case INSPECT_DNS:
		return answer->u.dns.kind < DNS_KIND_MAX_ && answer->u.dns.bytes <= size &&
		       name_valid(answer->u.dns.name);
	case INSPECT_TLS:
		return answer->u.tls.verdict < TLS_VERDICT_MAX_ && name_valid(answer->u.tls.name);
	case INSPECT_HTTP_HEAD: {
		const struct http_head *head = &answer->u.http;

		return head->verdict < HTTP_VERDICT_MAX_ && head->head_bytes <= size &&
		       head->body < HTTP_BODY_MAX_ && head->upgrade < HTTP_UPGRADE_MAX_ &&
		       (head->upgrade == HTTP_UPGRADE_NONE ||
			(head->upgrade_at <= head->head_bytes &&
			 head->head_bytes - head->upgrade_at >= HTTP_UPGRADE_NAME)) &&
		       (head->verdict != HTTP_OK || head->head_bytes > 0) &&
		       memchr(head->host, '\0', sizeof(head->host)) &&
		       memchr(head->path, '\0', sizeof(head->path));
	}
	case INSPECT_HTTP_CHUNK:
	case INSPECT_HTTP_CHUNK_NEXT:
		return answer->u.chunk.verdict < HTTP_VERDICT_MAX_ &&
		       answer->u.chunk.head_bytes <= size &&
		       (answer->u.chunk.verdict != HTTP_OK || answer->u.chunk.head_bytes > 0);
	case INSPECT_KIND_MAX_:
		break;
	}
	return false;
}

int inspect(int fd, enum inspect_kind kind, const void *data, size_t size,
	    struct inspect_answer *ret_answer)
{
	struct inspect_ask ask = {.kind = (uint32_t)kind, .size = (uint32_t)size};
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	/* sendmsg reads only; its struct has no const. */
	union {
		const void *in;
		void *out;
	} bytes = {.in = data};
	struct iovec iov[2] = {
		{&ask,      sizeof(ask)},
		{bytes.out, size       },
	};
	ssize_t n;
	int r;

	if (size > INSPECT_MAX_BYTES)
		return -EMSGSIZE;
	r = sockmsg_sendv(fd, iov, size > 0 ? 2 : 1, NULL, 0);
	if (r < 0)
		return r;
	do {
		r = poll(&ready, 1, ANSWER_TIMEOUT_MS);
	} while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r < 0 ? -errno : -ETIMEDOUT;
	n = sockmsg_recv(fd, ret_answer, sizeof(*ret_answer), NULL, 0);
	if (n < 0)
		return (int)n;
	if (n != (ssize_t)sizeof(*ret_answer) || ret_answer->kind != (uint32_t)kind ||
	    !answer_valid(ret_answer, size))
		return -EPROTO;
	return 0;
}
