/* Sockets and shared inodes: A13, A14, B15, B23, C1, C2. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/fanotify.h>

#include "attacks/attack.h"

static long try_connect(const char *name, bool is_abstract, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(name);

	if (length + 1 >= sizeof(address.sun_path))
		length = sizeof(address.sun_path) - 2;
	memcpy(address.sun_path + is_abstract, name, length);
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	long r = connect(fd, &address,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1));
	int number = errno;
	(void)close(fd);
	errno = number;
	return r;
}

/* argv: names without the leading NUL. */
int attack_abstract(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		say_result(argv[i], try_connect(argv[i], true, SOCK_STREAM));
	}
	return 0;
}

static int n_found[3];

static int look(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)type;
	(void)ftw;
	if (S_ISSOCK(st->st_mode) && strncmp(path, "/session", 8) != 0)
		n_found[0]++;
	if ((S_ISBLK(st->st_mode) || S_ISCHR(st->st_mode)) && strncmp(path, "/dev/", 5) != 0)
		n_found[1]++;
	if (S_ISREG(st->st_mode) && strncmp(path, "/session", 8) != 0 &&
	    (st->st_mode & (S_ISUID | S_ISGID)))
		n_found[2]++;
	return 0;
}

/* argv[0]: a tree to look through; the others: sockets to connect to. */
int attack_socket_files(int argc, char **argv)
{
	if (argc < 1)
		return 2;
	(void)nftw(argv[0], look, 64, FTW_PHYS);
	say("socket files", "%d", n_found[0]);
	say("devices", "%d", n_found[1]);
	say("setuid files", "%d", n_found[2]);
	for (int i = 1; i < argc; i++)
		say_result(argv[i], try_connect(argv[i], false, SOCK_STREAM));
	return 0;
}

/* As a user of the host: argv[0] the runtime directory, argv[1] the state directory. */
int attack_run_directory(int argc, char **argv)
{
	static const char *const names[] = {"private/sessions/forged.sock", "private/forged",
					    "operator.sock.new", "forged"};
	char path[300];

	if (argc < 3)
		return 2;
	uid_t uid = (uid_t)strtoul(argv[2], NULL, 10);
	if (uid != 0 && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
			 setresuid(uid, uid, uid) < 0))
		return 3;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", argv[0], names[i]);
		int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		int number = errno;
		if (fd >= 0)
			(void)unlink(path);
		errno = number;
		say_result(names[i], fd);
	}
	(void)snprintf(path, sizeof(path), "%s/private", argv[0]);
	say_result("list private", open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	(void)snprintf(path, sizeof(path), "%s/api/api.db", argv[1]);
	say_result("read the database", open(path, O_RDONLY | O_CLOEXEC));
	(void)snprintf(path, sizeof(path), "%s/operator.sock", argv[0]);
	say_result("connect to operator.sock", try_connect(path, false, SOCK_STREAM));
	(void)snprintf(path, sizeof(path), "%s/control.sock", argv[0]);
	say_result("connect to control.sock", try_connect(path, false, SOCK_STREAM));
	return 0;
}

/* argv[0] a file of the template; argv[1]: the locks are held as long as that file is there. */
int attack_lock(int argc, char **argv)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

	if (argc < 1)
		return 2;
	int fd = open(argv[0], O_RDONLY | O_CLOEXEC);
	say_result("flock", flock(fd, LOCK_EX | LOCK_NB));
	say_result("record lock", fcntl(fd, F_OFD_SETLK, &lock));
	return argc > 1 ? hold_until_removed(argv[1]) : 0;
}

int attack_lease(int argc, char **argv)
{
	if (argc < 1)
		return 2;
	int fd = open(argv[0], O_RDONLY | O_CLOEXEC);
	say_result("lease", fcntl(fd, F_SETLEASE, F_RDLCK));
	say_result("lease with high bits",
		   syscall(SYS_fcntl, fd, 0x100000000ul | F_SETLEASE, F_RDLCK));
	int folder = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	say_result("directory notice", fcntl(folder, F_NOTIFY, DN_CREATE));
	say_result("fanotify", syscall(SYS_fanotify_init, FAN_CLASS_NOTIF, O_RDONLY));
	return 0;
}

/* Count what others do with argv[0] for argv[1] milliseconds. */
int attack_watch(int argc, char **argv)
{
	char buffer[4096];

	if (argc < 2)
		return 2;
	int fd = inotify_init1(IN_CLOEXEC);
	say_result("watch", inotify_add_watch(fd, argv[0], IN_OPEN | IN_ACCESS));
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	if (poll(&poll_fd, 1, (int)strtol(argv[1], NULL, 10)) > 0)
		say("events", "%s", read(fd, buffer, sizeof(buffer)) > 0 ? "some" : "none");
	else
		say("events", "none");
	return 0;
}
