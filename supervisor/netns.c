/*
 * Runs as root of the host's user namespace, which owns the new network namespace: nobody inside
 * the session can ever change what is set here. /proc is still the supervisor's; its net sysctls
 * are those of the caller's network namespace.
 */
#include "supervisor/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

int netns_loopback(void)
{
	struct ifreq request = {.ifr_name = "lo"};
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

int netns_sysctls(void)
{
	static const struct sysctl_row {
		const char *path;
		const char *value;
	} rows[] = {
  /* Nobody inside has NET_BIND_SERVICE, and nobody else is in there. */
		{"/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"   },
 /* Ended connections are counted by no control group (B20). */
		{"/proc/sys/net/ipv4/tcp_max_tw_buckets",         "4096"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int r = io_write_at(AT_FDCWD, rows[i].path, rows[i].value);
		if (r < 0)
			return r;
	}
	return 0;
}
