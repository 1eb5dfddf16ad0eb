/*
 * Theory. No process with more rights than `user` ever opens a path that `user` controls (A16-A18):
 * file work is done here, under the ids of `user`, without a capability, under the HELPER filter,
 * on descriptors beneath the session folder, without following any link. The worst that a race in
 * the folder can do is what `user` could do anyway.
 *
 * A put is written under a temporary name in the target's folder and renamed: readers see the old
 * file or the new one. There is no fsync: the folder is a tmpfs. What was there before is replaced
 * whatever it was (a link itself, not its target); a folder is refused by rename.
 *
 * One helper does one put at a time and reads its bytes from a pipe that pid 1 fills. pid 1 asks
 * for another where it needs two at once. `user` may stop or kill a helper where the kernel has no
 * signal scope: pid 1 has a deadline, and says WIRE_STEP_HELPER_LOST.
 */
#include "shim/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/io.h"
#include "base/path.h"
#include "base/str.h"

#include "shim/domain.h"
#include "shim/files_ops.h"
#include "shim/files_tree.h"
#include "shim/message.h"
#include "shim/nursery.h"
#include "shim/steps.h"

#define FILES_PATH_BYTES 4096

static void files_fail(struct files_result *result, uint32_t step, int error)
{
	result->step = step;
	result->error_number = -error;
}

/* Open the folder `name` beneath dir_fd, made if it is not there. The descriptor or -errno. */
static int files_open_folder(int dir_fd, const char *name)
{
	int fd;

	fd = path_open_beneath(dir_fd, name, O_PATH | O_DIRECTORY, 0);
	if (fd != -ENOENT)
		return fd;
	if (mkdirat(dir_fd, name, FILES_DIR_MODE) < 0 && errno != EEXIST)
		return -errno;
	return path_open_beneath(dir_fd, name, O_PATH | O_DIRECTORY, 0);
}

/* The folder that holds the last component of `path`; *ret_name points to that. `path` is cut up.
 * The descriptor or -errno. */
static int files_open_parent(int dir_fd, char *path, const char **ret_name)
{
	AUTO_CLOSE int folder_fd = -1;
	char *at = path;
	char *slash;

	folder_fd = fd_dup(dir_fd, 3);
	if (folder_fd < 0)
		return TAKE_FD(folder_fd);
	for (slash = strchr(at, '/'); slash; slash = strchr(at, '/')) {
		int next;

		*slash = '\0';
		next = files_open_folder(folder_fd, at);
		if (next < 0)
			return next;
		(void)fd_close(folder_fd);
		folder_fd = next;
		at = slash + 1;
	}
	*ret_name = at;
	return TAKE_FD(folder_fd);
}

/* Copy data_fd to fd until its end. 0; -EMSGSIZE: another number of bytes than announced. */
static int files_copy(int fd, int data_fd, uint64_t size_bytes)
{
	static uint8_t block[WIRE_FRAME_MAX_BYTES];
	uint64_t total = 0;

	for (;;) {
		ssize_t n;
		int r;

		n = io_read(data_fd, block, sizeof(block));
		if (n < 0)
			return (int)n;
		if (n == 0)
			return total == size_bytes ? 0 : -EMSGSIZE;
		if ((uint64_t)n > size_bytes - total)
			return -EMSGSIZE;
		r = io_write_all(fd, block, (size_t)n);
		if (r < 0)
			return r;
		total += (uint64_t)n;
	}
}

static int files_replace(int folder_fd, const char *name, const char *temporary)
{
	if (renameat(folder_fd, temporary, folder_fd, name) < 0)
		return -errno;
	return 0;
}

void files_put(int dir_fd, const char *path, mode_t mode, uint64_t size_bytes, int data_fd,
	       struct files_result *ret_result)
{
	char copy[FILES_PATH_BYTES];
	char temporary[FILES_NAME_MAX_BYTES];
	AUTO_CLOSE int folder_fd = -1;
	AUTO_CLOSE int fd = -1;
	const char *name = NULL;
	uint32_t step = WIRE_STEP_OPEN;
	int r;

	*ret_result = (struct files_result){0};
	r = path_check_relative(path);
	if (r >= 0)
		r = str_copy(copy, sizeof(copy), path);
	if (r >= 0)
		r = folder_fd = files_open_parent(dir_fd, copy, &name);
	if (r >= 0)
		r = files_temporary_name(temporary);
	if (r >= 0)
		r = fd = path_open_beneath(folder_fd, temporary, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (r < 0) {
		files_fail(ret_result, step, r);
		return;
	}

	step = WIRE_STEP_WRITE;
	r = files_copy(fd, data_fd, size_bytes);
	if (r >= 0 && fchmod(fd, mode & 0777) < 0)
		r = -errno;
	if (r >= 0) {
		step = WIRE_STEP_RENAME;
		r = files_replace(folder_fd, name, temporary);
	}
	if (r < 0) {
		/* Already gone if `user` removed it. */
		(void)unlinkat(folder_fd, temporary, 0);
		files_fail(ret_result, step, r);
	}
}

static int files_report(int socket_fd, const struct files_result *result)
{
	const struct message message = {
		.type = result->step ? MESSAGE_FAILED : MESSAGE_DONE,
		.step = result->step,
		.error_number = result->error_number,
	};

	return message_send(socket_fd, &message, NULL, NULL, 0);
}

static int files_serve_put(int socket_fd, const int roots[WIRE_FILE_ROOT_MAX_],
			   const uint8_t *payload, size_t size, int data_fd)
{
	struct files_result result;
	struct wire_put put;
	const char *path = (const char *)payload + sizeof(put);

	if (data_fd < 0 || size <= sizeof(put))
		return -EPROTO;
	memcpy(&put, payload, sizeof(put));
	if (put.path_bytes != size - sizeof(put) || path[put.path_bytes - 1] != '\0')
		return -EPROTO;
	files_put(roots[WIRE_FILE_SESSION], path, (mode_t)put.mode, put.size_bytes, data_fd,
		  &result);
	return files_report(socket_fd, &result);
}

/* Takes the descriptors: pid 1 sees broken or ended pipes, then the reason. */
static int files_serve_file(int socket_fd, const int roots[WIRE_FILE_ROOT_MAX_],
			    const uint8_t *payload, size_t size, int fds[2])
{
	struct files_result result = {0};
	struct frame_file file;

	if (fds[0] < 0 || frame_file_parse(payload, size, &file) < 0)
		return -EPROTO;
	files_operate(
		&(const struct files_operation){
			.file = &file,
			.root_fd = roots[file.head.root],
			.to_root_fd = roots[file.head.to_root],
			.socket_fd = socket_fd,
			.out_fd = fds[0],
			.in_fd = fds[1],
		},
		&result);
	fds[0] = fd_close(fds[0]);
	fds[1] = fd_close(fds[1]);
	return files_report(socket_fd, &result);
}

/* One request. 0, or -errno: pid 1 is gone or not itself. */
static int files_serve(int socket_fd, const int roots[WIRE_FILE_ROOT_MAX_])
{
	static uint8_t buffer[sizeof(struct message) + sizeof(struct wire_file) +
			      (size_t)2 * FILES_PATH_BYTES];
	const uint8_t *payload = buffer + sizeof(struct message);
	int fds[2] = {-1, -1};
	struct message message;
	int r;

	r = message_receive(socket_fd, buffer, sizeof(buffer), &message, fds, 2);
	if (r <= 0)
		return r < 0 ? r : -EPIPE;
	switch (message.type) {
	case MESSAGE_PUT:
		r = files_serve_put(socket_fd, roots, payload, message.n_bytes, fds[0]);
		break;
	case MESSAGE_FILE:
		r = files_serve_file(socket_fd, roots, payload, message.n_bytes, fds);
		break;
	case MESSAGE_COMMIT: /* it failed before this came */
	case MESSAGE_CANCEL:
		r = 0;
		break;
	default:
		r = -EPROTO;
	}
	(void)fd_close(fds[0]);
	(void)fd_close(fds[1]);
	return r;
}

_Noreturn void files_main(const struct nursery_context *context, int fd)
{
	int roots[WIRE_FILE_ROOT_MAX_];

	(void)umask(0);
	if (steps_rlimits(&context->params, NULL) < 0 ||
	    steps_securebits(&context->params, false, NULL) < 0 ||
	    steps_become_user(&context->params, NULL) < 0)
		_exit(1);
	roots[WIRE_FILE_SESSION] = open(STEPS_SESSION_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
	roots[WIRE_FILE_TMP] = open(STEPS_TMP_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (roots[WIRE_FILE_SESSION] < 0 || roots[WIRE_FILE_TMP] < 0 ||
	    domain_helper(&context->params, NULL) < 0 ||
	    steps_filter(context->policy, POLICY_FILTER_HELPER, NULL) < 0)
		_exit(1);
	while (files_serve(fd, roots) >= 0)
		continue;
	_exit(0);
}
