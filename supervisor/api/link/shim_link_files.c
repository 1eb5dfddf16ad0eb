/* Files: whole ones for components, and operations on files. */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/frame.h"

#include "supervisor/api/link/shim_link_state.h"

#define CREDIT_BYTES (WIRE_FILE_WINDOW_BYTES / 4)

int shim_link_take_file_data(struct shim_link *link, struct wire_job *job, const uint8_t *payload,
			     size_t size)
{
	if (job->state != WIRE_JOB_FILE)
		return -EPROTO;
	job->came_bytes += size;
	if (job->came_bytes - job->taken_bytes > WIRE_FILE_WINDOW_BYTES)
		return -EPROTO;
	link->events->file_data(link->userdata, job->id, payload, size);
	return 0;
}

int shim_link_put(struct shim_link *link, const char *path, uint32_t mode, const void *data,
		  size_t size, uint32_t *ret_job)
{
	struct wire_put put = {.mode = mode, .size_bytes = size};
	size_t path_bytes = strlen(path) + 1;
	struct iovec parts[2] = {shim_link_piece(&put, sizeof(put)),
				 shim_link_piece(path, path_bytes)};
	struct wire_header header;
	struct wire_job *job;
	int r;

	if (path_bytes > EXEC_CWD_BYTES)
		return -E2BIG;
	if (!shim_link_has_room(link, size + WIRE_FRAME_MAX_BYTES))
		return -ENOBUFS;
	put.path_bytes = (uint32_t)path_bytes;
	r = shim_link_add_job(link, WIRE_JOB_PUTTING, &job);
	if (r < 0)
		return r;
	header = frame_header(WIRE_PUT, job->id, 0, sizeof(put) + path_bytes);
	r = shim_link_send(link, &header, parts, ARRAY_SIZE(parts));
	if (r >= 0)
		r = shim_link_send_pieces(link, WIRE_PUT_DATA, job->id, data, size);
	if (r >= 0)
		r = shim_link_send_bytes(link, WIRE_PUT_END, job->id, NULL, 0);
	if (r < 0) {
		shim_link_drop_job(link, job);
		return r;
	}
	*ret_job = job->id;
	return 0;
}

int shim_link_file(struct shim_link *link, const struct wire_file *file, const char *path,
		   const char *to, uint32_t *ret_job)
{
	struct wire_file head = *file;
	size_t path_bytes = strlen(path) + 1;
	size_t to_bytes = to ? strlen(to) + 1 : 0;
	struct iovec parts[3] = {shim_link_piece(&head, sizeof(head)),
				 shim_link_piece(path, path_bytes), shim_link_piece(to, to_bytes)};
	struct wire_header header;
	struct wire_job *job;
	int r;

	if (path_bytes > FILE_PATH_BYTES || to_bytes > FILE_PATH_BYTES)
		return -E2BIG;
	if (!shim_link_has_room(link, WIRE_FRAME_MAX_BYTES))
		return -ENOBUFS;
	head.path_bytes = (uint16_t)path_bytes;
	head.to_bytes = (uint16_t)to_bytes;
	r = shim_link_add_job(link, WIRE_JOB_FILE, &job);
	if (r < 0)
		return r;
	header = frame_header(WIRE_FILE, job->id, 0, sizeof(head) + path_bytes + to_bytes);
	r = shim_link_send(link, &header, parts, to ? 3 : 2);
	if (r < 0) {
		shim_link_drop_job(link, job);
		return r;
	}
	*ret_job = job->id;
	return 0;
}

static struct wire_job *find_file(struct shim_link *link, uint32_t id)
{
	struct wire_job *job = link->lost ? NULL : shim_link_find_job(link, id);

	return job && job->state == WIRE_JOB_FILE ? job : NULL;
}

int shim_link_file_put(struct shim_link *link, uint32_t job, const void *data, size_t size)
{
	if (!find_file(link, job))
		return -ESRCH;
	return shim_link_send_pieces(link, WIRE_PUT_DATA, job, data, size);
}

int shim_link_file_put_end(struct shim_link *link, uint32_t job)
{
	return find_file(link, job) ? shim_link_send_bytes(link, WIRE_PUT_END, job, NULL, 0)
				    : -ESRCH;
}

void shim_link_file_credit(struct shim_link *link, uint32_t id, size_t size)
{
	struct wire_job *job = find_file(link, id);
	struct wire_credit credit;

	if (!job)
		return;
	job->taken_bytes += size;
	if (job->taken_bytes - job->credited_bytes < CREDIT_BYTES)
		return;
	credit.acked = job->taken_bytes;
	if (shim_link_send_bytes(link, WIRE_FILE_CREDIT, id, &credit, sizeof(credit)) >= 0)
		job->credited_bytes = job->taken_bytes;
}
