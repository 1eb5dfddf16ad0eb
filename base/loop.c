/*
 * Theory. One turn of the loop: wait; dispatch descriptors that are ready; dispatch timers that are
 * due; dispatch deferred sources; free what was removed meanwhile.
 *
 * Removal. loop_remove takes the source out of epoll and of the timers at once and marks it; the
 * memory lives until the end of the turn. So events that epoll has already returned for it, and a
 * list that is being walked, stay valid, and a callback may remove any source, its own included.
 *
 * Timers are a binary heap of the armed ones, whose array grows only in loop_add_timer, so that
 * arming never fails. The wait is epoll_wait's own timeout and no timerfd: arming and disarming,
 * which every command with a time limit does, then cost no system call, and the filters of shim and
 * supervisor need none. The price: the timeout has milliseconds (timers come up to 1 ms late, never
 * early) and stands still while the machine is suspended, where deadlines (CLOCK_BOOTTIME) go on;
 * so no wait is longer than MAX_WAIT_MS while a timer is armed, which bounds the lateness after a
 * resume.
 *
 * Silence. epoll reports a hang-up whatever was asked for; a source that waits for room elsewhere
 * would spin. A descriptor whose events are 0 is therefore not in epoll at all.
 */
#include "base/loop.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/list.h"

#define MAX_EVENTS  64
#define MAX_WAIT_MS 60000
#define NOT_ARMED   SIZE_MAX

enum source_kind {
	SOURCE_DESCRIPTOR,
	SOURCE_TIMER,
	SOURCE_DEFERRED,
};

struct loop_source {
	enum source_kind kind;
	bool is_removed;
	bool is_enabled; /* deferred */
	int fd;
	uint32_t events; /* 0: not in epoll */
	usec_t at;
	size_t heap_index; /* NOT_ARMED: not in the heap */
	loop_callback callback;
	void *userdata;
	struct loop *loop;
	struct list link; /* loop.deferred */
	struct loop_source *next_removed;
};

struct loop {
	int epoll_fd;
	bool is_in_turn;
	bool is_quitting;
	int quit_value;
	size_t n_sources;
	size_t n_timers;
	size_t n_enabled; /* deferred */
	struct list deferred;
	struct loop_source *removed;
	struct loop_source **heap; /* owned; room for n_timers */
	size_t n_heap;
	size_t heap_allocated;
};

int loop_new(struct loop **ret_loop)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return -ENOMEM;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0) {
		int r = -errno;

		free(loop);
		return r;
	}
	list_init(&loop->deferred);
	*ret_loop = loop;
	return 0;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	ASSERT(!loop->is_in_turn && loop->n_sources == 0);
	loop->epoll_fd = fd_close(loop->epoll_fd);
	free(loop->heap);
	free(loop);
}

static struct loop_source *source_new(struct loop *loop, enum source_kind kind,
				      loop_callback callback, void *userdata)
{
	struct loop_source *source = calloc(1, sizeof(*source));

	if (!source)
		return NULL;
	source->kind = kind;
	source->fd = -1;
	source->at = USEC_NEVER;
	source->heap_index = NOT_ARMED;
	source->callback = callback;
	source->userdata = userdata;
	source->loop = loop;
	list_init(&source->link);
	return source;
}

/* Timers: a min-heap by `at`; every armed source knows its index. */

static void heap_place(struct loop *loop, size_t index, struct loop_source *source)
{
	loop->heap[index] = source;
	source->heap_index = index;
}

static void heap_up(struct loop *loop, size_t index)
{
	struct loop_source *source = loop->heap[index];

	while (index > 0 && loop->heap[(index - 1) / 2]->at > source->at) {
		heap_place(loop, index, loop->heap[(index - 1) / 2]);
		index = (index - 1) / 2;
	}
	heap_place(loop, index, source);
}

static void heap_down(struct loop *loop, size_t index)
{
	struct loop_source *source = loop->heap[index];

	for (;;) {
		size_t child = 2 * index + 1;

		if (child >= loop->n_heap)
			break;
		if (child + 1 < loop->n_heap && loop->heap[child + 1]->at < loop->heap[child]->at)
			child++;
		if (loop->heap[child]->at >= source->at)
			break;
		heap_place(loop, index, loop->heap[child]);
		index = child;
	}
	heap_place(loop, index, source);
}

static void timer_disarm(struct loop *loop, struct loop_source *source)
{
	size_t index = source->heap_index;
	struct loop_source *last;

	source->at = USEC_NEVER;
	if (index == NOT_ARMED)
		return;
	source->heap_index = NOT_ARMED;
	last = loop->heap[--loop->n_heap];
	if (last == source)
		return;
	heap_place(loop, index, last);
	heap_up(loop, index);
	heap_down(loop, last->heap_index);
}

void loop_timer_set(struct loop_source *source, usec_t at)
{
	struct loop *loop = source->loop;

	ASSERT(source->kind == SOURCE_TIMER && !source->is_removed);
	timer_disarm(loop, source);
	if (at == USEC_NEVER)
		return;
	ASSERT(loop->n_heap < loop->heap_allocated);
	source->at = at;
	heap_place(loop, loop->n_heap++, source);
	heap_up(loop, source->heap_index);
}

int loop_add_timer(struct loop *loop, usec_t at, loop_callback callback, void *userdata,
		   struct loop_source **ret_source)
{
	struct loop_source *source;

	if (loop->n_timers == loop->heap_allocated) {
		size_t n = loop->heap_allocated ? loop->heap_allocated * 2 : 8;
		struct loop_source **heap =
			reallocarray(loop->heap, n, sizeof(struct loop_source *));

		if (!heap)
			return -ENOMEM;
		loop->heap = heap;
		loop->heap_allocated = n;
	}
	source = source_new(loop, SOURCE_TIMER, callback, userdata);
	if (!source)
		return -ENOMEM;
	loop->n_sources++;
	loop->n_timers++;
	loop_timer_set(source, at);
	*ret_source = source;
	return 0;
}

static int epoll_change(struct loop_source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};
	int op = source->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

	if (events == source->events)
		return 0;
	if (events == 0)
		op = EPOLL_CTL_DEL;
	if (epoll_ctl(source->loop->epoll_fd, op, source->fd, &event) < 0)
		return -errno;
	source->events = events;
	return 0;
}

int loop_add(struct loop *loop, int fd, uint32_t events, loop_callback callback, void *userdata,
	     struct loop_source **ret_source)
{
	struct loop_source *source = source_new(loop, SOURCE_DESCRIPTOR, callback, userdata);
	int r;

	if (!source)
		return -ENOMEM;
	source->fd = fd;
	r = epoll_change(source, events);
	if (r < 0) {
		free(source);
		return r;
	}
	loop->n_sources++;
	*ret_source = source;
	return 0;
}

int loop_set_events(struct loop_source *source, uint32_t events)
{
	ASSERT(source->kind == SOURCE_DESCRIPTOR && !source->is_removed);
	return epoll_change(source, events);
}

int loop_add_deferred(struct loop *loop, loop_callback callback, void *userdata,
		      struct loop_source **ret_source)
{
	struct loop_source *source = source_new(loop, SOURCE_DEFERRED, callback, userdata);

	if (!source)
		return -ENOMEM;
	list_append(&loop->deferred, &source->link);
	loop->n_sources++;
	*ret_source = source;
	loop_deferred_set(source, 1);
	return 0;
}

void loop_deferred_set(struct loop_source *source, int enabled)
{
	bool is_enabled = enabled != 0;

	ASSERT(source->kind == SOURCE_DEFERRED && !source->is_removed);
	if (is_enabled == source->is_enabled)
		return;
	source->is_enabled = is_enabled;
	if (is_enabled)
		source->loop->n_enabled++;
	else
		source->loop->n_enabled--;
}

static void free_removed(struct loop *loop)
{
	while (loop->removed) {
		struct loop_source *source = loop->removed;

		loop->removed = source->next_removed;
		list_remove(&source->link);
		free(source);
	}
}

struct loop_source *loop_remove(struct loop_source *source)
{
	struct loop *loop;

	if (!source)
		return NULL;
	loop = source->loop;
	ASSERT(!source->is_removed);
	switch (source->kind) {
	case SOURCE_DESCRIPTOR: {
		int r = epoll_change(source, 0);

		/* EBADF, ENOENT: somebody closed the descriptor first, and epoll may now name
		 * another's. */
		ASSERT(r == 0);
		break;
	}
	case SOURCE_TIMER:
		timer_disarm(loop, source);
		loop->n_timers--;
		break;
	case SOURCE_DEFERRED:
		loop_deferred_set(source, 0);
		break;
	}
	source->is_removed = true;
	loop->n_sources--;
	source->next_removed = loop->removed;
	loop->removed = source;
	if (!loop->is_in_turn)
		free_removed(loop);
	return NULL;
}

static int wait_ms(const struct loop *loop)
{
	usec_t now, left;

	if (loop->n_enabled > 0)
		return 0;
	if (loop->n_heap == 0)
		return -1;
	now = clock_boottime();
	if (loop->heap[0]->at <= now)
		return 0;
	left = loop->heap[0]->at - now;
	if (left >= MAX_WAIT_MS * USEC_PER_MS)
		return MAX_WAIT_MS;
	return (int)((left + USEC_PER_MS - 1) / USEC_PER_MS);
}

static int dispatch_descriptors(const struct loop *loop, const struct epoll_event *events, int n)
{
	for (int i = 0; i < n && !loop->is_quitting; i++) {
		const struct loop_source *source = events[i].data.ptr;
		int r;

		/* Removed, or silenced, by a callback before it in this turn. */
		if (source->is_removed || source->events == 0)
			continue;
		r = source->callback(source->userdata, events[i].events);
		if (r < 0)
			return r;
	}
	return 0;
}

static int dispatch_timers(struct loop *loop)
{
	usec_t now;

	if (loop->n_heap == 0)
		return 0;
	now = clock_boottime();
	/* Bounded by what was armed before: a timer that arms itself for the past waits a turn. */
	for (size_t n = loop->n_heap; n > 0 && loop->n_heap > 0 && !loop->is_quitting; n--) {
		struct loop_source *source = loop->heap[0];
		int r;

		if (source->at > now)
			break;
		timer_disarm(loop, source);
		r = source->callback(source->userdata, 0);
		if (r < 0)
			return r;
	}
	return 0;
}

static int dispatch_deferred(struct loop *loop)
{
	if (loop->n_enabled == 0)
		return 0;
	LIST_FOR_EACH (link, &loop->deferred) {
		const struct loop_source *source = LIST_ENTRY(link, struct loop_source, link);
		int r;

		if (loop->is_quitting)
			break;
		if (source->is_removed || !source->is_enabled)
			continue;
		r = source->callback(source->userdata, 0);
		if (r < 0)
			return r;
	}
	return 0;
}

static int turn(struct loop *loop)
{
	struct epoll_event events[MAX_EVENTS];
	int n, r;

	n = epoll_wait(loop->epoll_fd, events, MAX_EVENTS, wait_ms(loop));
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	r = dispatch_descriptors(loop, events, n);
	if (r < 0)
		return r;
	r = dispatch_timers(loop);
	if (r < 0)
		return r;
	return dispatch_deferred(loop);
}

int loop_run(struct loop *loop)
{
	int r = 0;

	ASSERT(!loop->is_in_turn);
	while (r == 0 && !loop->is_quitting) {
		loop->is_in_turn = true;
		r = turn(loop);
		loop->is_in_turn = false;
		free_removed(loop);
	}
	if (r < 0)
		return r;
	loop->is_quitting = false;
	return loop->quit_value;
}

void loop_quit(struct loop *loop, int value)
{
	loop->quit_value = value;
	loop->is_quitting = true;
}
