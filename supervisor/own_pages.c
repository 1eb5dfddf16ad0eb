/*
 * Theory. fork adds each mapping of a file to the list that the file's inode keeps of them, under a
 * lock of that inode. Sessions see the host's /usr, so the inode of our libc is theirs too: two
 * thousand processes of a fork bomb wait for its lock, and a launch waited behind them, for seconds
 * with each mapping (B20). So the supervisor maps copies: a sealed memfd for each segment,
 * which nobody else has. They are as shared between it and its children as the files were, and a
 * fork copies no more page tables than before.
 *
 * What the process sees does not change: the same bytes, protection and addresses. In
 * /proc/PID/maps the files are named as memfds: perf and gdb need the real ones named to them.
 */
#include "supervisor/own_pages.h"

#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "base/auto.h"
#include "base/fd.h"

#define PAGE_BYTES   ((uintptr_t)4096)
#define MAX_SEGMENTS 64u
/* The sanitizer would report that the gaps between variables are read. */
#if defined(__SANITIZE_ADDRESS__)
#define IS_WATCHED true
#else
#define IS_WATCHED false
#endif

struct segment {
	uintptr_t start;
	uintptr_t end;
	int protection;
	const char *name; /* of the file: the loader's */
};

struct segments {
	struct segment segment[MAX_SEGMENTS];
	size_t n;
	bool is_full;
};

static uintptr_t page_down(uintptr_t address)
{
	return address & ~(PAGE_BYTES - 1);
}

static uintptr_t page_up(uintptr_t address)
{
	return page_down(address + PAGE_BYTES - 1);
}

static void add(struct segments *segments, const char *name, uintptr_t start, uintptr_t end,
		int protection)
{
	if (start >= end)
		return;
	if (segments->n == MAX_SEGMENTS) {
		segments->is_full = true;
		return;
	}
	segments->segment[segments->n++] = (struct segment){start, end, protection, name};
}

static int protection_of(const ElfW(Phdr) * header)
{
	return (header->p_flags & PF_R ? PROT_READ : 0) |
	       (header->p_flags & PF_W ? PROT_WRITE : 0) | (header->p_flags & PF_X ? PROT_EXEC : 0);
}

/* What the loader has made read-only after it had relocated it. */
static void find_relro(const struct dl_phdr_info *info, uintptr_t *ret_start, uintptr_t *ret_end)
{
	*ret_start = *ret_end = 0;
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type != PT_GNU_RELRO)
			continue;
		*ret_start = page_down(info->dlpi_addr + header->p_vaddr);
		*ret_end = page_down(info->dlpi_addr + header->p_vaddr + header->p_memsz);
	}
}

static int collect(struct dl_phdr_info *info, size_t size, void *userdata)
{
	struct segments *segments = userdata;
	const char *last = strrchr(info->dlpi_name, '/');
	const char *name = last ? last + 1 : "sandboxd"; /* the program has no name here */
	uintptr_t relro_start, relro_end;

	(void)size;
	find_relro(info, &relro_start, &relro_end);
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		uintptr_t start = page_down(info->dlpi_addr + header->p_vaddr);
		/* Beyond what the file has there is memory without a file already. */
		uintptr_t end = page_up(info->dlpi_addr + header->p_vaddr + header->p_filesz);

		/* The kernel's own object is no file. */
		if (header->p_type != PT_LOAD || header->p_filesz == 0 ||
		    start == getauxval(AT_SYSINFO_EHDR))
			continue;
		if (start <= relro_start && relro_end <= end && relro_start < relro_end) {
			add(segments, name, start, relro_start, protection_of(header));
			add(segments, name, relro_start, relro_end, PROT_READ);
			start = relro_end;
		}
		add(segments, name, start, end, protection_of(header));
	}
	return 0;
}

/* Nothing is written to the segment between the copy and the exchange: no call here allocates, and
 * errno is in thread storage. */
static int replace(const struct segment *segment)
{
	/* An address of the loader's is an integer. NOLINTNEXTLINE(performance-no-int-to-ptr) */
	void *at = (void *)segment->start;
	size_t size = segment->end - segment->start;
	AUTO_CLOSE int fd =
		fd_memfd_sealed(segment->name, at, size, (segment->protection & PROT_EXEC) != 0);

	if (fd < 0)
		return fd;
	/* One exchange under the lock of our mappings: what runs here goes on in the copy. */
	if (mmap(at, size, segment->protection, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
		return -errno;
	return 0;
}

int own_pages_take(struct err *err)
{
	struct segments segments = {.n = 0};

	if (IS_WATCHED)
		return 0;
	(void)dl_iterate_phdr(collect, &segments);
	if (segments.is_full)
		return err_fail(err, -E2BIG, "own-pages", "more than %u segments", MAX_SEGMENTS);
	for (size_t i = 0; i < segments.n; i++) {
		int r = replace(&segments.segment[i]);

		if (r < 0)
			return err_fail(err, r, "own-pages", "segment %zu", i);
	}
	return 0;
}
