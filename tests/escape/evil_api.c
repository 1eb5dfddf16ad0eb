/*
 * An api worker that was taken over: asks the supervisor for what it must not. E9: the supervisor
 * ends the connection, starts the worker again, and nothing is left of what was asked for.
 * A life of this program is short; the process number picks its mode.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sandboxd/launch.h"
#include "sandboxd/policy_image.h"
#include "sandboxd/worker.h"

static void ask(struct launch_msg *msg, uint16_t type)
{
	msg->magic = LAUNCH_MAGIC;
	msg->version = LAUNCH_VERSION;
	msg->type = type;
	msg->serial++;
	(void)!send(WORKER_FD_SUPERVISOR, msg, sizeof(*msg), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void greet(struct launch_msg *msg)
{
	msg->u.hello = (struct launch_hello){
		.magic = LAUNCH_MAGIC,
		.version = LAUNCH_VERSION,
		.message_bytes = sizeof(*msg),
	};
	ask(msg, LAUNCH_HELLO);
	(void)!recv(WORKER_FD_SUPERVISOR, msg, sizeof(*msg), 0);
	memset(msg, 0, sizeof(*msg));
}

static void start(struct launch_msg *msg, unsigned int variant)
{
	uint64_t random = 0;

	(void)!getrandom(msg->session, sizeof(msg->session), 0);
	(void)!getrandom(&random, sizeof(random), 0);
	msg->u.plan = (struct plan){
		.magic = PLAN_MAGIC,
		.version = PLAN_VERSION,
		.size = sizeof(struct plan),
		.profile = variant == 1 ? UINT32_MAX : (uint32_t)(random % 8),
		.egress = variant == 2 ? UINT32_MAX : 0,
		.tmpfs_bytes = variant == 3 ? UINT64_MAX : 1 << 26,
		.tmpfs_inodes = variant == 4 ? UINT64_MAX : 1 << 12,
		.memory_bytes = variant == 5 ? UINT64_MAX : 1 << 28,
		.max_pids = variant == 6 ? UINT32_MAX : 64,
		.max_files = variant == 7 ? 0 : 256,
		.cpu_pct = variant == 8 ? UINT32_MAX : 100,
		.cpu_weight = variant == 9 ? 0 : 100,
		.max_ptys = variant == 10 ? UINT32_MAX : 4,
		.flags = variant == 11 ? UINT32_MAX : 0,
	};
	memcpy(msg->u.plan.session, msg->session, sizeof(msg->session));
	ask(msg, LAUNCH_START);
}

static void noise(struct launch_msg *msg)
{
	for (unsigned int i = 0; i < 20; i++) {
		(void)!getrandom(msg, sizeof(*msg), 0);
		(void)!send(WORKER_FD_SUPERVISOR, msg, i * 100, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
}

static void with_descriptors(const struct launch_msg *msg)
{
	char control[CMSG_SPACE(32 * sizeof(int))] = {0};
	struct launch_msg copy = *msg;
	struct iovec vector = {.iov_base = &copy, .iov_len = sizeof(copy)};
	struct msghdr header = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *part = CMSG_FIRSTHDR(&header);
	const int fd = 0;

	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(32 * sizeof(int));
	for (size_t i = 0; i < 32; i++)
		memcpy(CMSG_DATA(part) + i * sizeof(int), &fd, sizeof(fd));
	for (int i = 0; i < 20; i++)
		(void)!sendmsg(WORKER_FD_SUPERVISOR, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static uint32_t number(uint32_t n)
{
	uint32_t random = 0;

	(void)!getrandom(&random, sizeof(random), 0);
	return random % n;
}

/* The plan of a session that the supervisor will launch. */
static struct plan good_plan(const struct policy_image_header *image)
{
	struct plan plan = {
		.magic = PLAN_MAGIC,
		.version = PLAN_VERSION,
		.size = sizeof(plan),
		.tmpfs_bytes = 1 << 24,
		.tmpfs_inodes = 1 << 10,
		.memory_bytes = 1 << 26,
		.max_pids = 64,
		.max_files = 256,
		.cpu_pct = 100,
		.cpu_weight = 100,
		.max_ptys = 4,
		.flags = number(4) == 0 ? PLAN_CANARY : 0,
	};

	do
		plan.profile = number(image->n_profiles);
	while (image->profile[plan.profile].kind != POLICY_KIND_SESSION);
	memcpy(plan.profile_hash, image->profile[plan.profile].hash, sizeof(plan.profile_hash));
	return plan;
}

/* Answers and what comes with them; descriptors are dropped. Some are left unread. */
static void hear(void)
{
	static struct launch_msg answer;
	char control[CMSG_SPACE(4 * sizeof(int))];
	struct iovec vector = {.iov_base = &answer, .iov_len = sizeof(answer)};
	struct msghdr header = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};

	while (number(20) != 0 && recvmsg(WORKER_FD_SUPERVISOR, &header, MSG_DONTWAIT) > 0) {
		const struct cmsghdr *part = CMSG_FIRSTHDR(&header);
		int fds[4];
		size_t n = part ? (part->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

		for (size_t i = 0; i < n && i < 4; i++) {
			memcpy(&fds[i], CMSG_DATA(part) + i * sizeof(int), sizeof(int));
			(void)send(fds[i], "hostile", 7, MSG_NOSIGNAL | MSG_DONTWAIT);
			(void)close(fds[i]);
		}
		header.msg_controllen = sizeof(control);
	}
}

/* Nothing but what a worker may ask, of few sessions, in an order that none would. */
static void permitted(struct launch_msg *msg)
{
	static const uint16_t types[] = {
		LAUNCH_START, LAUNCH_START,  LAUNCH_KILL,  LAUNCH_FREEZE, LAUNCH_THAW,
		LAUNCH_STAT,  LAUNCH_PROOF,  LAUNCH_TRACE, LAUNCH_REDIS,  LAUNCH_LOG_LEVEL,
		LAUNCH_LINK,  LAUNCH_FREEZE, LAUNCH_STAT,  LAUNCH_KILL,
	};
	const struct policy_image_header *image =
		mmap(NULL, sizeof(*image), PROT_READ, MAP_PRIVATE, WORKER_FD_POLICY, 0);
	const uint32_t salt = number(UINT32_MAX);

	if (image == MAP_FAILED)
		return;
	ask(msg, LAUNCH_ADOPT);
	for (int i = 0; i < 400; i++) {
		uint16_t type = types[number(sizeof(types) / sizeof(types[0]))];
		uint32_t who[4] = {salt, 1 + number(4)};
		bool names = type != LAUNCH_LOG_LEVEL && type != LAUNCH_LINK;

		memset(msg->session, 0, sizeof(msg->session));
		memset(&msg->u, 0, sizeof(msg->u));
		if (names)
			memcpy(msg->session, who, sizeof(msg->session));
		if (type == LAUNCH_START) {
			msg->u.plan = good_plan(image);
			memcpy(msg->u.plan.session, msg->session, sizeof(msg->session));
		}
		if (type == LAUNCH_REDIS)
			msg->u.redis.action = 1 + number(4);
		if (type == LAUNCH_LOG_LEVEL)
			msg->u.level.level = number(4);
		ask(msg, type);
		if (number(3) == 0)
			hear();
		if (number(10) == 0)
			(void)usleep(1000 * number(30));
	}
}

int main(void)
{
	static struct launch_msg msg;
	uint8_t mode = 0;

	(void)!getrandom(&mode, sizeof(mode), 0);
	if (mode % 9 == 0)
		noise(&msg);
	greet(&msg);
	switch (mode % 9) {
	case 1: /* every variant of a plan, answers unread */
		for (unsigned int i = 0; i < 40; i++)
			start(&msg, i % 12);
		break;
	case 2: /* HELLO twice */
		greet(&msg);
		break;
	case 3: /* every type, for sessions that are not there */
		for (uint16_t type = 0; type < 128; type++)
			ask(&msg, type);
		break;
	case 4:
		with_descriptors(&msg);
		break;
	case 5: /* the same id twice, ended while it starts */
		start(&msg, 0);
		ask(&msg, LAUNCH_START);
		ask(&msg, LAUNCH_KILL);
		ask(&msg, LAUNCH_KILL);
		ask(&msg, LAUNCH_FREEZE);
		break;
	case 6: /* as many as there is room for, and no answer read */
		for (int i = 0; i < 300; i++) {
			start(&msg, 0);
			ask(&msg, LAUNCH_PROOF);
		}
		break;
	case 7: /* adoption again and again, frozen ends */
		for (int i = 0; i < 50; i++)
			ask(&msg, LAUNCH_ADOPT);
		start(&msg, 0);
		ask(&msg, LAUNCH_FREEZE);
		break;
	case 8:
		permitted(&msg);
		break;
	default:
		break;
	}
	(void)usleep(50000);
	return 0;
}
