/* Files of /proc and limits: B16, B17, B20, E4. */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attacks/attack.h"

/* argv: paths. `empty` where nothing can be read from what is there. */
int attack_read_files(int argc, char **argv)
{
	char byte;

	for (int i = 0; i < argc; i++) {
		int fd = open(argv[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0) {
			say_result(argv[i], fd);
			continue;
		}
		ssize_t n = read(fd, &byte, 1);
		if (n < 0 && errno == EISDIR)
			n = syscall(SYS_getdents64, fd, (char[4096]){0}, 4096) > 48;
		say(argv[i], "%s", n > 0 ? "ok" : n == 0 ? "empty" : strerrorname_np(errno));
		(void)close(fd);
	}
	return 0;
}

/* argv: paths that are opened for writing; nothing is written. */
int attack_write_files(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		int fd = open(argv[i], O_WRONLY | O_CLOEXEC);
		say_result(argv[i], fd);
		if (fd >= 0)
			(void)close(fd);
	}
	return 0;
}

static long one_process(long i)
{
	(void)i;
	pid_t pid = fork();
	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	return pid;
}

static long one_file(long i)
{
	(void)i;
	return open("/", O_PATH);
}

static long one_socket(long i)
{
	(void)i;
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static long one_inotify(long i)
{
	(void)i;
	return inotify_init();
}

static long one_terminal(long i)
{
	(void)i;
	return open("/dev/ptmx", O_RDWR | O_NOCTTY);
}

static long one_signal(long i)
{
	static bool blocked;

	if (!blocked) {
		sigset_t set;
		(void)sigemptyset(&set);
		(void)sigaddset(&set, SIGRTMIN);
		(void)sigprocmask(SIG_BLOCK, &set, NULL);
		blocked = true;
	}
	return sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = (int)i});
}

static long one_locked_mebibyte(long i)
{
	(void)i;
	void *memory =
		mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? -1 : mlock(memory, 1 << 20);
}

/* As large a pipe as anybody may have without asking. */
static long one_pipe(long i)
{
	int fds[2];

	(void)i;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	return fcntl(fds[1], F_SETPIPE_SZ, 1 << 20);
}

static long one_queue(long i)
{
	struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = 8192};
	char name[32];

	(void)snprintf(name, sizeof(name), "/escape-%ld", i);
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &attr);
	return queue == (mqd_t)-1 ? -1 : 0;
}

static long one_inode(long i)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "/tmp/escape-inode-%ld", i);
	return mknod(name, S_IFREG | 0600, 0);
}

static long one_mebibyte(long i)
{
	static char block[1 << 20];
	static int fd = -1;

	if (i == 0)
		fd = open("/tmp/escape-bytes", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n = write(fd, block, sizeof(block));
	if (n >= 0 && n < (ssize_t)sizeof(block)) {
		errno = ENOSPC;
		return -1;
	}
	return n;
}

static long one_resident_mebibyte(long i)
{
	(void)i;
	char *memory =
		mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -1;
	memset(memory, 1, 1 << 20);
	return 0;
}

static int listen_on_loopback(struct sockaddr_in *address)
{
	socklen_t size = sizeof(*address);

	*address = (struct sockaddr_in){.sin_family = AF_INET,
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, address, size) < 0 || listen(fd, 1024) < 0 ||
	    getsockname(fd, address, &size) < 0)
		return -1;
	return fd;
}

/* What one more connection holds that nobody reads, both buffers as large as the kernel makes them.
 * A size asked for would keep them below net.core.wmem_max, which is 208 KiB before Linux 6.17. */
static long fill_connection(void)
{
	static char block[65536];
	static struct sockaddr_in address;
	static int listener = -1;
	long held = 0;

	if (listener < 0)
		listener = listen_on_loopback(&address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, &address, sizeof(address)) < 0 ||
	    accept4(listener, NULL, NULL, SOCK_CLOEXEC) < 0)
		return -1;
	for (ssize_t n = 0; n >= 0;) {
		n = send(fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
		held += n > 0 ? n : 0;
	}
	return held;
}

/* ENOBUFS when one more connection holds next to nothing. Where buffers count as memory, the kernel
 * ends the largest process, whoever holds them: ours, by what it does not need. */
static long one_buffered_mebibyte(long i)
{
	static long held;

	for (long n = 0; i == 0 && n < 16; n++) {
		if (one_resident_mebibyte(n) < 0)
			return -1;
	}
	while (held <= i << 20) {
		long more = fill_connection();
		if (more < 0)
			return -1;
		if (more < 1 << 17) {
			errno = ENOBUFS;
			return -1;
		}
		held += more;
	}
	return 0;
}

static const struct resource {
	const char *name;
	long (*take)(long i);
} resources[] = {
	{"processes", one_process          },
	{"files",     one_file             },
	{"sockets",   one_socket           },
	{"inotify",   one_inotify          },
	{"terminals", one_terminal         },
	{"signals",   one_signal           },
	{"locked",    one_locked_mebibyte  },
	{"queues",    one_queue            },
	{"pipes",     one_pipe             },
	{"inodes",    one_inode            },
	{"tmpfs",     one_mebibyte         },
	{"memory",    one_resident_mebibyte},
	{"tcp",       one_buffered_mebibyte},
};

static void give_back(const char *name)
{
	char path[64];

	if (strcmp(name, "tmpfs") == 0)
		(void)unlink("/tmp/escape-bytes");
	for (long i = 0; strcmp(name, "inodes") == 0 && i < 70000; i++) {
		(void)snprintf(path, sizeof(path), "/tmp/escape-inode-%ld", i);
		if (unlink(path) < 0)
			return;
	}
	for (long i = 0; strcmp(name, "queues") == 0 && i < 4096; i++) {
		(void)snprintf(path, sizeof(path), "/escape-%ld", i);
		if (mq_unlink(path) < 0)
			return;
	}
	if (strcmp(name, "processes") == 0) {
		(void)signal(SIGTERM, SIG_IGN);
		(void)kill(0, SIGTERM);
		while (wait(NULL) > 0)
			continue;
	}
}

static const struct resource *find_resource(const char *name)
{
	for (size_t i = 0; i < sizeof(resources) / sizeof(resources[0]); i++) {
		if (strcmp(resources[i].name, name) == 0)
			return &resources[i];
	}
	return NULL;
}

/* argv: pairs of a resource and how often it is taken: `ok` if as often, else the errno. */
int attack_exhaust(int argc, char **argv)
{
	for (int i = 0; i + 1 < argc; i += 2) {
		const struct resource *resource = find_resource(argv[i]);
		long most = strtol(argv[i + 1], NULL, 10);

		if (!resource)
			return 2;
		struct forked forked = forked_begin();
		if (forked.pid == 0) {
			long r = 0;
			(void)setpgid(0, 0);
			for (long n = 0; r >= 0 && n < most; n++)
				r = resource->take(n);
			int number = errno;
			give_back(resource->name);
			errno = number;
			forked_end(forked, r);
		}
		forked_wait(resource->name, forked);
	}
	return 0;
}

int hold_until_removed(const char *path)
{
	if (mknod(path, S_IFREG | 0600, 0) < 0)
		return 1;
	for (int i = 0; i < 6000 && access(path, F_OK) == 0; i++)
		(void)usleep(100000);
	return 0;
}

#define HELD "/tmp/escape-held"

/* argv: as of `exhaust`, of resources that need no process of their own. All are kept until the
 * file HELD, which says that they are taken, is removed. */
int attack_hold(int argc, char **argv)
{
	for (int i = 0; i + 1 < argc; i += 2) {
		const struct resource *resource = find_resource(argv[i]);
		long most = strtol(argv[i + 1], NULL, 10);
		long r = 0;

		if (!resource)
			return 2;
		for (long n = 0; r >= 0 && n < most; n++)
			r = resource->take(n);
		say_result(resource->name, r);
	}
	if (hold_until_removed(HELD) != 0)
		return 1;
	give_back("queues");
	return 0;
}

#define MARK "escape-mark"

static void mark_file(const char *folder, bool make)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/" MARK, folder);
	int fd = open(path, make ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0644);
	say_result(folder, fd);
	if (fd >= 0)
		(void)close(fd);
}

/* `make` leaves something at every place that outlives a process; `find` looks for it. */
int attack_marks(int argc, char **argv)
{
	static const char *const folders[] = {"/session", "/tmp", "/dev/shm", "/session/home"};
	const key_t key = 0x5b0;
	struct mq_attr attr = {.mq_maxmsg = 1, .mq_msgsize = 8};

	if (argc < 1)
		return 2;
	bool make = strcmp(argv[0], "make") == 0;
	int flags = make ? IPC_CREAT | 0666 : 0;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		mark_file(folders[i], make);
	say_result("shared memory", shmget(key, 4096, flags));
	say_result("semaphores", semget(key, 1, flags));
	say_result("message queue", msgget(key, flags));
	mqd_t queue = mq_open("/" MARK, make ? O_RDWR | O_CREAT : O_RDONLY, 0666, &attr);
	say_result("POSIX queue", queue);
	return 0;
}
