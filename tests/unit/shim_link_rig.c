#include "tests/unit/shim_link_rig.h"

#include <string.h>

#include "base/frame.h"
#include "base/sockmsg.h"

#include "tests/lib/test.h"

static void on_started(void *userdata, uint32_t job, int32_t pid)
{
	struct rig *rig = userdata;

	(void)job;
	(void)pid;
	rig->n_started++;
}

static void on_output(void *userdata, uint32_t job, uint64_t number, bool is_stderr,
		      const uint8_t *data, size_t size)
{
	struct rig *rig = userdata;

	(void)job;
	(void)is_stderr;
	(void)data;
	(void)size;
	rig->n_output++;
	rig->last_number = number;
}

static void on_exited(void *userdata, uint32_t job, uint64_t number, const struct wire_exit *status)
{
	struct rig *rig = userdata;

	(void)job;
	(void)status;
	rig->n_exited++;
	rig->last_number = number;
}

static void on_failed(void *userdata, uint32_t job, uint64_t number,
		      const struct wire_failed *failed)
{
	struct rig *rig = userdata;

	(void)job;
	(void)failed;
	rig->n_failed++;
	rig->last_number = number;
}

static void on_put_done(void *userdata, uint32_t job, uint64_t number)
{
	struct rig *rig = userdata;

	(void)job;
	rig->n_put_done++;
	rig->last_number = number;
}

static void on_known(void *userdata)
{
	struct rig *rig = userdata;

	rig->n_known++;
}

static void on_lost(void *userdata, int error)
{
	struct rig *rig = userdata;

	rig->n_lost++;
	rig->lost_error = error;
}

static const struct shim_link_events events = {
	.started = on_started,
	.output = on_output,
	.exited = on_exited,
	.failed = on_failed,
	.put_done = on_put_done,
	.known = on_known,
	.lost = on_lost,
};

void turn(struct rig *rig)
{
	while (sd_event_run(rig->event, 0) > 0)
		;
}

void rig_open(struct rig *rig, bool adopted, uint64_t acked)
{
	struct shim_link_options options = {.adopted = adopted, .first_job = 1};
	int fds[2];

	*rig = (struct rig){.shim_fd = -1};
	assert_int_equal(id_random(&rig->session), 0);
	assert_int_equal(sd_event_new(&rig->event), 0);
	assert_int_equal(sockmsg_pair(fds, 1), 0);
	rig->scratch = malloc(WIRE_FRAME_MAX_BYTES);
	assert_non_null(rig->scratch);
	rig->shim_fd = fds[1];
	flow_init(&rig->flow, acked);
	options.session = &rig->session;
	options.flow = &rig->flow;
	options.scratch = rig->scratch;
	assert_int_equal(shim_link_new(rig->event, fds[0], &options, &events, rig, &rig->link), 0);
}

void rig_close(struct rig *rig)
{
	rig->link = shim_link_free(rig->link);
	rig->shim_fd = fd_close(rig->shim_fd);
	flow_done(&rig->flow);
	free(rig->scratch);
	rig->event = sd_event_unref(rig->event);
}

void say(struct rig *rig, uint16_t type, uint32_t job, uint64_t number, const void *payload,
	 size_t size)
{
	struct wire_header header = frame_header(type, job, number, size);
	uint8_t message[1024];

	assert_true(sizeof(header) + size <= sizeof(message));
	memcpy(message, &header, sizeof(header));
	if (size > 0)
		memcpy(message + sizeof(header), payload, size);
	assert_int_equal(sockmsg_send(rig->shim_fd, message, sizeof(header) + size, NULL, 0), 0);
}

void say_stats_of(struct rig *rig, uint32_t n_jobs, uint64_t n_held)
{
	const struct wire_stats stats = {.n_jobs = n_jobs, .frames_held = n_held};

	say(rig, WIRE_STATS, 0, 0, &stats, sizeof(stats));
	turn(rig);
}

void say_stats(struct rig *rig, uint64_t n_held)
{
	say_stats_of(rig, 0, n_held);
}

void say_hello(struct rig *rig, uint64_t sent)
{
	struct wire_hello hello = frame_hello(rig->session.bytes, sent);

	say(rig, WIRE_HELLO, 0, 0, &hello, sizeof(hello));
	turn(rig);
}

uint16_t hear(struct rig *rig, struct wire_header *ret_header, uint8_t *ret_payload,
	      size_t payload_bytes)
{
	static uint8_t message[WIRE_FRAME_MAX_BYTES];
	const uint8_t *payload;
	size_t size;
	ssize_t n;

	n = sockmsg_recv(rig->shim_fd, message, sizeof(message), NULL, 0);
	if (n <= 0)
		return 0;
	assert_int_equal(
		frame_check(message, (size_t)n, FRAME_TO_SHIM, ret_header, &payload, &size), 0);
	if (ret_payload)
		memcpy(ret_payload, payload, size < payload_bytes ? size : payload_bytes);
	return ret_header->type;
}

uint32_t start_command(struct rig *rig)
{
	static const char *const argv[] = {"true", NULL};
	static const char *const env[] = {NULL};
	struct shim_link_command command = {.cwd = "/session", .argv = argv, .env = env};
	uint32_t job = 0;

	assert_int_equal(shim_link_exec(rig->link, &command, &job), 0);
	return job;
}

void start_running(struct rig *rig, uint32_t *ret_job)
{
	struct wire_started started = {.pid = 7};

	say_hello(rig, 0);
	*ret_job = start_command(rig);
	say(rig, WIRE_STARTED, *ret_job, 0, &started, sizeof(started));
	turn(rig);
	assert_int_equal(rig->n_started, 1);
}
