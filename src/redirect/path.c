/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * path.c - the path that a program gives: whether it can be read, whether it may lead to what is
 * the owner's, and where it leads. Called by hooks, so without a lock or memory, and errno stays.
 */
#define _GNU_SOURCE
#include "redirect/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "redirect/walk.h"

#define PROBE_ALIGN 8u /* bytes that the kernel looks at */
#define PROBE_PAGE 4096u

const struct vb_redirect_ops *vb_redirect_owner;

/* Whether the kernel can read there, asked of a system call that reads a set of signals and then
 * refuses to do anything with it. The word that holds the address lies in one page. */
static bool is_readable(const char *at)
{
	int error = errno;
	bool readable;

	if ((uintptr_t)at < PROBE_ALIGN) /* which the system call takes for no set at all */
		return false;
	readable = syscall(SYS_rt_sigprocmask, -1L, (uintptr_t)at & ~(uintptr_t)(PROBE_ALIGN - 1),
			   NULL, (long)PROBE_ALIGN) == 0 ||
		   errno != EFAULT;
	errno = error;
	return readable;
}

/* Whether all of the string can be read, and is no longer than a path may be: else the kernel has
 * something to say to it. The program's own threads may take the memory away meanwhile; that is as
 * wrong as it is without us. */
static bool is_string(const char *path)
{
	size_t length = 0, part, room;

	do {
		if (!is_readable(path + length))
			return false;
		room = PROBE_PAGE - ((uintptr_t)path + length) % PROBE_PAGE;
		part = strnlen(path + length, room);
		length += part;
	} while (part == room && length < PATH_MAX);
	return length < PATH_MAX;
}

static bool has_mark(const char *path)
{
	for (const char *const *mark = vb_redirect_owner->marks; *mark; mark++)
		if (strstr(path, *mark))
			return true;
	return false;
}

bool vb_path_is_descriptor_ours(int directory)
{
	dev_t device = vb_redirect_owner->device();
	struct stat status;
	int error = errno;
	bool ours = device && fstat(directory, &status) == 0 && status.st_dev == device;

	errno = error;
	return ours;
}

/* Whether it is worth asking where the path leads, which takes more of the stack than a signal
 * handler may have. */
static bool is_telling(int directory, const char *path)
{
	if (!path || path[0] == '\0')
		return false;
	if (path[0] != '/')
		return has_mark(path) ||
		       (directory != AT_FDCWD && vb_path_is_descriptor_ours(directory));
	if (strncmp(path + 1, "sys/", 4) != 0 && strncmp(path + 1, "dev/", 4) != 0 &&
	    path[1] != '/' && path[1] != '.' && !strstr(path, "/../"))
		return false;
	return has_mark(path);
}

bool vb_path_is_candidate(int directory, const char *path)
{
	return is_string(path) && is_telling(directory, path);
}

/* An answer that the system gave after it had looked for the path says that all of it can be read.
 */
bool vb_path_is_candidate_still(bool failed, int directory, const char *path)
{
	if (failed && errno != ENOENT && errno != ENOTDIR && errno != EACCES)
		return vb_path_is_candidate(directory, path);
	return is_telling(directory, path);
}

bool vb_path_make_whole(int directory, const char *path, char out[PATH_MAX])
{
	char self[48];
	ssize_t length;

	if (path[0] == '/') {
		strcpy(out, path);
		return true;
	}
	if (directory == AT_FDCWD)
		strcpy(self, "/proc/thread-self/cwd");
	else
		snprintf(self, sizeof(self), "/proc/thread-self/fd/%d", directory);
	length = readlink(self, out, PATH_MAX - 1);
	if (length <= 0 || out[0] != '/')
		return false;
	out[length] = '\0';
	vb_redirect_owner->back(out);
	length = (ssize_t)strlen(out);
	return snprintf(out + length, (size_t)(PATH_MAX - length), "/%s", path) < PATH_MAX - length;
}

struct vb_way vb_path_find_way(int directory, const char *path, char buffer[PATH_MAX])
{
	char whole[PATH_MAX], simple[PATH_MAX];
	struct vb_way way = {path, false};
	int error = errno;
	const char *to;
	bool met;

	if (vb_path_make_whole(directory, path, whole) &&
	    vb_walk(vb_redirect_owner, whole, simple, &met)) {
		to = vb_redirect_owner->where(simple, buffer);
		if (to)
			way = (struct vb_way){to, true};
		else if (met)
			way.to = strcpy(buffer, simple);
	}
	errno = error;
	return way;
}
