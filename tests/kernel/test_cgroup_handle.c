/*
 * A v2 group is found again by its inode alone, and once removed the same number says ESTALE: what
 * supervisor/idblock.c asks about other instances. Asked with the supervisor's capabilities only:
 * without DAC_READ_SEARCH the answer is EPERM, and no block would ever be taken back.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/cgroup_find.h"
#include "supervisor/privileges.h"
#include "tests/kernel/kernel.h"

static int open_by_id(int tree_fd, uint64_t id)
{
	union {
		struct file_handle handle;
		uint8_t bytes[sizeof(struct file_handle) + sizeof(uint64_t)];
	} name = {.bytes = {0}};

	name.handle.handle_bytes = sizeof(id);
	name.handle.handle_type = 0xfe;
	memcpy(name.bytes + offsetof(struct file_handle, f_handle), &id, sizeof(id));
	return open_by_handle_at(tree_fd, &name.handle, O_PATH | O_CLOEXEC);
}

int main(void)
{
	char name[48];
	struct stat st;

	if (geteuid() != 0)
		return KERNEL_SKIP;
	int own_fd = cgroup_find_own(NULL, NULL);
	if (own_fd < 0)
		return KERNEL_SKIP;
	KERNEL_CHECK(privileges_limit(NULL) == 0);
	(void)snprintf(name, sizeof(name), "sandboxd-kernel-test-%d", (int)getpid());
	KERNEL_CHECK(mkdirat(own_fd, name, 0755) == 0);
	int r = fstatat(own_fd, name, &st, 0);
	int fd = open_by_id(own_fd, st.st_ino);
	int removed = unlinkat(own_fd, name, AT_REMOVEDIR);
	KERNEL_CHECK(r == 0 && fd >= 0 && removed == 0);
	KERNEL_CHECK(close(fd) == 0);
	KERNEL_CHECK(open_by_id(own_fd, st.st_ino) < 0 && errno == ESTALE);
	return 0;
}
