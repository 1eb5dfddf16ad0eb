#include <errno.h>
#include <string.h>

#include "base/sockmsg.h"

#include "supervisor/egress/inspect.h"

static void answer(enum inspect_kind kind, const uint8_t *data, size_t size,
		   struct inspect_answer *ret)
{
	const char *text = (const char *)data;

	switch (kind) {
	case INSPECT_DNS:
		dns_parse(data, size, &ret->u.dns);
		break;
	case INSPECT_TLS:
		tls_hello_parse(data, size, &ret->u.tls);
		break;
	case INSPECT_HTTP_HEAD:
		http_head_parse(text, size, &ret->u.http);
		break;
	case INSPECT_HTTP_CHUNK:
	case INSPECT_HTTP_CHUNK_NEXT:
		http_chunk_parse(text, size, kind == INSPECT_HTTP_CHUNK, &ret->u.chunk);
		break;
	case INSPECT_KIND_MAX_:
		break;
	}
}

int inspector_run(int fd)
{
	static uint8_t message[sizeof(struct inspect_ask) + INSPECT_MAX_BYTES];
	struct inspect_answer reply;
	struct inspect_ask ask;

	for (;;) {
		ssize_t n = sockmsg_recv(fd, message, sizeof(message), NULL, 0);
		int r;

		if (n <= 0)
			return (int)n;
		if ((size_t)n < sizeof(ask))
			return -EPROTO;
		memcpy(&ask, message, sizeof(ask));
		if (ask.kind == 0 || ask.kind >= INSPECT_KIND_MAX_ ||
		    ask.size != (size_t)n - sizeof(ask))
			return -EPROTO;
		memset(&reply, 0, sizeof(reply));
		reply.kind = ask.kind;
		answer((enum inspect_kind)ask.kind, message + sizeof(ask), ask.size, &reply);
		r = sockmsg_send(fd, &reply, sizeof(reply), NULL, 0);
		if (r < 0)
			return r;
	}
}
