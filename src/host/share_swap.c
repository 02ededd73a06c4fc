/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * share_swap.c - see share.h: one set of pages in the place of another.
 *
 *      guard      no thread writes these pages any more: it waits at its first write (userfaultfd)
 *      copy       what is there, to the new pages
 *      replace    the new pages at the old address, in one system call
 *      wake       whoever waited writes, into the new pages
 *
 * So nothing that a thread writes is lost. What the kernel writes meanwhile on a program's behalf
 * (read(2) into the memory) fails with EFAULT: the guard holds user mode only, which is what the
 * kernel lets everybody do.
 *
 * Between guard and wake this thread writes none of the pages itself, and so calls nothing that
 * might (the heap may be among them), and takes no signal.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/share.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

/* Of an entry of /proc/self/pagemap. */
#define PAGE_IN_MEMORY (1ull << 63)
#define PAGE_IN_SWAP (1ull << 62)
#define ENTRIES 256u

struct guard {
	int fd;
	uint64_t addr, bytes;
	sigset_t signals;
};

static int open_guard(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY), error;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, UFFDIO_API, &api) == 0)
		return fd;
	error = errno;
	close(fd);
	return -error;
}

bool vb_share_can_swap(void)
{
	int fd = open_guard();

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

/* Whoever waits goes on. Closing does it too; the pages are not guarded any more. */
static void lower(struct guard *guard)
{
	struct uffdio_range range = {guard->addr, guard->bytes};

	(void)ioctl(guard->fd, UFFDIO_WAKE, &range);
	close(guard->fd);
	pthread_sigmask(SIG_SETMASK, &guard->signals, NULL);
}

/* missing: pages that are not there yet count as written when they come. */
static int raise_guard(struct guard *guard, uint64_t addr, uint64_t bytes, bool missing)
{
	struct uffdio_register reg = {
		.range = {addr, bytes},
		.mode = UFFDIO_REGISTER_MODE_WP | (missing ? UFFDIO_REGISTER_MODE_MISSING : 0),
	};
	struct uffdio_writeprotect protect = {
		.range = {addr, bytes},
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	sigset_t all;
	int error;

	guard->addr = addr;
	guard->bytes = bytes;
	guard->fd = open_guard();
	if (guard->fd < 0)
		return guard->fd;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &guard->signals);
	if (ioctl(guard->fd, UFFDIO_REGISTER, &reg) == 0) {
		if (ioctl(guard->fd, UFFDIO_WRITEPROTECT, &protect) == 0)
			return 0;
		error = errno;
		(void)ioctl(guard->fd, UFFDIO_UNREGISTER, &reg.range);
		errno = error;
	}
	error = errno;
	lower(guard);
	return -error;
}

static void give_up(struct guard *guard)
{
	struct uffdio_range range = {guard->addr, guard->bytes};

	(void)ioctl(guard->fd, UFFDIO_UNREGISTER, &range);
	lower(guard);
}

/* --- private to shared ------------------------------------------------------------------- */

/* A run of pages by the kernel: one that has gone meanwhile (madvise(2)) is zeros, where this
 * thread would wait for itself. */
static void copy_run(int memory, uint64_t from, uint8_t *to, uint64_t bytes, uint64_t page)
{
	for (uint64_t done = 0; done < bytes;) {
		ssize_t got = pread(memory, to + done, bytes - done, (off_t)(from + done));

		done = got > 0 ? done + (uint64_t)got : (done / page + 1) * page;
	}
}

/* What swapping in works with. */
struct source {
	int pagemap, memory;
	uint64_t addr, bytes, page;
};

/* Copies the pages that are there to `to`, or only counts their bytes (NULL); -errno. */
static int64_t copy_present(const struct source *source, uint8_t *to)
{
	const uint64_t page = source->page, pages = source->bytes / page;
	uint64_t entry[ENTRIES], done = 0, run = 0; /* run: pages before done not yet copied */
	int64_t present = 0;

	while (done < pages) {
		const size_t want =
			VB_MIN((size_t)ENTRIES, (size_t)(pages - done)) * sizeof(*entry);
		const off_t at = (off_t)((source->addr / page + done) * sizeof(*entry));
		const ssize_t got = pread(source->pagemap, entry, want, at);

		if (got < (ssize_t)sizeof(*entry))
			return got < 0 ? -errno : -EIO;
		for (size_t i = 0; i < (size_t)got / sizeof(*entry); i++, done++) {
			const bool there = entry[i] & (PAGE_IN_MEMORY | PAGE_IN_SWAP);

			if (!there && run && to)
				copy_run(source->memory, source->addr + (done - run) * page,
					 to + (done - run) * page, run * page, page);
			run = there ? run + 1 : 0;
			present += there ? (int64_t)page : 0;
		}
	}
	if (run && to)
		copy_run(source->memory, source->addr + (done - run) * page,
			 to + (done - run) * page, run * page, page);
	return present;
}

/* 0; -E2BIG: too much of it is there to be copied. */
static int open_source(struct source *source, uint64_t addr, uint64_t bytes)
{
	int64_t present;
	int rc = 0;

	*source = (struct source){
		.pagemap = open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC),
		.memory = open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC),
		.addr = addr,
		.bytes = bytes,
		.page = (uint64_t)sysconf(_SC_PAGESIZE),
	};
	if (source->pagemap < 0 || source->memory < 0)
		rc = -EACCES;
	present = rc ? 0 : copy_present(source, NULL);
	if (present < 0)
		rc = (int)present;
	return present > (int64_t)VB_SHARE_COPY_MAX ? -E2BIG : rc;
}

static void close_source(const struct source *source)
{
	if (source->pagemap >= 0)
		close(source->pagemap);
	if (source->memory >= 0)
		close(source->memory);
}

static int copy_and_replace(const struct source *source, uint8_t *to, int arena, uint64_t at)
{
	int64_t present = copy_present(source, to);

	if (present < 0)
		return (int)present;
	return mmap((void *)(uintptr_t)source->addr, source->bytes, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_NORESERVE | MAP_FIXED, arena, (off_t)at) == MAP_FAILED
		       ? -errno
		       : 0;
}

int vb_share_swap_in(int arena, uint64_t addr, uint64_t bytes, uint64_t at)
{
	struct source source;
	struct guard guard;
	void *to = MAP_FAILED;
	int rc = open_source(&source, addr, bytes);

	if (rc == 0) {
		to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena,
			  (off_t)at);
		rc = to == MAP_FAILED ? -errno : 0;
	}
	if (rc == 0)
		rc = raise_guard(&guard, addr, bytes, true);
	if (rc == 0) {
		rc = copy_and_replace(&source, to, arena, at);
		if (rc)
			give_up(&guard);
		else
			lower(&guard);
	}
	if (to != MAP_FAILED)
		munmap(to, bytes);
	close_source(&source);
	return rc;
}

/* --- shared to private ------------------------------------------------------------------- */

/* Copies those of the piece's pages that the arena has. from is where they can be read. */
static void copy_data(int arena, const struct vb_share_piece *piece, const uint8_t *from,
		      uint8_t *to)
{
	const uint64_t end = piece->at + piece->bytes;
	uint64_t at = piece->at;

	while (at < end) {
		off_t data = lseek(arena, (off_t)at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			return; /* a hole to the end */
		if (data < 0)
			data = (off_t)at; /* the descriptor is gone: all of it */
		hole = lseek(arena, data, SEEK_HOLE);
		if (hole < 0 || (uint64_t)hole > end)
			hole = (off_t)end;
		if ((uint64_t)data >= end)
			return;
		memcpy(to + ((uint64_t)data - piece->at), from + ((uint64_t)data - piece->at),
		       (size_t)(hole - data));
		at = (uint64_t)hole;
	}
}

static void *private_memory(uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* A second mapping to read from: the program may have taken its own one's right. Without the
 * descriptor (-1) that one must do. */
static const void *readable(int arena, const struct vb_share_piece *piece)
{
	void *from;

	if (arena < 0)
		return piece->prot & PROT_READ ? (const void *)(uintptr_t)piece->addr : NULL;
	from = mmap(NULL, piece->bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, arena,
		    (off_t)piece->at);

	return from == MAP_FAILED ? NULL : from;
}

static void end_reading(int arena, const struct vb_share_piece *piece, const void *from)
{
	if (from && arena >= 0)
		munmap((void *)(uintptr_t)from, piece->bytes);
}

void *vb_share_copy_out(int arena, const struct vb_share_piece *piece)
{
	const void *from = readable(arena, piece);
	void *to = from ? private_memory(piece->bytes) : NULL;

	if (to)
		copy_data(arena, piece, from, to);
	end_reading(arena, piece, from);
	return to;
}

int vb_share_swap_out(int arena, const struct vb_share_piece *piece)
{
	const void *from = readable(arena, piece);
	void *to = from ? private_memory(piece->bytes) : NULL;
	struct guard guard;
	int rc = -ENOMEM;

	if (!to)
		goto out;
	rc = raise_guard(&guard, piece->addr, piece->bytes, false);
	if (rc)
		goto out;
	copy_data(arena, piece, from, to);
	if (piece->prot != (PROT_READ | PROT_WRITE))
		(void)mprotect(to, piece->bytes, piece->prot);
	if (mremap(to, piece->bytes, piece->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
		   (void *)(uintptr_t)piece->addr) == MAP_FAILED) {
		rc = -errno;
		give_up(&guard);
	} else {
		to = NULL;
		lower(&guard);
	}
out:
	if (to)
		munmap(to, piece->bytes);
	end_reading(arena, piece, from);
	return rc;
}
