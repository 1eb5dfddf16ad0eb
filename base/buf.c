#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

void buf_done(struct buf *buf)
{
	free(buf->data);
	buf->data = NULL;
	buf->size = 0;
	buf->allocated = 0;
}

void buf_wipe(struct buf *buf)
{
	if (buf->data)
		explicit_bzero(buf->data, buf->allocated);
	buf_done(buf);
}

void buf_reset(struct buf *buf)
{
	buf->size = 0;
}

int buf_reserve(struct buf *buf, size_t more)
{
	size_t wanted, allocated;
	uint8_t *data;

	if (buf->size > buf->max_bytes || more > buf->max_bytes - buf->size)
		return -EMSGSIZE;
	wanted = buf->size + more + 1; /* buf_text's NUL always has a place */
	if (wanted <= buf->allocated)
		return 0;
	allocated = buf->allocated < 128 ? 128 : buf->allocated;
	while (allocated < wanted)
		if (__builtin_mul_overflow(allocated, (size_t)2, &allocated))
			return -ENOMEM;
	data = realloc(buf->data, allocated);
	if (!data)
		return -ENOMEM;
	buf->data = data;
	buf->allocated = allocated;
	return 0;
}

int buf_append(struct buf *buf, const void *data, size_t size)
{
	int r = buf_reserve(buf, size);

	if (r < 0)
		return r;
	if (size > 0)
		memcpy(buf->data + buf->size, data, size);
	buf->size += size;
	return 0;
}

int buf_append_str(struct buf *buf, const char *text)
{
	return buf_append(buf, text, strlen(text));
}

int buf_append_u32(struct buf *buf, uint32_t value)
{
	return buf_append(buf, &value, sizeof(value));
}

int buf_append_u64(struct buf *buf, uint64_t value)
{
	return buf_append(buf, &value, sizeof(value));
}

int buf_printf(struct buf *buf, const char *format, ...)
{
	va_list args;
	int n, r;

	va_start(args, format);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n < 0)
		return -EINVAL;
	r = buf_reserve(buf, (size_t)n);
	if (r < 0)
		return r;
	va_start(args, format);
	r = vsnprintf((char *)buf->data + buf->size, (size_t)n + 1, format, args);
	va_end(args);
	ASSERT(r == n);
	buf->size += (size_t)n;
	return 0;
}

const char *buf_text(struct buf *buf)
{
	if (buf_reserve(buf, 0) < 0)
		return NULL;
	buf->data[buf->size] = '\0';
	return (const char *)buf->data;
}

void buf_consume(struct buf *buf, size_t size)
{
	ASSERT(size <= buf->size);
	if (size == 0)
		return;
	buf->size -= size;
	memmove(buf->data, buf->data + size, buf->size);
}

int buf_get(struct buf_reader *reader, void *ret_data, size_t size)
{
	ASSERT(reader->at <= reader->size);
	if (size > reader->size - reader->at)
		return -EBADMSG;
	if (size > 0)
		memcpy(ret_data, reader->data + reader->at, size);
	reader->at += size;
	return 0;
}

int buf_get_u32(struct buf_reader *reader, uint32_t *ret_value)
{
	return buf_get(reader, ret_value, sizeof(*ret_value));
}

int buf_get_u64(struct buf_reader *reader, uint64_t *ret_value)
{
	return buf_get(reader, ret_value, sizeof(*ret_value));
}

int buf_get_str(struct buf_reader *reader, const char **ret_text, size_t *ret_length)
{
	const uint8_t *start, *nul;

	ASSERT(reader->at <= reader->size);
	if (reader->at == reader->size)
		return -EBADMSG;
	start = reader->data + reader->at;
	nul = memchr(start, '\0', reader->size - reader->at);
	if (!nul)
		return -EBADMSG;
	*ret_text = (const char *)start;
	*ret_length = (size_t)(nul - start);
	reader->at += (size_t)(nul - start) + 1;
	return 0;
}
