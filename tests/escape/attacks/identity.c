/* Ids and capabilities: A10, B12. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>

#include "attacks/attack.h"

static void say_status(const char *key)
{
	char line[256];
	size_t length = strlen(key);
	FILE *file = fopen("/proc/self/status", "re");

	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, key, length) == 0 && line[length] == ':') {
			line[strcspn(line, "\n")] = '\0';
			say(key, "%s", line + length + 2);
		}
	}
	(void)fclose(file);
}

static long try_capset(uint32_t inheritable)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{.effective = inheritable, .permitted = inheritable, .inheritable = inheritable},
	};

	return syscall(SYS_capset, &header, data);
}

static long try_chown(void)
{
	char name[] = "/tmp/escape-chown-XXXXXX";
	int fd = mkstemp(name);

	if (fd < 0)
		return -1;
	long r = fchown(fd, 0, 0);
	int number = errno;
	(void)unlink(name);
	errno = number;
	return r;
}

int attack_identity(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	say_status("CapInh");
	say_status("CapPrm");
	say_status("CapEff");
	say_status("CapBnd");
	say_status("CapAmb");
	FORKED("setuid 0", syscall(SYS_setuid, 0));
	FORKED("setresuid 0", syscall(SYS_setresuid, 0, 0, 0));
	FORKED("setresuid 65535", syscall(SYS_setresuid, 65535, 65535, 65535));
	FORKED("setgid 0", syscall(SYS_setgid, 0));
	FORKED("setgroups", syscall(SYS_setgroups, 0, NULL));
	FORKED("capset KILL", try_capset(1u << CAP_KILL));
	FORKED("capset SYS_ADMIN", try_capset(1u << CAP_SYS_ADMIN));
	FORKED("ambient KILL", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0));
	FORKED("unlock securebits", prctl(PR_SET_SECUREBITS, 0, 0, 0, 0));
	FORKED("chown to 0", try_chown());
	FORKED("mknod a device", mknod("/tmp/escape-device", S_IFCHR | 0600, 0x103));
	(void)unlink("/tmp/escape-device");
	return 0;
}

static int copy_file(const char *from, const char *to)
{
	char buffer[8192];
	ssize_t n = 0;

	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	if (in < 0 || out < 0)
		return -1;
	while ((n = read(in, buffer, sizeof(buffer))) > 0) {
		if (write(out, buffer, (size_t)n) != n)
			return -1;
	}
	(void)close(out);
	(void)close(in);
	return 0;
}

/* argv[0]: where the copy goes; argv[1]: an id that owns it if that can be had. The copy then runs
 * as argv[2] if we may change to it. */
int attack_setuid_copy(int argc, char **argv)
{
	if (argc < 3 || copy_file("/proc/self/exe", argv[0]) < 0)
		return 2;
	long r = chown(argv[0], (uid_t)strtoul(argv[1], NULL, 10), (gid_t)-1);
	say_result("chown the copy", r);
	say_result("chmod 4755", chmod(argv[0], 04755));
	(void)fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		uid_t uid = (uid_t)strtoul(argv[2], NULL, 10);
		if (setresuid(uid, uid, uid) < 0 && getuid() != uid)
			_exit(3);
		(void)execl(argv[0], argv[0], "effective-id", (char *)NULL);
		_exit(4);
	}
	return waitpid(pid, NULL, 0) < 0;
}

int attack_effective_id(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	say("effective id", "%u", geteuid());
	return 0;
}
