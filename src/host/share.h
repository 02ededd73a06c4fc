/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * share.h - VERBENA_SHARE=1: the whole pages of registered regions become pages of one memfd, the
 * process's arena, which peers of the same host map, so that they write, read and do atomics
 * without the kernel.
 *
 *      region      |..|=========|=========|=========|...|      its first and last bytes are
 *                     | whole pages: one extent     |          reached as ever
 *                     v
 *      arena   | extent, room to grow | extent, room | ...      sparse
 *
 * An extent is held by every region that lies in it; a region that begins or ends within another's
 * pages without lying in them is not shared. When the last lets go, the pages are private again,
 * with their contents. Nothing else about the memory changes for the program, with the exceptions
 * that docs/decisions.md names.
 *
 *   share.c        the arena, its extents, fork
 *   share_maps.c   what /proc says about the memory: which may be shared, where the arena is mapped
 *   share_swap.c   one set of pages in the place of another, under the eyes of writing threads
 */
#ifndef VB_HOST_SHARE_H
#define VB_HOST_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

#define VB_SHARE_EXTENTS 1000u
#define VB_SHARE_COPY_MAX (4u << 20) /* bytes that are there, and so are copied at registration */
#define VB_SHARE_ROOM (16u << 20)    /* behind an extent, at least: see mremap in share.c */
#define VB_SHARE_ARENA_MAX (64ull << 30)

/* The arena, for whoever is to map it. */
struct vb_share_arena {
	int fd; /* -1: there is none */
	uint64_t device, inode, bytes;
};

/* A run of the arena's pages, in the place of the program's. */
struct vb_share_extent {
	uint64_t addr, bytes, at; /* at: its place in the arena */
	uint64_t room;		  /* bytes behind it that belong to it too */
	uint32_t holders;	  /* 0: free, unless it is worn */
	bool worn;		  /* somebody may still write there: its place is not used again */
};

/* vb_share_hold - shares the whole pages of addr[0..length), or finds them shared; NULL: that is
 * not to be, and the memory is as it was. Outside of any engine's lock. */
struct vb_share_extent *vb_share_hold(void *addr, uint64_t length);
/* vb_share_is_last - whether letting go makes the pages private. */
bool vb_share_is_last(struct vb_share_extent *extent);
/* vb_share_let_go - as above. worn: a peer may still be writing to the arena's pages, and to them
 * only. NULL is accepted. */
void vb_share_let_go(struct vb_share_extent *extent, bool worn);
/* vb_share_find - where the whole pages of addr[0..length) are in the arena, and what that is.
 * False: they are not. */
bool vb_share_find(const void *addr, uint64_t length, uint64_t *at, struct vb_share_arena *arena);

/* The child of a fork gets private copies, as of the moment of the fork. */
void vb_share_before_fork(void);
void vb_share_after_fork_in_parent(void);
void vb_share_after_fork_in_child(void);

/* --- share_maps.c ------------------------------------------------------------------------ */
/* vb_share_is_fit - whether all of [start, end) is ordinary private memory. */
bool vb_share_is_fit(uint64_t start, uint64_t end);
/* vb_share_is_pinned - the kernel holds pages of this process for others (VmPin, VmLck). */
bool vb_share_is_pinned(void);

/* A mapping of the arena. */
struct vb_share_piece {
	uint64_t addr, bytes, at;
	int prot;
	void *copy; /* fork's */
};
/* vb_share_pieces - the arena's mappings that touch [at, at + bytes) of it, cut to that, wherever
 * the program has moved them. Returns how many there are; at most max are told. -errno. */
int vb_share_pieces(const struct vb_share_arena *arena, uint64_t at, uint64_t bytes,
		    struct vb_share_piece *pieces, int max);

/* --- share_swap.c ------------------------------------------------------------------------ */
/* vb_share_can_swap - whether threads that write meanwhile can be held. */
bool vb_share_can_swap(void);
/* vb_share_swap_in - the arena's pages at `at` in the place of private ones, with their contents.
 * 0; -E2BIG: too much to copy; -errno: nothing has changed. */
int vb_share_swap_in(int arena, uint64_t addr, uint64_t bytes, uint64_t at);
/* vb_share_swap_out - private pages in the place of a piece. The same. arena -1: its descriptor is
 * gone. */
int vb_share_swap_out(int arena, const struct vb_share_piece *piece);
/* vb_share_copy_out - private memory with what the piece holds, and arena as above; NULL. */
void *vb_share_copy_out(int arena, const struct vb_share_piece *piece);

#endif
