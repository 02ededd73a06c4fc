/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * share.c - see share.h: the arena and its extents.
 *
 * The program does with its memory what it likes, shared or not: it may unmap it, move it
 * (mremap(2)) or make it grow. So what is mapped where is asked of the kernel whenever pages are to
 * be private again, for a fork's child or for good; and behind each extent the arena has room for
 * as much again, so that growing memory gets pages of its own. An extent whose pages cannot be made
 * private stays what it is, and its place is not used again. So it is with one to which a peer may
 * still be writing: one that was stopped in the middle (local_hazard.c).
 *
 * A descriptor of the arena that the program closed (closefrom(3)) ends sharing more, and nothing
 * else: each use asks whether it is still the arena.
 *
 * Locks: an engine's may be held when this one is taken, not the other way round.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/share.h"

#define FIRST_BYTES (64ull << 20)
#define PIECES_AT_ONCE 64 /* of an extent that the program cut to pieces */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_share_arena arena = {.fd = -1};
static struct vb_share_extent extents[VB_SHARE_EXTENTS];
static bool refused; /* there is no sharing here, which was said */

/* A thread that the program cancels must not end in between: what follows are system calls. */
static int enter(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&lock);
	return state;
}

static void leave(int state)
{
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(state, NULL);
}

static bool is_taken(const struct vb_share_extent *e)
{
	return e->holders || e->worn;
}

/* --- the arena --------------------------------------------------------------------------- */

static bool arena_is_there(void)
{
	struct stat st;

	return arena.fd >= 0 && fstat(arena.fd, &st) == 0 && st.st_ino == arena.inode &&
	       st.st_dev == arena.device;
}

static int arena_fd(void)
{
	return arena_is_there() ? arena.fd : -1;
}

static void refuse(const char *why)
{
	refused = true;
	fprintf(stderr,
		"verbena: VERBENA_SHARE=1 has no effect in this process: %s. Data between "
		"processes is copied instead.\n",
		why);
}

static int open_arena(void)
{
	struct stat st;
	int fd;

	if (!vb_share_can_swap()) {
		refuse("the system does not let it use userfaultfd(2) for write protection of "
		       "shared memory, which takes Linux 5.19");
		return -ENOSYS;
	}
	fd = memfd_create("verbena-share", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* Peers of the same user have it open for writing: they may not make it shorter under us.
	 */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) < 0 || fstat(fd, &st) < 0) {
		close(fd);
		return -EINVAL;
	}
	arena = (struct vb_share_arena){fd, st.st_dev, st.st_ino, 0};
	return 0;
}

static bool arena_grow(uint64_t bytes)
{
	uint64_t want = VB_MAX(arena.bytes, FIRST_BYTES);
	struct rlimit limit;

	if (bytes <= arena.bytes)
		return true;
	while (want < bytes)
		want *= 2;
	if (want > VB_SHARE_ARENA_MAX)
		return false;
	/* Beyond the limit there is a signal, too. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < want)
		return false;
	if (ftruncate(arena.fd, (off_t)want) < 0)
		return false;
	arena.bytes = want;
	return true;
}

/* --- extents ----------------------------------------------------------------------------- */

/* The whole pages of a range; false: there is none. */
static bool whole_pages(const void *addr, uint64_t length, uint64_t *start, uint64_t *bytes)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)addr;
	uint64_t end;

	if (__builtin_add_overflow(from, length, &end) || from > UINT64_MAX - page)
		return false;
	*start = (from + page - 1) & ~(page - 1);
	end &= ~(page - 1);
	if (end <= *start)
		return false;
	*bytes = end - *start;
	return true;
}

/* The extent around the range; *touches: some extent has a part of it. */
static struct vb_share_extent *find(uint64_t start, uint64_t bytes, bool *touches)
{
	struct vb_share_extent *e;

	*touches = false;
	for (e = extents; e < extents + VB_SHARE_EXTENTS; e++) {
		if (!e->holders || e->addr >= start + bytes || start >= e->addr + e->bytes)
			continue;
		*touches = true;
		if (e->addr <= start && start + bytes <= e->addr + e->bytes)
			return e;
	}
	return NULL;
}

/* The first place in the arena, at or behind `at`, that nothing taken has a part of. */
static uint64_t place_behind(uint64_t at, uint64_t bytes)
{
	const struct vb_share_extent *e = extents;

	while (e < extents + VB_SHARE_EXTENTS) {
		if (is_taken(e) && e->at < at + bytes && at < e->at + e->bytes + e->room) {
			at = e->at + e->bytes + e->room;
			e = extents;
		} else {
			e++;
		}
	}
	return at;
}

static struct vb_share_extent *free_extent(void)
{
	struct vb_share_extent *e = extents;

	while (e < extents + VB_SHARE_EXTENTS && is_taken(e))
		e++;
	return e < extents + VB_SHARE_EXTENTS ? e : NULL;
}

/* What a failed or finished extent held is given back to the system. */
static void punch(uint64_t at, uint64_t bytes)
{
	if (arena_is_there())
		(void)fallocate(arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
				(off_t)bytes);
}

static struct vb_share_extent *add(uint64_t start, uint64_t bytes)
{
	const uint64_t room = VB_MAX(bytes, (uint64_t)VB_SHARE_ROOM);
	struct vb_share_extent *e = free_extent();
	uint64_t at;

	if (!e || refused || bytes > VB_SHARE_ARENA_MAX / 4)
		return NULL;
	if (arena.fd < 0 ? open_arena() != 0 : !arena_is_there())
		return NULL;
	if (!vb_share_is_fit(start, start + bytes) || vb_share_is_pinned())
		return NULL;
	at = place_behind(0, bytes + room);
	if (!arena_grow(at + bytes + room))
		return NULL;
	if (vb_share_swap_in(arena.fd, start, bytes, at)) {
		punch(at, bytes);
		return NULL;
	}
	*e = (struct vb_share_extent){start, bytes, at, room, 1, false};
	return e;
}

struct vb_share_extent *vb_share_hold(void *addr, uint64_t length)
{
	struct vb_share_extent *e;
	uint64_t start, bytes;
	bool touches;
	int state;

	if (!whole_pages(addr, length, &start, &bytes))
		return NULL;
	state = enter();
	e = find(start, bytes, &touches);
	if (e)
		e->holders++;
	else if (!touches)
		e = add(start, bytes);
	leave(state);
	return e;
}

bool vb_share_is_last(struct vb_share_extent *e)
{
	bool last;
	int state;

	state = enter();
	last = e->holders == 1;
	leave(state);
	return last;
}

/* Wherever the program has it. False: some of it stays the arena's. */
static bool make_private(const struct vb_share_extent *e)
{
	struct vb_share_piece pieces[PIECES_AT_ONCE];
	int count, before = INT32_MAX;

	for (;;) {
		count = vb_share_pieces(&arena, e->at, e->bytes + e->room, pieces, PIECES_AT_ONCE);
		if (count <= 0 || count >= before)
			return count == 0;
		for (int i = 0; i < VB_MIN(count, PIECES_AT_ONCE); i++)
			(void)vb_share_swap_out(arena_fd(), &pieces[i]);
		before = count;
	}
}

void vb_share_let_go(struct vb_share_extent *e, bool worn)
{
	int state;

	if (!e)
		return;
	state = enter();
	if (--e->holders == 0) {
		if (make_private(e))
			punch(e->at, e->bytes + e->room);
		else
			worn = true;
		e->worn |= worn;
	}
	leave(state);
}

bool vb_share_find(const void *addr, uint64_t length, uint64_t *at, struct vb_share_arena *out)
{
	struct vb_share_extent *e;
	uint64_t start, bytes;
	bool touches;
	int state;

	if (!whole_pages(addr, length, &start, &bytes))
		return false;
	state = enter();
	e = find(start, bytes, &touches);
	if (e) {
		*at = e->at + (start - e->addr);
		*out = arena;
	}
	leave(state);
	return e != NULL;
}

/* --- fork -------------------------------------------------------------------------------- */

/*
 * The copies are made before the fork, so that the child has what was there at that moment and the
 * parent may go on at once. What cannot be copied, for want of memory, the child does not have:
 * whoever touches it there ends, instead of writing into its parent's memory.
 */
static struct {
	struct vb_share_piece *pieces;
	size_t bytes; /* of the list */
	int count;
} snapshot;

static int list_pieces(void)
{
	int max = 2 * (int)VB_SHARE_EXTENTS, count;

	for (;; max = count + count / 2) {
		snapshot.bytes = (size_t)max * sizeof(*snapshot.pieces);
		snapshot.pieces = mmap(NULL, snapshot.bytes, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (snapshot.pieces == MAP_FAILED) {
			snapshot.pieces = NULL;
			return 0;
		}
		count = vb_share_pieces(&arena, 0, UINT64_MAX, snapshot.pieces, max);
		if (count <= max)
			return VB_MAX(count, 0);
		munmap(snapshot.pieces, snapshot.bytes);
	}
}

void vb_share_before_fork(void)
{
	pthread_mutex_lock(&lock);
	snapshot.count = 0;
	snapshot.pieces = NULL;
	if (arena.bytes == 0)
		return;
	snapshot.count = list_pieces();
	for (int i = 0; i < snapshot.count; i++)
		snapshot.pieces[i].copy = vb_share_copy_out(arena_fd(), &snapshot.pieces[i]);
}

static void end_snapshot(void)
{
	if (snapshot.pieces)
		munmap(snapshot.pieces, snapshot.bytes);
	snapshot.pieces = NULL;
	snapshot.count = 0;
}

void vb_share_after_fork_in_parent(void)
{
	for (int i = 0; i < snapshot.count; i++)
		if (snapshot.pieces[i].copy)
			munmap(snapshot.pieces[i].copy, snapshot.pieces[i].bytes);
	end_snapshot();
	pthread_mutex_unlock(&lock);
}

static void give_copy(const struct vb_share_piece *piece)
{
	void *at = (void *)(uintptr_t)piece->addr;

	if (piece->copy && piece->prot != (PROT_READ | PROT_WRITE))
		(void)mprotect(piece->copy, piece->bytes, piece->prot);
	if (!piece->copy || mremap(piece->copy, piece->bytes, piece->bytes,
				   MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
		(void)mmap(at, piece->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			   0);
}

void vb_share_after_fork_in_child(void)
{
	for (int i = 0; i < snapshot.count; i++)
		give_copy(&snapshot.pieces[i]);
	end_snapshot();
	if (arena_is_there())
		close(arena.fd);
	arena = (struct vb_share_arena){.fd = -1};
	memset(extents, 0, sizeof(extents));
	pthread_mutex_unlock(&lock);
}
