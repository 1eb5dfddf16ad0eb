#include "base/tether.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum tether_kind {
	TETHER_KIND_HELLO = 1, /* number: taken so far; the name follows */
	TETHER_KIND_DATA,
	TETHER_KIND_ACK, /* number: taken so far; nothing follows */
};

struct tether_header {
	uint32_t length; /* of what follows */
	uint32_t kind;   /* enum tether_kind */
	uint64_t number;
};
_Static_assert(sizeof(struct tether_header) == TETHER_HEADER_BYTES, "what the buffers count with");

int tether_init(struct tether *tether, uint64_t name)
{
	int r;

	*tether = (struct tether){.name = name, .is_caller = name != 0};
	r = ring_init(&tether->kept, TETHER_KEPT_BYTES);
	if (r < 0)
		return r;
	tether->in = malloc(TETHER_IN_BYTES);
	tether->out = malloc(TETHER_IN_BYTES);
	if (!tether->in || !tether->out) {
		tether_done(tether);
		return -ENOMEM;
	}
	return 0;
}

void tether_done(struct tether *tether)
{
	ring_done(&tether->kept);
	free(tether->in);
	free(tether->out);
	*tether = (struct tether){0};
}

void tether_stream(struct tether *tether)
{
	tether->says_hello = tether->is_caller;
	tether->is_greeted = false;
	tether->in_at = tether->in_end = 0;
	tether->out_at = tether->out_end = 0;
	tether->next = 0;
}

bool tether_may_put(const struct tether *tether)
{
	return ring_free_bytes(&tether->kept) >= TETHER_HEADER_BYTES + TETHER_MESSAGE_MAX_BYTES;
}

int tether_put(struct tether *tether, const void *data, size_t size)
{
	struct tether_header header = {
		.length = (uint32_t)size, .kind = TETHER_KIND_DATA, .number = tether->sent + 1};

	ASSERT(tether->name != 0 && size > 0 && size <= TETHER_MESSAGE_MAX_BYTES);
	if (ring_free_bytes(&tether->kept) < sizeof(header) + size)
		return -EAGAIN;
	(void)ring_put(&tether->kept, &header, sizeof(header));
	(void)ring_put(&tether->kept, data, size);
	tether->sent++;
	return 0;
}

/* Out. */

static void out_add(struct tether *tether, const void *data, size_t size)
{
	memcpy(tether->out + tether->out_end, data, size);
	tether->out_end += size;
}

static void out_header(struct tether *tether, enum tether_kind kind, size_t length)
{
	struct tether_header header = {
		.length = (uint32_t)length, .kind = kind, .number = tether->taken};

	out_add(tether, &header, sizeof(header));
	tether->told = tether->taken;
	tether->untold_bytes = 0;
}

/* Beside what goes out anyway, and before the far end would have to wait. */
static bool tells(const struct tether *tether)
{
	return tether->told != tether->taken &&
	       (tether->next < tether->kept.used || tether->untold_bytes >= TETHER_KEPT_BYTES / 4);
}

/* Whole messages, as many as there is room for. */
static void out_messages(struct tether *tether)
{
	struct tether_header header;

	while (tether->next < tether->kept.used) {
		size_t size;

		(void)ring_peek(&tether->kept, tether->next, &header, sizeof(header));
		size = sizeof(header) + header.length;
		if (size > TETHER_IN_BYTES - tether->out_end)
			return;
		(void)ring_peek(&tether->kept, tether->next, tether->out + tether->out_end, size);
		tether->out_end += size;
		tether->next += size;
	}
}

size_t tether_pending(struct tether *tether, const void **ret_data)
{
	if (tether->out_at == tether->out_end) {
		tether->out_at = tether->out_end = 0;
		if (tether->says_hello) {
			out_header(tether, TETHER_KIND_HELLO, sizeof(tether->name));
			out_add(tether, &tether->name, sizeof(tether->name));
			tether->says_hello = false;
		}
		if (tether->is_greeted && tells(tether))
			out_header(tether, TETHER_KIND_ACK, 0);
		if (tether->is_greeted)
			out_messages(tether);
	}
	*ret_data = tether->out + tether->out_at;
	return tether->out_end - tether->out_at;
}

void tether_wrote(struct tether *tether, size_t size)
{
	ASSERT(size <= tether->out_end - tether->out_at);
	tether->out_at += size;
}

/* In. */

size_t tether_space(struct tether *tether, void **ret_data)
{
	/* In the half that is then left a message fits that has begun. */
	if (tether->in_at > 0 && TETHER_IN_BYTES - tether->in_end < TETHER_IN_BYTES / 2) {
		memmove(tether->in, tether->in + tether->in_at, tether->in_end - tether->in_at);
		tether->in_end -= tether->in_at;
		tether->in_at = 0;
	}
	*ret_data = tether->in + tether->in_end;
	return TETHER_IN_BYTES - tether->in_end;
}

void tether_read(struct tether *tether, size_t size)
{
	ASSERT(size <= TETHER_IN_BYTES - tether->in_end);
	tether->in_end += size;
}

/* The far end has taken all up to this number. */
static int take_ack(struct tether *tether, uint64_t number)
{
	struct tether_header header;

	if (number < tether->acked)
		return -ESTALE;
	if (number > tether->sent)
		return -EPROTO;
	while (tether->acked < number) {
		size_t size;

		(void)ring_peek(&tether->kept, 0, &header, sizeof(header));
		size = sizeof(header) + header.length;
		/* Only what this stream has sent can have been taken, but before its hello. */
		if (tether->is_greeted && tether->next < size)
			return -EPROTO;
		ring_drop(&tether->kept, size);
		tether->next -= tether->is_greeted ? size : 0;
		tether->acked = header.number;
	}
	return 0;
}

/* What the two had is void. */
static void begin(struct tether *tether, uint64_t name)
{
	ring_drop(&tether->kept, tether->kept.used);
	tether->name = name;
	tether->sent = tether->acked = tether->taken = tether->told = 0;
	tether->next = tether->untold_bytes = 0;
}

static int take_hello(struct tether *tether, const struct tether_header *header,
		      const uint8_t *payload)
{
	bool is_new;
	uint64_t name;
	int r;

	memcpy(&name, payload, sizeof(name));
	is_new = name != tether->name;
	if (tether->is_greeted || name == 0 || (is_new && tether->is_caller))
		return -EPROTO;
	if (is_new)
		begin(tether, name);
	r = take_ack(tether, header->number);
	if (r < 0)
		return r;
	tether->is_greeted = true;
	tether->says_hello = !tether->is_caller;
	return is_new ? TETHER_BEGUN : TETHER_NOTHING;
}

/* Of a whole one. */
static int take(struct tether *tether, const struct tether_header *header, const uint8_t *payload)
{
	if (header->kind == TETHER_KIND_HELLO)
		return take_hello(tether, header, payload);
	if (!tether->is_greeted)
		return -EPROTO;
	if (header->kind == TETHER_KIND_ACK)
		return take_ack(tether, header->number);
	return header->number == tether->taken + 1 ? TETHER_MESSAGE : -EPROTO;
}

static bool has_its_length(const struct tether_header *header)
{
	switch (header->kind) {
	case TETHER_KIND_HELLO:
		return header->length == sizeof(uint64_t);
	case TETHER_KIND_DATA:
		return header->length > 0 && header->length <= TETHER_MESSAGE_MAX_BYTES;
	case TETHER_KIND_ACK:
		return header->length == 0;
	default:
		return false;
	}
}

int tether_next(struct tether *tether, const void **ret_data, size_t *ret_size)
{
	struct tether_header header;

	while (tether->in_end - tether->in_at >= sizeof(header)) {
		const uint8_t *at = tether->in + tether->in_at;
		int found;

		memcpy(&header, at, sizeof(header));
		if (!has_its_length(&header))
			return -EPROTO;
		if (tether->in_end - tether->in_at < sizeof(header) + header.length)
			break;
		found = take(tether, &header, at + sizeof(header));
		if (found < 0)
			return found;
		if (found == TETHER_MESSAGE) {
			*ret_data = at + sizeof(header);
			*ret_size = header.length;
			return TETHER_MESSAGE;
		}
		tether->in_at += sizeof(header) + header.length;
		if (found != TETHER_NOTHING)
			return found;
	}
	return TETHER_NOTHING;
}

void tether_took(struct tether *tether)
{
	struct tether_header header;

	ASSERT(tether->in_end - tether->in_at >= sizeof(header));
	memcpy(&header, tether->in + tether->in_at, sizeof(header));
	ASSERT(header.kind == TETHER_KIND_DATA && header.number == tether->taken + 1);
	tether->in_at += sizeof(header) + header.length;
	tether->untold_bytes += sizeof(header) + header.length;
	tether->taken++;
}
