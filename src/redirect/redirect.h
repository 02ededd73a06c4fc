/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * redirect.h - a program's looks at some paths go to others.
 *
 * The functions of libc that take a path are hooked in the modules of this process (slots.h). A
 * hook asks where a path leads; mostly the answer is "where it says", and libc does the rest. The
 * hooks: open, fopen, stat, access, opendir, scandir, readlink, realpath, glob and their kin
 * (hooks.c).
 *
 * Not seen: relative paths (but for those from a descriptor of "/", as hwloc has them), system
 * calls that a program makes itself (Go), other programs that it starts, descriptors of directories
 * that libc walks (nftw). `verbena run --namespace` is for those.
 */
#ifndef VB_REDIRECT_REDIRECT_H
#define VB_REDIRECT_REDIRECT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* What the owner of the paths answers, from any thread; errno may change. He is asked about
 * absolute paths below /sys/ or /dev/. */
struct vb_redirect_ops {
	/* marks - one of these is in every path that leads elsewhere; NULL at the end. */
	const char *const *marks;
	/* where - the path to take in its place, in buffer or static. NULL: this one. */
	const char *(*where)(const char *path, char buffer[PATH_MAX]);
	/* back - turns a path that libc made from where()'s answer into what the program should
	 * see; it gets shorter or stays. */
	void (*back)(char *path);
	/* value - a descriptor with what the file says at this moment, to be closed by the program,
	 * or -1: take the file. */
	int (*value)(const char *path, bool cloexec);
};

/* vb_redirect_start - once, from then on; ops stay valid. */
void vb_redirect_start(const struct vb_redirect_ops *ops);
/* vb_redirect_update - modules may have come since: cheap when none did; afresh: believe nothing.
 * Does nothing before vb_redirect_start. */
void vb_redirect_update(bool afresh);

#endif
