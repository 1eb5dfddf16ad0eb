#include "jail/contain/contain.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/capability.h>

#include "base/fd.h"

#define TRIES    500
#define PAUSE_MS 20

int contain_drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[2] = {{0}, {0}};

	return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

int contain_dial(const char *path, int type, int *ret_fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const void *at = &address; /* a cast would be a pun to the compiler */

	memcpy(address.sun_path, path, strlen(path) + 1);
	for (int i = 0; i < TRIES; i++) {
		AUTO_CLOSE int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return -errno;
		if (connect(fd, at, sizeof(address)) == 0) {
			*ret_fd = TAKE_FD(fd);
			return 0;
		}
		if (errno != ENOENT && errno != ECONNREFUSED)
			return -errno;
		(void)poll(NULL, 0, PAUSE_MS);
	}
	return -ETIMEDOUT;
}
