/* What is sent to a shim, and commands. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/frame.h"
#include "base/sockmsg.h"

#include "supervisor/api/link/shim_link_state.h"

/* struct iovec has no const: what is sent is not written to. */
struct iovec shim_link_piece(const void *data, size_t size)
{
	union {
		const void *from;
		void *to;
	} pointer = {.from = data};

	return (struct iovec){pointer.to, size};
}

/* It may hold a credential, or a secret's value. */
void shim_link_out_free(struct shim_link_out *out)
{
	explicit_bzero(out->data, out->size);
	free(out);
}

/* Send now if nothing waits, else queue. */
int shim_link_send(struct shim_link *link, const struct wire_header *header,
		   const struct iovec *parts, size_t n_parts)
{
	struct iovec iov[4] = {shim_link_piece(header, sizeof(*header))};
	struct shim_link_out *out;
	size_t at = 0;
	int r;

	ASSERT(n_parts < ARRAY_SIZE(iov));
	if (link->lost)
		return -EPIPE;
	/* Jobs ask has_room first; this bounds what the shim itself can provoke. */
	if (link->out_bytes > 2 * SHIM_LINK_OUT_MAX_BYTES)
		return -ENOBUFS;
	for (size_t i = 0; i < n_parts; i++)
		iov[i + 1] = parts[i];
	if (list_empty(&link->out)) {
		r = sockmsg_sendv(link->fd, iov, n_parts + 1, NULL, 0);
		if (r != -EAGAIN)
			return r;
	}
	out = malloc(sizeof(*out) + header->length);
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i <= n_parts; i++) {
		if (iov[i].iov_len > 0)
			memcpy(out->data + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	out->size = at;
	list_append(&link->out, &out->link);
	link->out_bytes += at;
	link->want_out = true;
	shim_link_update_events(link);
	return 0;
}

int shim_link_send_bytes(struct shim_link *link, uint16_t type, uint32_t job, const void *data,
			 size_t size)
{
	struct wire_header header = frame_header(type, job, 0, size);
	struct iovec part = shim_link_piece(data, size);

	return shim_link_send(link, &header, &part, size > 0 ? 1 : 0);
}

int shim_link_send_waiting(struct shim_link *link)
{
	while (!list_empty(&link->out)) {
		struct shim_link_out *out = LIST_ENTRY(link->out.next, struct shim_link_out, link);
		int r;

		r = sockmsg_send(link->fd, out->data, out->size, NULL, 0);
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
		list_remove(&out->link);
		link->out_bytes -= out->size;
		shim_link_out_free(out);
	}
	link->want_out = false;
	shim_link_update_events(link);
	return 0;
}

int shim_link_send_pieces(struct shim_link *link, uint16_t type, uint32_t job, const void *data,
			  size_t size)
{
	const uint8_t *at = data;

	while (size > 0) {
		size_t n = size < WIRE_PAYLOAD_MAX_BYTES ? size : WIRE_PAYLOAD_MAX_BYTES;
		int r;

		r = shim_link_send_bytes(link, type, job, at, n);
		if (r < 0)
			return r;
		at += n;
		size -= n;
	}
	return 0;
}

bool shim_link_has_room(const struct shim_link *link, size_t size)
{
	return size < SHIM_LINK_OUT_MAX_BYTES && link->out_bytes < SHIM_LINK_OUT_MAX_BYTES - size;
}

bool shim_link_has(const struct shim_link *link, enum wire_features feature)
{
	/* One that has not said HELLO yet was just launched, by this release: of an earlier tree
	 * nothing is asked before. */
	return !link->greeted || (link->features & feature) != 0;
}

bool shim_link_is_untouched(const struct shim_link *link)
{
	/* What an adopted one has not said yet is not known. */
	return !link->root_begun && (link->greeted || !link->adopted) &&
	       shim_link_has(link, WIRE_FEATURE_UNTOUCHED);
}

int shim_link_exec(struct shim_link *link, const struct shim_link_command *command,
		   uint32_t *ret_job)
{
	struct wire_exec head = command->head;
	AUTO_FREE uint8_t *payload = NULL;
	size_t payload_bytes;
	struct wire_job *job;
	int r;

	if (!shim_link_has_room(link, command->stdin_bytes + WIRE_FRAME_MAX_BYTES))
		return -ENOBUFS;
	payload = malloc(WIRE_PAYLOAD_MAX_BYTES);
	if (!payload)
		return -ENOMEM;
	if (command->stdin_data || command->stdin_open)
		head.flags |= WIRE_EXEC_STDIN;
	head.note_bytes = command->note_bytes;
	r = frame_exec_build(payload, WIRE_PAYLOAD_MAX_BYTES, &head, command->cwd, command->argv,
			     command->env, command->note, &payload_bytes);
	if (r < 0)
		return r;
	r = shim_link_add_job(link, WIRE_JOB_COMMAND, &job);
	if (r < 0)
		return r;
	job->kept = (head.flags & WIRE_EXEC_KEEP) != 0;
	if ((head.flags & WIRE_EXEC_ROOT) && head.program == WIRE_PROGRAM_ARGV)
		link->root_begun = true;
	r = shim_link_send_bytes(link, WIRE_EXEC, job->id, payload, payload_bytes);
	if (r >= 0 && command->stdin_data)
		r = shim_link_send_pieces(link, WIRE_STDIN, job->id, command->stdin_data,
					  command->stdin_bytes);
	if (r >= 0 && (head.flags & WIRE_EXEC_STDIN) && !command->stdin_open)
		r = shim_link_send_bytes(link, WIRE_STDIN_EOF, job->id, NULL, 0);
	if (r < 0) {
		shim_link_drop_job(link, job);
		return r;
	}
	*ret_job = job->id;
	return 0;
}

static bool is_running(struct shim_link *link, uint32_t id)
{
	const struct wire_job *job = link->lost ? NULL : shim_link_find_job(link, id);

	return job && job->state == WIRE_JOB_COMMAND;
}

int shim_link_stdin(struct shim_link *link, uint32_t job, const void *data, size_t size)
{
	if (!is_running(link, job))
		return -ESRCH;
	if (!shim_link_has_room(link, size))
		return -ENOBUFS;
	return shim_link_send_pieces(link, WIRE_STDIN, job, data, size);
}

int shim_link_stdin_end(struct shim_link *link, uint32_t job)
{
	return is_running(link, job) ? shim_link_send_bytes(link, WIRE_STDIN_EOF, job, NULL, 0)
				     : -ESRCH;
}

int shim_link_signal(struct shim_link *link, uint32_t job, const struct wire_signal *signal)
{
	if (!is_running(link, job))
		return -ESRCH;
	return shim_link_send_bytes(link, WIRE_SIGNAL, job, signal, sizeof(*signal));
}

int shim_link_resize(struct shim_link *link, uint32_t job, const struct wire_size *size)
{
	if (!is_running(link, job))
		return -ESRCH;
	return shim_link_send_bytes(link, WIRE_RESIZE, job, size, sizeof(*size));
}

int shim_link_pause(struct shim_link *link, bool is_paused)
{
	const struct wire_pause pause = {.is_paused = is_paused};
	int r;

	if (link->lost)
		return -EPIPE;
	if (!shim_link_has(link, WIRE_FEATURE_PAUSE))
		return -EOPNOTSUPP;
	r = shim_link_send_bytes(link, WIRE_PAUSE, 0, &pause, sizeof(pause));
	if (r >= 0 && is_paused)
		r = shim_link_send_bytes(link, WIRE_PING, 0, NULL, 0);
	link->pausing = r >= 0 && is_paused;
	return r;
}

void shim_link_forget(struct shim_link *link, uint32_t id)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		struct wire_job *job = &link->job[i];

		if (job->state != WIRE_JOB_KEPT || job->id != id)
			continue;
		/* What is started next comes behind it on the socket. */
		if (!link->lost && shim_link_send_bytes(link, WIRE_FORGET, id, NULL, 0) >= 0)
			job->state = WIRE_JOB_FREE;
		return;
	}
}

void shim_link_cancel(struct shim_link *link, uint32_t job)
{
	if (!link->lost && shim_link_find_job(link, job))
		IGNORE_RESULT(shim_link_send_bytes(link, WIRE_CANCEL, job, NULL, 0));
}
