/*
 * The compiled filters in force in real processes: verdicts as errno, other ABIs as death, and
 * programs that must live under them.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/netlink.h>

#include "base/confine.h"
#include "base/str.h"

#include "policy/confine_worker.h"
#include "policy/image.h"
#include "tests/lib/test.h"

#define NOBODY 65534

static int open_policy(void)
{
	return open(TEST_BIN_DIR "/policy.img", O_RDONLY | O_CLOEXEC);
}

/* In a child: take the filter of a session profile. Takes over policy_fd. */
static void take(int policy_fd, const char *name, enum policy_filter which)
{
	struct image image = IMAGE_NULL;
	struct err err = ERR_NULL;
	const struct sock_filter *filter;
	size_t n = 0;

	if (image_open(policy_fd, &image, &err) < 0)
		_exit(90);
	filter = image_filter(&image, image_find(&image, name, NULL), which, &n);
	if (confine_no_new_privs() < 0 || confine_not_dumpable() < 0 ||
	    confine_seccomp(filter, n) < 0)
		_exit(91);
}

static int run_child(void (*function)(void))
{
	const struct rlimit no_core = {0, 0};
	int status = 0;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setrlimit(RLIMIT_CORE, &no_core);
		function();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void assert_exits_zero(void (*function)(void))
{
	int status = run_child(function);

	if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
		print_error("the child's check %d failed\n", WEXITSTATUS(status));
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- verdicts of the component's commands ---- */

struct probe {
	long number;
	long arg[3];
	int error; /* 0: the call goes through to the kernel */
};

static const struct probe probes[] = {
	{SYS_getppid,        {0},						  0           },
	{SYS_socket,         {AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0},             0           },
	{SYS_socket,         {AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE}, 0           },
	{SYS_socket,         {AF_NETLINK, SOCK_RAW, NETLINK_XFRM},                 EAFNOSUPPORT},
	{SYS_socket,         {AF_VSOCK, SOCK_STREAM, 0},                           EAFNOSUPPORT},
	{SYS_socket,         {AF_PACKET, SOCK_RAW, 0},                             EAFNOSUPPORT},
	{SYS_socket,         {AF_ALG, SOCK_SEQPACKET, 0},                          EAFNOSUPPORT},
	{SYS_unshare,        {CLONE_NEWUSER, 0, 0},                                EPERM       },
	{SYS_setns,          {0, 0, 0},					    EPERM       },
	{SYS_mount,          {0, 0, 0},					    EPERM       },
	{SYS_ptrace,         {0, 0, 0},					    EPERM       },
	{SYS_bpf,            {0, 0, 0},					    EPERM       },
	{SYS_keyctl,         {0, 0, 0},					    EPERM       },
	{SYS_clone,          {CLONE_NEWUSER | SIGCHLD, 0, 0},                      EPERM       },
	{SYS_clone,          {CLONE_NEWNET | CLONE_NEWNS | SIGCHLD, 0, 0},         EPERM       },
	{SYS_clone3,         {0, 0, 0},					    ENOSYS      },
	{SYS_io_uring_setup, {1, 0, 0},					    ENOSYS      },
	{SYS_fsopen,         {0, 0, 0},					    ENOSYS      },
	{600,		{0, 0, 0},					    ENOSYS      },
	{SYS_ioctl,          {0, TIOCSTI, 0},				      EPERM       },
	{SYS_ioctl,          {0, 0x100000000L | TIOCSTI, 0},                       EPERM       },
	{SYS_fcntl,          {0, F_SETLEASE, F_RDLCK},                             EPERM       },
	{SYS_socket,         {AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP},   0           },
	{SYS_socket,         {AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0},             0           },
	{SYS_socket,         {AF_INET, SOCK_STREAM, IPPROTO_SCTP},                 EAFNOSUPPORT},
	{SYS_socket,         {AF_INET, SOCK_RAW, IPPROTO_ICMP},                    EAFNOSUPPORT},
	{SYS_setsockopt,     {0, IPPROTO_TCP, TCP_ULP},                            ENOPROTOOPT },
	{SYS_sendmsg,        {0, 0, MSG_OOB},                                      EOPNOTSUPP  },
	{SYS_ioctl,          {0, TIOCSETD, 0},                                     EPERM       },
	{SYS_memfd_create,   {0, MFD_HUGETLB, 0},                                  EINVAL      },
	{SYS_sync,           {0, 0, 0},					    0           },
};

/* Where `component` has no such call. */
static const struct probe agent_probes[] = {
	{SYS_shmget,      {0, 1 << 21, SHM_HUGETLB}, EPERM},
	{SYS_personality, {(long)0xffffffff, 0, 0},  0    },
	{SYS_personality, {PER_LINUX32, 0, 0},       EPERM},
};

static void check_probes(const char *profile, const struct probe *probes_at, size_t n, int error)
{
	take(open_policy(), profile, POLICY_FILTER_COMMAND);
	for (size_t i = 0; i < n; i++) {
		const struct probe *probe = &probes_at[i];
		int wanted = error ? error : probe->error;
		long r = syscall(probe->number, probe->arg[0], probe->arg[1], probe->arg[2]);

		if (wanted == 0 ? r < 0 : r >= 0 || errno != wanted)
			_exit((int)i + 1);
	}
}

static void check_component(void)
{
	check_probes("component", probes, ARRAY_SIZE(probes), 0);
}

static void check_component_without(void)
{
	check_probes("component", agent_probes, ARRAY_SIZE(agent_probes), ENOSYS);
}

static void check_agent(void)
{
	check_probes("agent", probes, ARRAY_SIZE(probes), 0);
}

static void check_agent_more(void)
{
	check_probes("agent", agent_probes, ARRAY_SIZE(agent_probes), 0);
}

static void test_filters_commands_give_each_errno(void **state)
{
	(void)state;
	assert_exits_zero(check_component);
	assert_exits_zero(check_component_without);
	assert_exits_zero(check_agent);
	assert_exits_zero(check_agent_more);
}

static void call_i386(void)
{
	long number = 20; /* getpid */

	take(open_policy(), "component", POLICY_FILTER_COMMAND);
	__asm__ volatile("int $0x80" : "+a"(number) : : "memory", "r8", "r9", "r10", "r11");
}

static void call_x32(void)
{
	take(open_policy(), "component", POLICY_FILTER_COMMAND);
	(void)syscall(0x40000000L | SYS_getpid);
}

static void call_i386_unfiltered(void)
{
	long number = 20;

	__asm__ volatile("int $0x80" : "+a"(number) : : "memory", "r8", "r9", "r10", "r11");
	_exit(number == getpid() ? 0 : 1);
}

static void test_filters_other_abis_die(void **state)
{
	int status;

	(void)state;
	/* The control run: without a filter the call works, where the kernel has it at all. */
	status = run_child(call_i386_unfiltered);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		status = run_child(call_i386);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGSYS);
	} else {
		print_message("no i386 emulation on this kernel: bpfsim alone proves it\n");
	}
	status = run_child(call_x32);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSYS);
}

/* ---- programs that must live under the COMMAND filter ---- */

static const char *const *program;

static void exec_program(void)
{
	char *env[] = {NULL};
	union {
		const char *const *in;
		char *const *out;
	} argv = {.in = program};
	/* Before the change of user: the checkout may lie where only root may look. */
	const int policy_fd = open_policy();

	/* A user with no capability, as in a session: root would not notice some refusals. */
	if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
		_exit(92);
	take(policy_fd, "agent", POLICY_FILTER_COMMAND);
	(void)execve(argv.out[0], argv.out, env);
	_exit(93);
}

static const char *const sh[] = {"/bin/sh", "-c",
				 "ls -l / | sort | wc -l >/dev/null && (sleep 0.01 & wait)", NULL};
static const char *const python[] = {
	"/usr/bin/python3", "-I", "-c",
	"import threading, subprocess, socket, select, mmap, os, tempfile, asyncio, signal\n"
	"t = threading.Thread(target=lambda: None); t.start(); t.join()\n"
	"assert subprocess.run(['/bin/echo', 'x'], capture_output=True).stdout == b'x\\n'\n"
	"a, b = socket.socketpair(); a.send(b'1'); assert b.recv(1) == b'1'\n"
	"s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname())\n"
	"mmap.mmap(-1, 4096, prot=7); os.memfd_create('x'); os.sched_getaffinity(0)\n"
	"asyncio.run(asyncio.sleep(0))\n"
	"import multiprocessing as m\n"
	"l = m.get_context('fork').Lock()\n"
	"try: socket.socket(40)\n"
	"except OSError: pass\n"
	"else: raise SystemExit(1)\n",
	NULL};

static void check_program(const char *const *argv)
{
	if (access(argv[0], X_OK) < 0 || geteuid() != 0) {
		print_message("%s: not here, or not root: not run\n", argv[0]);
		return;
	}
	program = argv;
	assert_exits_zero(exec_program);
}

static void test_filters_programs_run_under_the_command_filter(void **state)
{
	(void)state;
	check_program(sh);
	check_program(python);
}

/* ---- workers ---- */

static bool applied;

static void confine(const char *name)
{
	struct err err = ERR_NULL;

	if (confine_worker(open_policy(), name, &applied, &err) < 0)
		_exit(94);
}

#define CHECK(number, condition)                                                                   \
	do {                                                                                       \
		if (!(condition))                                                                  \
			_exit(number);                                                             \
	} while (0)

/* What an event loop, a store and the sockets of the api worker do. */
static void check_api(void)
{
	int pair[2];
	int fd;
	void *block;
	sigset_t mask;

	confine("worker-api");
	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGUSR1);
	CHECK(1, sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
	CHECK(2, epoll_create1(EPOLL_CLOEXEC) >= 0);
	CHECK(3, timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC) >= 0);
	CHECK(4, signalfd(-1, &mask, SFD_CLOEXEC) >= 0);
	CHECK(5, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	CHECK(6, send(pair[0], "x", 1, MSG_NOSIGNAL) == 1);
	fd = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	CHECK(7, fd >= 0 && write(fd, "x", 1) == 1 && fsync(fd) == 0);
	CHECK(8, fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK}) == 0);
	block = malloc(1u << 20);
	CHECK(9, block);
	free(block);
	CHECK(10, mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
	if (!applied)
		return;
	CHECK(11, mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
				  MAP_FAILED &&
			  errno == EACCES);
	CHECK(12, socket(AF_UNIX, SOCK_STREAM, 0) < 0 && errno == ENOSYS);
	CHECK(13, execl("/bin/true", "true", NULL) < 0 && errno == ENOSYS);
	CHECK(14, fork() < 0 && errno == ENOSYS);
	CHECK(15, unshare(CLONE_NEWUSER) < 0 && errno == EPERM);
}

/* A store that is a server: TCP and UDP and nothing else, outwards only. */
static void check_api_network(void)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
	} address = {.v4.sin_family = AF_INET};
	int fd;

	confine("worker-api-network");
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CHECK(21, fd >= 0);
	address.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(22, connect(fd, &address.any, sizeof(address.v4)) < 0 && errno != ENOSYS &&
			  errno != EPERM);
	CHECK(23, socket(AF_INET6, SOCK_STREAM, 0) >= 0 || errno == EAFNOSUPPORT);
	if (!applied)
		return;
	/* Questions to name servers. */
	CHECK(24, socket(AF_INET, SOCK_DGRAM, 0) >= 0);
	CHECK(25, socket(AF_INET, SOCK_RAW, 0) < 0 && errno == EAFNOSUPPORT);
	CHECK(26, socket(AF_UNIX, SOCK_STREAM, 0) < 0 && errno == EAFNOSUPPORT);
	CHECK(27, bind(fd, &address.any, sizeof(address.v4)) < 0 && errno == ENOSYS);
	CHECK(28, listen(fd, 1) < 0 && errno == ENOSYS);
	CHECK(29, execl("/bin/true", "true", NULL) < 0 && errno == ENOSYS);
	CHECK(30, socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP) < 0 && errno == EAFNOSUPPORT);
}

#define INSERT_MANY                                                                                \
	"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "         \
	"INSERT INTO t SELECT i, hex(randomblob(100)) FROM n"

/* The store's library through its rarer ways: WAL, its shared memory, a large sort, a check point,
 * a rewrite of the file. The folder is the working directory, as the worker's own is /state. */
static void check_sqlite(void)
{
	static const char *const statements[] = {
		"PRAGMA journal_mode=WAL",
		"PRAGMA synchronous=FULL",
		"CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)",
		INSERT_MANY,
		"PRAGMA cache_size=10",
		"PRAGMA temp_store=FILE",
		"CREATE INDEX x ON t (b)",
		"DELETE FROM t WHERE a % 2",
		"PRAGMA wal_checkpoint(TRUNCATE)",
		"VACUUM",
		"PRAGMA integrity_check",
	};
	sqlite3 *database = NULL;

	confine("worker-api");
	CHECK(50, sqlite3_open("filters.db", &database) == SQLITE_OK);
	for (size_t i = 0; i < ARRAY_SIZE(statements); i++)
		CHECK((int)i + 51,
		      sqlite3_exec(database, statements[i], NULL, NULL, NULL) == SQLITE_OK);
	CHECK(80, sqlite3_close(database) == SQLITE_OK);
}

static void test_filters_api_worker_runs_its_store(void **state)
{
	struct test_temp temp;

	(void)state;
	test_temp_init(&temp);
	assert_int_equal(fchdir(temp.fd), 0);
	assert_exits_zero(check_sqlite);
	assert_int_equal(chdir("/"), 0);
	test_temp_done(&temp);
}

static void check_config(void)
{
	confine("worker-config");
	CHECK(1, write(STDOUT_FILENO, "", 0) == 0);
	if (!applied)
		return;
	CHECK(2, open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0 && errno == ENOSYS);
	CHECK(3, socket(AF_UNIX, SOCK_STREAM, 0) < 0 && errno == ENOSYS);
}

static void check_egress(void)
{
	confine("worker-egress");
	CHECK(1, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0);
	CHECK(2, open("/etc/hosts", O_RDONLY | O_CLOEXEC) >= 0);
	if (!applied)
		return;
	CHECK(3, open("/tmp/x", O_RDWR | O_CREAT | O_CLOEXEC, 0600) < 0 && errno == EACCES);
	CHECK(4, socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) < 0 && errno == EAFNOSUPPORT);
	CHECK(5, socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP) < 0 && errno == EAFNOSUPPORT);
	CHECK(6, socket(AF_INET6, SOCK_STREAM, IPPROTO_MPTCP) < 0 && errno == EAFNOSUPPORT);
	CHECK(7, socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) < 0 && errno == EAFNOSUPPORT);
	CHECK(8, socket(AF_INET6, SOCK_DGRAM, IPPROTO_UDP) >= 0);
	CHECK(9, socket(AF_UNIX, SOCK_STREAM, 0) < 0 && errno == EAFNOSUPPORT);
}

/* abort() must be a death, not a hang or a loop of refused signals. */
static void abort_in_shim(void)
{
	take(open_policy(), "component", POLICY_FILTER_SHIM);
	abort();
}

static void test_filters_workers_do_their_work_and_no_more(void **state)
{
	(void)state;
	assert_exits_zero(check_api);
	assert_exits_zero(check_api_network);
	assert_exits_zero(check_egress);
	assert_exits_zero(check_config);
}

static void test_filters_abort_ends_a_confined_shim(void **state)
{
	int status;

	(void)state;
	status = run_child(abort_in_shim);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void take_unknown(void)
{
	struct err err = ERR_NULL;

	if (confine_worker(open_policy(), "component", &applied, &err) != -ENOENT ||
	    !str_equal(err.text, "no worker profile component"))
		_exit(1);
	if (confine_seccomp(NULL, 0) != -EINVAL)
		_exit(2);
}

static void test_filters_a_session_profile_is_no_worker_profile(void **state)
{
	(void)state;
	assert_exits_zero(take_unknown);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_filters_commands_give_each_errno),
	cmocka_unit_test(test_filters_other_abis_die),
	cmocka_unit_test(test_filters_programs_run_under_the_command_filter),
	cmocka_unit_test(test_filters_workers_do_their_work_and_no_more),
	cmocka_unit_test(test_filters_api_worker_runs_its_store),
	cmocka_unit_test(test_filters_abort_ends_a_confined_shim),
	cmocka_unit_test(test_filters_a_session_profile_is_no_worker_profile),
};
TEST_MAIN(tests)
