/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * redirect.h - a program's looks at some paths go to others.
 *
 * The functions of libc that take a path are hooked in the modules of this process (slots.h). A
 * hook asks where a path leads; mostly the answer is "where it says", and libc does the rest. The
 * hooks: open, creat, fopen, freopen, stat, access, opendir, scandir, readlink, realpath, glob,
 * ftw, nftw, statfs, statvfs, getxattr, listxattr, inotify_add_watch and their kin, also from a
 * descriptor of a directory (hooks.c). ".." and links lead in and out as they do in the kernel
 * (walk.c).
 *
 * By the same way the owner hears before the program ends, or becomes another, without its exit
 * handlers: _exit, _Exit, quick_exit and exec's kin.
 *
 * Not seen: paths in which nothing tells of ours (a link from elsewhere, a relative path without a
 * name of ours behind chdir), lists of the directories above, system calls that a program makes
 * itself (Go), other programs that it starts, fts(3). `verbena run --namespace` is for those.
 */
#ifndef VB_REDIRECT_REDIRECT_H
#define VB_REDIRECT_REDIRECT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What the owner of the paths answers, from any thread; errno may change. He is asked about
 * absolute paths without "//" or "."; with a "/" at the end where it must be a directory, and with
 * ".." behind what is none. */
struct vb_redirect_ops {
	/* marks - one of these is in every path that leads elsewhere; NULL at the end. */
	const char *const *marks;
	/* where - the path to take in its place, in buffer or static. NULL: this one. */
	const char *(*where)(const char *path, char buffer[PATH_MAX]);
	/* back - turns a path that libc made from where()'s answer into what the program should
	 * see; it gets shorter or stays. */
	void (*back)(char *path);
	/* value - a descriptor with what the file of where()'s answer says at this moment, to be
	 * closed by the program, or -1: take the file. */
	int (*value)(const char *to, bool cloexec);
	/* device - on which where()'s answers lie; 0: there were none yet. Costs nothing. */
	dev_t (*device)(void);
	/* ending - the program is about to end. Also in a signal handler, and in the child of a
	 * vfork, whose end it is not. May be NULL. */
	void (*ending)(void);
};

/* vb_redirect_start - once, from then on; ops stay valid. */
void vb_redirect_start(const struct vb_redirect_ops *ops);
/* vb_redirect_update - modules may have come since: cheap when none did; afresh: believe nothing.
 * Does nothing before vb_redirect_start. */
void vb_redirect_update(bool afresh);

#endif
