#include "supervisor/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/landlock.h"
#include "base/num.h"

#include "sandboxd/kernel.h"

#define LANDLOCK_ABI_6_1 2

/* "6.18.44-anything": the first two numbers. */
static bool release_at_least(char *release, uint32_t major, uint32_t minor)
{
	uint32_t has_major = 0;
	uint32_t has_minor = 0;
	char *dot = strchr(release, '.');

	if (!dot)
		return false;
	*dot = '\0';
	char *end = dot + 1 + strspn(dot + 1, "0123456789");
	*end = '\0';
	if (num_parse_u32(release, 0, 1000, &has_major) < 0 ||
	    num_parse_u32(dot + 1, 0, 1000, &has_minor) < 0)
		return false;
	return has_major > major || (has_major == major && has_minor >= minor);
}

int probe_minimum(struct err *err)
{
	struct utsname name;

	if (uname(&name) < 0)
		return err_fail(err, -errno, "probe", "uname");
	if (strcmp(name.machine, "x86_64") != 0)
		return err_fail(err, -ENOSYS, "probe", "x86-64 is needed, this is %s",
				name.machine);
	if (!release_at_least(name.release, 6, 1))
		return err_fail(err, -ENOSYS, "probe", "Linux 6.1 or newer is needed");
	/* Can be compiled out, but no filter means no session. */
	if (syscall(SYS_seccomp, 2 /* SECCOMP_GET_ACTION_AVAIL */, 0, &(uint32_t){0x7fff0000u}) < 0)
		return err_fail(err, -ENOSYS, "probe", "seccomp filters are needed");
	return 0;
}

/* struct pidfd_info of Linux 6.13 in its first published size. */
struct pidfd_group_info {
	uint64_t mask;
	uint64_t group_id;
	uint32_t ids[12];
};
_Static_assert(sizeof(struct pidfd_group_info) == 64, "PIDFD_INFO_SIZE_VER0");
#define MASK_GROUP_ID 4u

int probe_pidfd_group(int pid_fd, uint64_t *ret_group_id)
{
	struct pidfd_group_info info = {.mask = MASK_GROUP_ID};

	if (ioctl(pid_fd, _IOWR(0xFF, 11, struct pidfd_group_info), &info) < 0)
		return -errno;
	if (!(info.mask & MASK_GROUP_ID))
		return -ENOTSUP;
	*ret_group_id = info.group_id;
	return 0;
}

static bool has_pidfd_info(void)
{
	AUTO_CLOSE int fd = kernel_pidfd_open(getpid(), 0);
	uint64_t group_id = 0;

	return fd >= 0 && probe_pidfd_group(fd, &group_id) == 0;
}

uint32_t probe_landlock(bool force_minimum)
{
	uint32_t abi = landlock_abi();

	return force_minimum && abi > LANDLOCK_ABI_6_1 ? LANDLOCK_ABI_6_1 : abi;
}

/* The two of idmapped layers are asked of the layers themselves: idmap.c. */
uint32_t probe_features(bool force_minimum)
{
	return !force_minimum && has_pidfd_info() ? KERNEL_PIDFD_INFO : 0;
}
