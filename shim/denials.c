/*
 * Theory. The caller of a refused call waits in the kernel until it is answered, so nothing here
 * may wait: one call is received where poll says that there is one, and answered. A caller that was
 * interrupted meanwhile asks again. If pid 1 ends, so does the session; a listener that is closed
 * answers ENOSYS. A flood costs the session's own processor time, and the wire one frame for each
 * call number in DENIALS_PAUSE.
 */
#include "shim/denials.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/seccomp.h>

#include "base/fd.h"
#include "base/loop.h"

#include "shim/message.h"
#include "shim/serve.h"
#include "shim/shim.h"

/* A later kernel may have more to say than our headers know. */
union notification {
	struct seccomp_notif call;
	uint8_t room[512];
};

static int denials_on_timer(void *userdata, uint32_t events)
{
	(void)events;
	serve_flush(userdata);
	return 0;
}

int denials_init(struct shim *shim)
{
	struct seccomp_notif_sizes sizes;

	for (size_t i = 0; i < DENIALS_MAX_LISTENERS; i++) {
		shim->denials.listener[i].shim = shim;
		shim->denials.listener[i].fd = -1;
	}
	for (size_t i = 0; i < SPAWNER_MAX_; i++) {
		shim->denials.spawner[i].shim = shim;
		shim->denials.spawner[i].kind = (enum spawner_kind)i;
	}
	if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) < 0)
		return -errno;
	if (sizes.seccomp_notif > sizeof(union notification))
		return -EOVERFLOW;
	return loop_add_timer(shim->loop, USEC_NEVER, denials_on_timer, shim, &shim->denials.timer);
}

static void count_call(struct denials *denials, int number, int32_t pid)
{
	struct wire_denied *call = NULL;

	for (size_t i = 0; i < denials->n_calls; i++)
		if (denials->call[i].number == number)
			call = &denials->call[i];
	if (!call) {
		if (denials->n_calls == DENIALS_MAX_CALLS)
			return;
		call = &denials->call[denials->n_calls++];
		*call = (struct wire_denied){.number = number, .pid = pid};
	}
	if (call->count < UINT32_MAX)
		call->count++;
}

static void listener_close(struct denials_listener *listener)
{
	listener->source = loop_remove(listener->source);
	listener->fd = fd_close(listener->fd);
}

static void tell(struct shim *shim)
{
	struct denials *denials = &shim->denials;

	if (clock_boottime() >= denials->quiet_until)
		serve_flush(shim);
	else
		loop_timer_set(denials->timer, denials->quiet_until);
}

static int denials_on_call(void *userdata, uint32_t events)
{
	struct denials_listener *listener = userdata;
	struct seccomp_notif_resp answer = {.error = -EPERM};
	union notification in = {.room = {0}};
	long r;

	if (events & EPOLLHUP) {
		listener_close(listener); /* nobody is under its filter any more */
		return 0;
	}
	/* EPOLLERR alone: a freeze or a stop of ours interrupted the kernel's look at the queue.
	 * Closed, it would answer its callers ENOSYS. */
	if (!(events & EPOLLIN))
		return 0;
	/* musl's ioctl() takes no number that large. ENOENT: the caller was interrupted, or has
	 * ended. */
	if (syscall(SYS_ioctl, listener->fd, SECCOMP_IOCTL_NOTIF_RECV, &in) < 0)
		return 0;
	count_call(&listener->shim->denials, in.call.data.nr, (int32_t)in.call.pid);
	answer.id = in.call.id;
	/* ENOENT as above: it asks again. EINTR: a freeze or a stop of ours; a caller that is not
	 * interrupted as well waits for this answer. */
	do
		r = syscall(SYS_ioctl, listener->fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	while (r < 0 && errno == EINTR);
	tell(listener->shim);
	return 0;
}

int denials_listen(struct shim *shim, int fd)
{
	struct denials *denials = &shim->denials;

	for (size_t i = 0; fd >= 0 && i < DENIALS_MAX_LISTENERS; i++) {
		struct denials_listener *listener = &denials->listener[i];
		int r;

		if (listener->fd >= 0)
			continue;
		r = loop_add(shim->loop, fd, EPOLLIN, denials_on_call, listener, &listener->source);
		if (r < 0) {
			(void)fd_close(fd);
			return r;
		}
		listener->fd = fd;
		return 0;
	}
	(void)fd_close(fd);
	return 0;
}

void denials_forget_spawner(struct shim *shim, enum spawner_kind kind)
{
	shim->denials.spawner[kind].source = loop_remove(shim->denials.spawner[kind].source);
}

static int denials_on_spawner(void *userdata, uint32_t events)
{
	const struct denials_spawner *spawner = userdata;
	struct shim *shim = spawner->shim;
	uint8_t buffer[sizeof(struct message) + sizeof(struct err)];
	struct message message;
	int fd = -1;
	int r;

	(void)events;
	r = message_receive(shim->spawner_fd[spawner->kind], buffer, sizeof(buffer), &message, &fd,
			    1);
	if (r == -EAGAIN)
		return 0;
	denials_forget_spawner(shim, spawner->kind);
	/* Where it cannot be watched it is closed. */
	if (r > 0)
		IGNORE_RESULT(denials_listen(shim, fd));
	return 0;
}

int denials_expect(struct shim *shim, enum spawner_kind kind)
{
	struct denials_spawner *spawner = &shim->denials.spawner[kind];

	return loop_add(shim->loop, shim->spawner_fd[kind], EPOLLIN, denials_on_spawner, spawner,
			&spawner->source);
}

const struct wire_denied *denials_next(const struct denials *denials)
{
	if (denials->n_calls == 0 || clock_boottime() < denials->quiet_until)
		return NULL;
	return &denials->call[denials->n_calls - 1];
}

void denials_sent(struct denials *denials)
{
	if (--denials->n_calls == 0)
		denials->quiet_until = clock_add(clock_boottime(), DENIALS_PAUSE);
}
