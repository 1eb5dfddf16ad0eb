#include "supervisor/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

/* "DEVICE:INODE" of the stream that the service manager gave us, while standard error is still it:
 * a shell that redirects it means what it does. */
static bool stderr_is_journal(void)
{
	/* One thread and nobody calls setenv. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *stream = getenv("JOURNAL_STREAM");
	char own[64];
	struct stat st;

	if (!stream || fstat(STDERR_FILENO, &st) < 0)
		return false;
	return str_format(own, sizeof(own), "%llu:%llu", (unsigned long long)st.st_dev,
			  (unsigned long long)st.st_ino) == 0 &&
	       str_equal(stream, own);
}

int journal_open(void)
{
	const struct sockaddr_un address = {
		.sun_family = AF_UNIX,
		.sun_path = "/run/systemd/journal/socket",
	};
	AUTO_CLOSE int fd = -1;

	if (!stderr_is_journal())
		return -1;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, &address, sizeof(address)) < 0)
		return -1;
	return TAKE_FD(fd);
}
