#include "jail/template/source.h"

#include <errno.h>

#include "base/io.h"

void source_init(struct source *source, int fd, uint64_t max_bytes)
{
	source->fd = fd;
	source->n_bytes = 0;
	source->max_bytes = max_bytes;
	source->error = 0;
	sha256_init(&source->digest);
}

ssize_t source_next(struct source *source)
{
	ssize_t n;

	if (source->error < 0)
		return source->error;
	n = io_read(source->fd, source->chunk, sizeof(source->chunk));
	if (n < 0)
		source->error = (int)n;
	else if ((uint64_t)n > source->max_bytes - source->n_bytes)
		source->error = -EFBIG;
	if (source->error < 0)
		return source->error;
	source->n_bytes += (uint64_t)n;
	sha256_update(&source->digest, (size_t)n, source->chunk);
	return n;
}

int source_end(struct source *source, uint8_t ret_digest[SHA256_DIGEST_SIZE])
{
	ssize_t n;

	do
		n = source_next(source);
	while (n > 0);
	if (n < 0)
		return (int)n;
	sha256_digest(&source->digest, SHA256_DIGEST_SIZE, ret_digest);
	return 0;
}
