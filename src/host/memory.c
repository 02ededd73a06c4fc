/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory.c - the check at registration that a range is mapped with the rights; and, for regions on
 * demand, the same at each use.
 *
 * A NIC pins the pages; here nothing is pinned or locked, so that a program needs no allowance for
 * locked memory, and what is asked is only what the program could see itself: the mappings. The
 * kernel answers by address (PROCMAP_QUERY, Linux 6.11) or, before that, with the whole table as
 * text. The file is opened each time because a descriptor kept over fork would show the parent.
 */
#include "host/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* The kernel's struct procmap_query; older headers do not have it. */
struct map_query {
	uint64_t size;
	uint64_t query_flags;
	uint64_t query_addr;
	uint64_t vma_start;
	uint64_t vma_end;
	uint64_t vma_flags;
	uint64_t vma_page_size;
	uint64_t vma_offset;
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	uint32_t vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define MAP_QUERY _IOWR('f', 17, struct map_query)
#define MAP_READABLE 0x1u
#define MAP_WRITABLE 0x2u

int vb_memory_check_by_query(int maps, uint64_t start, uint64_t end, bool write)
{
	const uint64_t wanted = MAP_READABLE | (write ? MAP_WRITABLE : 0);

	while (start < end) {
		struct map_query query = {
			.size = sizeof(query),
			.query_flags = wanted,
			.query_addr = start,
		};

		if (ioctl(maps, MAP_QUERY, &query) != 0)
			return errno == ENOENT ? -EFAULT : -ENOTTY;
		if (query.vma_end <= start)
			return -EFAULT;
		start = query.vma_end;
	}
	return 0;
}

/* What is left of the range after one line of the table; the lines come in rising order.
 * 0: go on, 1: all found, -EFAULT. */
static int match_line(const char *line, uint64_t *start, uint64_t end, bool write)
{
	char *rest;
	uint64_t from = strtoull(line, &rest, 16), to;

	if (*rest != '-')
		return 0;
	to = strtoull(rest + 1, &rest, 16);
	if (to <= *start)
		return 0;
	if (from > *start || rest[0] != ' ' || rest[1] != 'r' || (write && rest[2] != 'w'))
		return -EFAULT;
	*start = to;
	return to >= end;
}

int vb_memory_check_by_text(int maps, uint64_t start, uint64_t end, bool write)
{
	char buffer[8192]; /* a line has up to 4096 bytes of path and about 80 before it */
	size_t have = 0;

	if (start >= end)
		return 0;
	for (;;) {
		ssize_t got = read(maps, buffer + have, sizeof(buffer) - 1 - have);
		char *line = buffer, *newline;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return -EFAULT;
		have += (size_t)got;
		buffer[have] = '\0';
		while ((newline = memchr(line, '\n', have - (size_t)(line - buffer))) != NULL) {
			int rc = match_line(line, &start, end, write);

			if (rc)
				return rc > 0 ? 0 : rc;
			line = newline + 1;
		}
		have -= (size_t)(line - buffer);
		memmove(buffer, line, have);
	}
}

/* --- memory on demand -------------------------------------------------------------------- */

/* Linux 5.14; older headers do not have them. */
#define POPULATE_READ 22
#define POPULATE_WRITE 23
#define POPULATE_TRIES 100 /* EAGAIN: the mapping changed meanwhile */

static int populate(uint64_t start, uint64_t end, bool write)
{
	for (int i = 0; i < POPULATE_TRIES; i++) {
		if (madvise((void *)(uintptr_t)start, end - start,
			    write ? POPULATE_WRITE : POPULATE_READ) == 0)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			break;
	}
	return -errno;
}

/* knows_populate - EINVAL may say that the right is missing, or that the kernel does not know the
 * request: asked once about a page that is certainly there. */
static bool knows_populate(uint64_t page)
{
	static _Atomic int known; /* 0: not asked yet, 1: no, 2: yes */
	const uint64_t here = (uint64_t)(uintptr_t)&known & ~(page - 1);

	if (!known)
		known = populate(here, here + page, false) == -EINVAL ? 1 : 2;
	return known == 2;
}

int vb_memory_bring_in(const void *addr, uint64_t length, bool write)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = (uint64_t)(uintptr_t)addr & ~(page - 1), end;

	if (length == 0)
		return 0;
	if (__builtin_add_overflow((uint64_t)(uintptr_t)addr, length, &end) || end > -page)
		return -EFAULT;
	if (!knows_populate(page))
		return vb_memory_check(addr, length, write);
	return populate(start, (end + page - 1) & ~(page - 1), write) ? -EFAULT : 0;
}

/* --- the memory of a region ------------------------------------------------------------- */

/* check_by_use - where the table of mappings is not to be read: no descriptor is left, or there is
 * no /proc. The pages come in, as they would to be pinned. */
static int check_by_use(const void *addr, uint64_t length, bool write)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return knows_populate(page) ? vb_memory_bring_in(addr, length, write) : -ENOMEM;
}

int vb_memory_check(const void *addr, uint64_t length, bool write)
{
	uint64_t start = (uint64_t)(uintptr_t)addr, end;
	int maps, rc;

	if (__builtin_add_overflow(start, length, &end))
		return -EINVAL;
	if (length == 0)
		return 0;
	maps = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
	if (maps < 0)
		return check_by_use(addr, length, write);
	rc = vb_memory_check_by_query(maps, start, end, write);
	if (rc == -ENOTTY)
		rc = vb_memory_check_by_text(maps, start, end, write);
	close(maps);
	return rc;
}
