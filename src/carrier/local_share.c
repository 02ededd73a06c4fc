/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_share.c - peers' arenas: memfds with the shared pages of their regions, mapped here.
 *
 *      the peer's area says: descriptor, device, inode, size        local_tables.c writes it
 *      /proc/<pid>/fd/<descriptor> is opened                        of our user, or the kernel
 * refuses its file is the one that was said, and cannot be made shorter the slot's lock is still
 * that process's                      so it was its descriptor map
 *
 * It is mapped once, and again when it has grown. What is mapped lives on when its owner dies, or
 * is another program by exec: nobody's pages, until the peer is dropped. Which of the arena's bytes
 * an access may touch is said by the peer's tables at each access (local_direct.c).
 */
#define _GNU_SOURCE
#include "carrier/local_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A process that locks all its memory (mlockall(2)) would bring all of the arena in: what is mapped
 * without rights at first is not brought in, and then not locked any more. */
static uint8_t *map_unlocked(int fd, uint64_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (map == MAP_FAILED)
		return NULL;
	if (munlock(map, bytes) == 0 && mprotect(map, bytes, PROT_READ | PROT_WRITE) == 0)
		return map;
	munmap(map, bytes);
	return NULL;
}

static bool is_arena(int fd, const struct vb_local_area *area, uint64_t bytes)
{
	const int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return seals >= 0 && seals & F_SEAL_SHRINK && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size >= bytes &&
	       st.st_dev == __atomic_load_n(&area->arena_device, __ATOMIC_RELAXED) &&
	       st.st_ino == __atomic_load_n(&area->arena_inode, __ATOMIC_RELAXED);
}

static uint8_t *open_arena(struct vb_local *local, const struct vb_local_peer *peer, uint64_t bytes)
{
	const pid_t thread = vb_local_area_thread(peer->area);
	uint8_t *map = NULL;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)(thread ? thread : peer->pid),
		 (int)__atomic_load_n(&peer->area->arena_fd, __ATOMIC_RELAXED));
	/* O_NONBLOCK: whatever else it is must not hold us up */
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	if (is_arena(fd, peer->area, bytes) &&
	    vb_registry_pid(local->registry, peer->slot) == peer->pid)
		map = map_unlocked(fd, bytes);
	close(fd);
	return map;
}

uint8_t *vb_local_shared(struct vb_local *local, struct vb_local_peer *peer, uint64_t at,
			 uint64_t bytes)
{
	uint64_t there;

	if (at > peer->arena_bytes || bytes > peer->arena_bytes - at) {
		there = __atomic_load_n(&peer->area->arena_bytes, __ATOMIC_ACQUIRE);
		if (at > there || bytes > there - at || there > SIZE_MAX / 2)
			return NULL;
		vb_local_shared_drop(peer);
		peer->arena = open_arena(local, peer, there);
		peer->arena_bytes = there; /* also when it failed: once is enough */
	}
	return peer->arena ? peer->arena + at : NULL;
}

void vb_local_shared_drop(struct vb_local_peer *peer)
{
	if (peer->arena)
		munmap(peer->arena, peer->arena_bytes);
	peer->arena = NULL;
	peer->arena_bytes = 0;
}
