/*
 * Runs as root, at start. Copies, never binds: the host's inodes, their locks and their
 * notifications stay out of sessions (B15, B23), and a file that becomes private later is not
 * shown. Only regular, world-readable files, directories and links are copied, bounded in number
 * and size.
 */
#include "supervisor/etc_template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/dirwalk.h"

#define ETC_MAX_ENTRIES  20000u
#define ETC_MAX_BYTES    (64ull * 1024 * 1024)
#define RESOLV_CONF      "resolv.conf"
#define RESOLV_MAX_BYTES ((size_t)65536)

/* The resolver address is the DNS stub of the egress worker; until it listens, queries are refused
 * at once. */
static const struct etc_text {
	const char *name;
	const char *text;
} frame_texts[] =
	{
		{"hosts",       "127.0.0.1 localhost " ETC_TEMPLATE_HOSTNAME "\n::1 localhost\n"},
		{"hostname",    ETC_TEMPLATE_HOSTNAME "\n"                                      },
		{"resolv.conf",
		 "nameserver " SESSION_RESOLVER_TEXT "\noptions timeout:2 attempts:1\n"         },
},
  texts[] = {
	  {"passwd", "root:x:0:0:root:/session/home:/bin/sh\n"
		     "user:x:1000:1000:user:/session/home:/bin/sh\n"
		     "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
	  {"group", "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n"},
	  {"nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
			    "services: files\nprotocols: files\n"},
	  {"services", "ftp 21/tcp\nssh 22/tcp\nsmtp 25/tcp\ndomain 53/tcp\ndomain 53/udp\n"
		       "http 80/tcp\nntp 123/udp\nldap 389/tcp\nhttps 443/tcp\nldaps 636/tcp\n"
		       "mysql 3306/tcp\npostgresql 5432/tcp\nredis 6379/tcp\nhttp-alt 8080/tcp\n"
		       "kafka 9092/tcp\n"},
	  {"protocols", "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6 41 IPv6\n"
			"ipv6-icmp 58 IPv6-ICMP\n"},
};
_Static_assert(SESSION_USER_ID == 1000, "passwd and group above");

static const struct etc_link {
	const char *name;
	const char *target;
} links[] = {
	{"localtime",  "../usr/share/zoneinfo/Etc/UTC"},
	{"mtab",       "../proc/self/mounts"          },
	{"os-release", "../usr/lib/os-release"        },
};

/* What is taken from the host where it is present and world-readable. A final * is a prefix. */
static const char *const from_host[] = {
	"alternatives",     "ld.so.cache",
	"ld.so.conf",       "ld.so.conf.d",
	"ssl/certs",        "ssl/openssl.cnf",
	"ca-certificates*", "java-*",
	"python3*",         "perl",
	"mime.types",       "fonts",
	"manpath.config",
};
static const char *const from_host_worker[] = {"ssl/certs",     "ssl/openssl.cnf", "resolv.conf",
					       "nsswitch.conf", "hosts",           "ld.so.cache"};

struct copy {
	int dest_fd;
	const char *const *names;
	size_t n_names;
	uint32_t n_entries;
	uint64_t n_bytes;
};

int etc_template_write(int dir_fd, const char *name, const char *text, unsigned int mode)
{
	AUTO_CLOSE int fd =
		openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);

	if (fd < 0)
		return -errno;
	/* The umask of the process must not decide what a session can read. */
	if (fchmod(fd, mode) < 0)
		return -errno;
	return io_write_all(fd, text, strlen(text));
}

static bool name_matches(const char *pattern, const char *path)
{
	size_t length = strlen(pattern);

	if (pattern[length - 1] == '*')
		return strncmp(pattern, path, length - 1) == 0;
	/* The entry itself, or what is below it. */
	return strncmp(pattern, path, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

/* 2: listed, or below a listed one; 1: a parent of a listed one; 0: neither. */
static int wanted(const struct copy *copy, const char *path)
{
	size_t length = strlen(path);

	for (size_t i = 0; i < copy->n_names; i++) {
		if (name_matches(copy->names[i], path))
			return 2;
	}
	for (size_t i = 0; i < copy->n_names; i++) {
		if (strncmp(copy->names[i], path, length) == 0 && copy->names[i][length] == '/')
			return 1;
	}
	return 0;
}

static int copy_link(const struct copy *copy, const struct dirwalk_entry *entry, const char *path)
{
	char target[DIRWALK_PATH_BYTES];

	ssize_t n = readlinkat(entry->dir_fd, entry->name, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, copy->dest_fd, path) < 0 ? -errno : 0;
}

static int copy_file(struct copy *copy, const struct dirwalk_entry *entry, const char *path,
		     mode_t mode)
{
	char block[8192];
	AUTO_CLOSE int from_fd =
		openat(entry->dir_fd, entry->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (from_fd < 0)
		return -errno;
	AUTO_CLOSE int to_fd = openat(copy->dest_fd, path,
				      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (to_fd < 0)
		return -errno;
	for (;;) {
		ssize_t n = io_read(from_fd, block, sizeof(block));
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		copy->n_bytes += (uint64_t)n;
		if (copy->n_bytes > ETC_MAX_BYTES)
			return -EFBIG;
		int r = io_write_all(to_fd, block, (size_t)n);
		if (r < 0)
			return r;
	}
	return fchmod(to_fd, mode & 0755) < 0 ? -errno : 0;
}

static int copy_directory(const struct copy *copy, const char *path)
{
	if (mkdirat(copy->dest_fd, path, 0755) < 0 && errno != EEXIST)
		return -errno;
	return fchmodat(copy->dest_fd, path, 0755, 0) < 0 ? -errno : 1;
}

static int visit(void *userdata, const struct dirwalk_entry *entry)
{
	struct copy *copy = userdata;
	char path[DIRWALK_PATH_BYTES];
	struct stat st;

	int r = dirwalk_join(path, entry->path, entry->name);
	if (r < 0)
		return r;
	int how = wanted(copy, path);
	if (how == 0)
		return 0;
	if (fstatat(entry->dir_fd, entry->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (++copy->n_entries > ETC_MAX_ENTRIES)
		return -E2BIG;
	if (S_ISDIR(st.st_mode))
		return (st.st_mode & 05) == 05 ? copy_directory(copy, path) : 0;
	if (how != 2)
		return 0;
	if (S_ISLNK(st.st_mode))
		return copy_link(copy, entry, path);
	if (S_ISREG(st.st_mode) && (st.st_mode & S_IROTH))
		return copy_file(copy, entry, path, st.st_mode);
	return 0;
}

static int copy_listed(int dest_fd, int host_etc_fd, const char *const *names, size_t n_names,
		       struct err *err)
{
	struct copy copy = {.dest_fd = dest_fd, .names = names, .n_names = n_names};

	int r = dirwalk(host_etc_fd, visit, &copy);
	if (r < 0)
		return err_fail(err, r, "etc-template", "copy from /etc");
	return 0;
}

static int write_texts(int dest_fd, const struct etc_text *rows, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		int r = etc_template_write(dest_fd, rows[i].name, rows[i].text, 0644);
		if (r < 0)
			return err_fail(err, r, "etc-template", "write %s", rows[i].name);
	}
	return 0;
}

int etc_template_frame(int dest_fd, struct err *err)
{
	return write_texts(dest_fd, frame_texts, ARRAY_SIZE(frame_texts), err);
}

int etc_template_build(int dest_fd, int host_etc_fd, struct err *err)
{
	int r = write_texts(dest_fd, frame_texts, ARRAY_SIZE(frame_texts), err);

	if (r == 0)
		r = write_texts(dest_fd, texts, ARRAY_SIZE(texts), err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		if (symlinkat(links[i].target, dest_fd, links[i].name) < 0)
			return err_fail(err, -errno, "etc-template", "link %s", links[i].name);
	}
	return copy_listed(dest_fd, host_etc_fd, from_host, ARRAY_SIZE(from_host), err);
}

/* Where resolv.conf is a link, into /run as a rule, its target is not in the worker root: the text
 * takes the link's place. */
static int settle_resolver(int dest_fd, int host_etc_fd)
{
	AUTO_FREE char *text = NULL;
	size_t size = 0;
	struct stat st;

	if (fstatat(dest_fd, RESOLV_CONF, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(st.st_mode))
		return 0;
	if (unlinkat(dest_fd, RESOLV_CONF, 0) < 0)
		return -errno;
	AUTO_CLOSE int fd = openat(host_etc_fd, RESOLV_CONF, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & S_IROTH))
		return 0; /* as on a host without one */
	int r = io_read_file(fd, RESOLV_MAX_BYTES, &text, &size);
	return r < 0 ? r : etc_template_write(dest_fd, RESOLV_CONF, text, 0644);
}

int etc_template_worker(int dest_fd, int host_etc_fd, struct err *err)
{
	int r = copy_listed(dest_fd, host_etc_fd, from_host_worker, ARRAY_SIZE(from_host_worker),
			    err);

	if (r < 0)
		return r;
	r = settle_resolver(dest_fd, host_etc_fd);
	return r < 0 ? err_fail(err, r, "etc-template", "copy " RESOLV_CONF) : 0;
}
