/*
 * Frames lie in the ring as they go over the socket, so output is copied once (pipe to ring) and
 * sent from where it lies, also the second time.
 */
#include "shim/outbox.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/sockmsg.h"

/* Less room than this is not worth a frame. */
#define OUTBOX_MIN_PAYLOAD 4096

void outbox_done(struct outbox *outbox)
{
	ring_done(&outbox->ring);
	*outbox = (struct outbox){0};
}

static bool outbox_peek_header(const struct outbox *outbox, size_t offset,
			       struct wire_header *ret_header)
{
	if (offset >= outbox->ring.used)
		return false;
	ASSERT(ring_peek(&outbox->ring, offset, ret_header, sizeof(*ret_header)) ==
	       sizeof(*ret_header));
	return true;
}

static void outbox_drop_first(struct outbox *outbox, const struct wire_header *header)
{
	ring_drop(&outbox->ring, header->length);
	outbox->n_frames--;
	outbox->sent_bytes -=
		outbox->sent_bytes < header->length ? outbox->sent_bytes : header->length;
}

/* Kept frames that this connection has, so that a frame of full length fits. */
static void outbox_make_room(struct outbox *outbox)
{
	struct wire_header header;

	while (ring_free_bytes(&outbox->ring) < WIRE_FRAME_MAX_BYTES &&
	       outbox_peek_header(outbox, 0, &header) && header.number <= outbox->acked &&
	       outbox->sent_bytes >= header.length) {
		outbox->dropped = header.number;
		outbox_drop_first(outbox, &header);
	}
}

size_t outbox_room(struct outbox *outbox, size_t ring_bytes)
{
	size_t room;

	if (outbox->keeps && outbox->ring.data)
		outbox_make_room(outbox);
	room = outbox->ring.data ? ring_free_bytes(&outbox->ring) : ring_bytes;
	if (room < sizeof(struct wire_header) + OUTBOX_MIN_PAYLOAD)
		return 0;
	room -= sizeof(struct wire_header);
	return room < WIRE_PAYLOAD_MAX_BYTES ? room : WIRE_PAYLOAD_MAX_BYTES;
}

/* Cut pieces to `size` bytes from `offset` on. The number of pieces. */
static int outbox_slice(struct iovec iov[2], int n_iov, size_t offset, size_t size)
{
	int n = 0;

	for (int i = 0; i < n_iov && size > 0; i++) {
		size_t length = iov[i].iov_len;

		if (offset >= length) {
			offset -= length;
			continue;
		}
		length -= offset;
		if (length > size)
			length = size;
		iov[n].iov_base = (uint8_t *)iov[i].iov_base + offset;
		iov[n].iov_len = length;
		n++;
		offset = 0;
		size -= length;
	}
	return n;
}

static void outbox_scatter(const struct iovec *iov, int n_iov, const void *data, size_t size)
{
	const uint8_t *at = data;

	for (int i = 0; i < n_iov && size > 0; i++) {
		size_t length = iov[i].iov_len < size ? iov[i].iov_len : size;

		memcpy(iov[i].iov_base, at, length);
		at += length;
		size -= length;
	}
}

int outbox_first(struct outbox *outbox, struct wire_header header, const void *payload,
		 size_t ring_bytes)
{
	int r;

	ASSERT(!outbox->ring.data && header.length <= ring_bytes);
	r = ring_init(&outbox->ring, ring_bytes);
	if (r < 0)
		return r;
	outbox_append(outbox, header, payload);
	return 0;
}

void outbox_append(struct outbox *outbox, struct wire_header header, const void *payload)
{
	size_t size = header.length - sizeof(header);

	ASSERT(ring_put(&outbox->ring, &header, sizeof(header)) == sizeof(header));
	ASSERT(ring_put(&outbox->ring, payload, size) == size);
	outbox->n_frames++;
}

ssize_t outbox_read(struct outbox *outbox, int fd, struct wire_header header, size_t max_payload)
{
	struct iovec space[2];
	struct iovec iov[2];
	int n_space;
	int n_iov;
	ssize_t n;

	n_space = ring_space_iov(&outbox->ring, space);
	memcpy(iov, space, sizeof(iov));
	n_iov = outbox_slice(iov, n_space, sizeof(header), max_payload);
	do {
		n = readv(fd, iov, n_iov);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return 0;
	header.length = (uint32_t)(sizeof(header) + (size_t)n);
	outbox_scatter(space, n_space, &header, sizeof(header));
	ring_commit(&outbox->ring, header.length);
	outbox->n_frames++;
	return n;
}

void outbox_set_last(struct outbox *outbox, struct wire_header header, const void *payload)
{
	size_t size = header.length - sizeof(header);

	ASSERT(outbox->last.header.type == 0 && size <= sizeof(outbox->last.payload));
	if (size > 0)
		memcpy(&outbox->last.payload, payload, size);
	outbox->last.header = header;
	outbox->last.is_sent = false;
}

/* As it goes out. */
static void outbox_flag(const struct outbox *outbox, struct wire_header *header)
{
	header->flags = outbox->keeps && header->number <= outbox->acked ? WIRE_AGAIN : 0;
}

uint64_t outbox_next(const struct outbox *outbox)
{
	struct wire_header header;

	if (outbox_peek_header(outbox, outbox->sent_bytes, &header))
		return header.number;
	if (outbox->last.header.type != 0 && !outbox->last.is_sent)
		return outbox->last.header.number;
	return 0;
}

static int outbox_send_last(struct outbox *outbox, int fd)
{
	struct wire_header header = outbox->last.header;
	struct iovec iov[2] = {
		{.iov_base = &header,               .iov_len = sizeof(struct wire_header)},
		{.iov_base = &outbox->last.payload,
		 .iov_len = outbox->last.header.length - sizeof(struct wire_header)      },
	};
	int r;

	outbox_flag(outbox, &header);
	r = sockmsg_sendv(fd, iov, iov[1].iov_len > 0 ? 2 : 1, NULL, 0);
	if (r >= 0)
		outbox->last.is_sent = true;
	return r;
}

int outbox_send(struct outbox *outbox, int fd)
{
	struct wire_header header;
	struct iovec iov[3];
	int n;
	int r;

	if (!outbox_peek_header(outbox, outbox->sent_bytes, &header))
		return outbox_send_last(outbox, fd);
	outbox_flag(outbox, &header);
	iov[0] = (struct iovec){.iov_base = &header, .iov_len = sizeof(header)};
	n = ring_used_iov(&outbox->ring, iov + 1);
	n = outbox_slice(iov + 1, n, outbox->sent_bytes + sizeof(header),
			 header.length - sizeof(header));
	r = sockmsg_sendv(fd, iov, (size_t)n + 1, NULL, 0);
	if (r >= 0)
		outbox->sent_bytes += header.length;
	return r;
}

void outbox_ack(struct outbox *outbox, uint64_t acked)
{
	struct wire_header header;

	if (outbox->keeps) {
		if (acked > outbox->acked)
			outbox->acked = acked;
		return;
	}
	while (outbox_peek_header(outbox, 0, &header) && header.number <= acked)
		outbox_drop_first(outbox, &header);
	if (outbox->last.header.type != 0 && outbox->last.header.number <= acked)
		outbox->last.header = (struct wire_header){0};
}

void outbox_rewind(struct outbox *outbox)
{
	outbox->sent_bytes = 0;
	outbox->last.is_sent = false;
}

bool outbox_empty(const struct outbox *outbox)
{
	return outbox->n_frames == 0 && outbox->last.header.type == 0;
}

bool outbox_rests(const struct outbox *outbox)
{
	return outbox->keeps ? outbox->last.header.type != 0 &&
				       outbox->last.header.number <= outbox->acked
			     : outbox_empty(outbox);
}

size_t outbox_frames(const struct outbox *outbox)
{
	return outbox->n_frames + (outbox->last.header.type != 0 ? 1 : 0);
}

size_t outbox_bytes(const struct outbox *outbox)
{
	return outbox->ring.used + outbox->last.header.length;
}
