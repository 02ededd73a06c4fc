/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hooks.c - what modules call in place of libc's functions that take a path.
 *
 * A hook looks at its path and calls libc's function with it, unless the path is one that the owner
 * sends elsewhere. It may be called at any time: by a program's signal handler, before main, while
 * another thread loads a module. So there is no lock and no memory here. A pointer that the kernel
 * would refuse is for the kernel to refuse: mostly the system is asked first, and its answer stands
 * unless the path is one of ours.
 *
 * The paths that lead elsewhere are the kernel's own files, which nobody writes: opening one for
 * writing is refused as the kernel does, also to root.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/macros.h"
#include "redirect/later.h"
#include "redirect/path.h"
#include "redirect/redirect.h"
#include "redirect/slots.h"
#include "redirect/walk.h"

#define NULL_DEVICE "/dev/null"

#define ELSEWHERE __attribute__((noinline)) static

/* --- opening ----------------------------------------------------------------------------- */

static bool is_null_device(const char *path)
{
	return strcmp(path, NULL_DEVICE) == 0;
}

static bool is_exclusive(int flags)
{
	return flags & O_CREAT && flags & O_EXCL;
}

/* Why the kernel does not open one of its files to write, or makes another beside it. */
static int refusal(const char *to, int flags)
{
	struct stat status;

	if (flags & O_CREAT && to[strlen(to) - 1] == '/')
		return EISDIR;
	if ((is_exclusive(flags) ? lstat(to, &status) : stat(to, &status)) != 0)
		return flags & O_CREAT && errno == ENOENT ? EACCES : errno;
	if (is_exclusive(flags))
		return EEXIST;
	return S_ISDIR(status.st_mode) ? EISDIR : EACCES;
}

static int open_elsewhere(const char *to, int flags)
{
	int fd, error = errno;

	if (is_null_device(to))
		return open(to, is_exclusive(flags) ? flags : flags & ~(O_CREAT | O_TRUNC));
	if ((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT) {
		errno = refusal(to, flags);
		return -1;
	}
	fd = flags & (O_PATH | O_DIRECTORY) ? -1 : vb_redirect_owner->value(to, flags & O_CLOEXEC);
	errno = error;
	return fd >= 0 ? fd : open(to, flags);
}

ELSEWHERE int open_at(int directory, const char *path, int flags, mode_t mode)
{
	char buffer[PATH_MAX];
	struct vb_way way = vb_path_find_way(directory, path, buffer);

	return way.ours ? open_elsewhere(way.to, flags) : openat(directory, way.to, flags, mode);
}

/* system: what the system has opened, or -1, and the errno from before. */
ELSEWHERE int open_instead(int system, int before, int directory, const char *path, int flags)
{
	char buffer[PATH_MAX];
	struct vb_way way = vb_path_find_way(directory, path, buffer);

	if (way.to == path)
		return system;
	if (system >= 0)
		close(system);
	errno = before;
	return way.ours ? open_elsewhere(way.to, flags) : open(way.to, flags);
}

/* Opening that changes something is not to be tried first. */
static bool changes(int flags)
{
	return flags & (O_CREAT | O_TRUNC) || (flags & O_TMPFILE) == O_TMPFILE;
}

static mode_t mode_of(int flags, va_list arguments)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

static int hook_open(const char *path, int flags, ...)
{
	int before = errno, fd;
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = mode_of(flags, arguments);
	va_end(arguments);
	if (changes(flags))
		return vb_path_is_candidate(AT_FDCWD, path) ? open_at(AT_FDCWD, path, flags, mode)
							    : open(path, flags, mode);
	fd = open(path, flags);
	return vb_path_is_candidate_still(fd < 0, AT_FDCWD, path)
		       ? open_instead(fd, before, AT_FDCWD, path, flags)
		       : fd;
}

static int hook_openat(int directory, const char *path, int flags, ...)
{
	int before = errno, fd;
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = mode_of(flags, arguments);
	va_end(arguments);
	if (changes(flags))
		return vb_path_is_candidate(directory, path) ? open_at(directory, path, flags, mode)
							     : openat(directory, path, flags, mode);
	fd = openat(directory, path, flags);
	return vb_path_is_candidate_still(fd < 0, directory, path)
		       ? open_instead(fd, before, directory, path, flags)
		       : fd;
}

/* The fortified ones have no mode. */
static int hook_open_2(const char *path, int flags)
{
	return hook_open(path, flags, 0);
}

static int hook_openat_2(int directory, const char *path, int flags)
{
	return hook_openat(directory, path, flags, 0);
}

static int hook_creat(const char *path, mode_t mode)
{
	return hook_open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

static int flags_of(const char *mode)
{
	int flags = strchr(mode, 'e') ? O_CLOEXEC : 0;

	if (mode[0] != 'r')
		return flags | O_WRONLY | O_CREAT | (strchr(mode, 'x') ? O_EXCL : 0);
	return flags | (strchr(mode, '+') ? O_RDWR : O_RDONLY);
}

/* system: the stream that the system has opened, or NULL; asked: whether it was. */
ELSEWHERE FILE *fopen_elsewhere(FILE *system, bool asked, int before, const char *path,
				const char *mode)
{
	char buffer[PATH_MAX];
	struct vb_way way = vb_path_find_way(AT_FDCWD, path, buffer);
	FILE *file;
	int fd;

	if (asked && way.to == path)
		return system;
	if (system)
		fclose(system);
	errno = before;
	if (!way.ours || is_null_device(way.to))
		return fopen(way.to, mode);
	fd = open_elsewhere(way.to, flags_of(mode));
	if (fd < 0)
		return NULL;
	file = fdopen(fd, mode);
	if (!file)
		close(fd);
	return file;
}

static FILE *hook_fopen(const char *path, const char *mode)
{
	int before = errno;
	FILE *file;

	if (mode[0] != 'r')
		return vb_path_is_candidate(AT_FDCWD, path)
			       ? fopen_elsewhere(NULL, false, before, path, mode)
			       : fopen(path, mode);
	file = fopen(path, mode);
	return vb_path_is_candidate_still(!file, AT_FDCWD, path)
		       ? fopen_elsewhere(file, true, before, path, mode)
		       : file;
}

/* The stream stays what it is, so it is given the descriptor's own path. */
ELSEWHERE FILE *freopen_elsewhere(const char *path, const char *mode, FILE *file)
{
	char buffer[PATH_MAX], self[48];
	struct vb_way way = vb_path_find_way(AT_FDCWD, path, buffer);
	FILE *result;
	int fd, error;

	if (!way.ours || is_null_device(way.to))
		return freopen(way.to, mode, file);
	fd = open_elsewhere(way.to, flags_of(mode));
	error = errno;
	snprintf(self, sizeof(self), "/proc/thread-self/fd/%d", fd);
	result = freopen(self, mode, file); /* which closes it where there is nothing to open */
	if (fd >= 0)
		close(fd);
	else
		errno = error;
	return result;
}

static FILE *hook_freopen(const char *path, const char *mode, FILE *file)
{
	return path && vb_path_is_candidate(AT_FDCWD, path) ? freopen_elsewhere(path, mode, file)
							    : freopen(path, mode, file);
}

/* --- looking ----------------------------------------------------------------------------- */

/*
 * The system is asked first, with the program's own path: so an ordinary look costs nothing, and it
 * is the kernel that refuses what is no path. `to` is the path that `call` uses.
 */
#define OPENED(...) __VA_ARGS__
#define HOOK(result, name, parameters, arguments, from, call)                                      \
	ELSEWHERE result name##_elsewhere(result system, int before, OPENED parameters)            \
	{                                                                                          \
		char buffer[PATH_MAX];                                                             \
		const char *to = vb_path_find_way(from, path, buffer).to;                          \
                                                                                                   \
		if (to == path)                                                                    \
			return system;                                                             \
		errno = before;                                                                    \
		return call;                                                                       \
	}                                                                                          \
	static result hook_##name parameters                                                       \
	{                                                                                          \
		int before = errno;                                                                \
		const char *to = path;                                                             \
		result system = call;                                                              \
                                                                                                   \
		return vb_path_is_candidate_still(system < 0, from, path)                          \
			       ? name##_elsewhere(system, before, OPENED arguments)                \
			       : system;                                                           \
	}
#define HOOK_PATH(result, name, parameters, arguments, call)                                       \
	HOOK(result, name, parameters, arguments, AT_FDCWD, call)
#define HOOK_AT(result, name, parameters, arguments, call)                                         \
	HOOK(result, name, parameters, arguments, directory, call)

/* Where libc does more than ask the kernel, the path is looked at first. */
#define HOOK_LONG(result, name, parameters, arguments, from, call)                                 \
	ELSEWHERE result name##_elsewhere parameters                                               \
	{                                                                                          \
		char buffer[PATH_MAX];                                                             \
		const char *to = vb_path_find_way(from, path, buffer).to;                          \
                                                                                                   \
		return call;                                                                       \
	}                                                                                          \
	static result hook_##name parameters                                                       \
	{                                                                                          \
		const char *to = path;                                                             \
                                                                                                   \
		return vb_path_is_candidate(from, path) ? name##_elsewhere arguments : call;       \
	}

extern ssize_t __readlink_chk(const char *, char *, size_t, size_t);
extern ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);
extern char *__realpath_chk(const char *, char *, size_t);

typedef int filter_fn(const struct dirent *);
typedef int compare_fn(const struct dirent **, const struct dirent **);

HOOK_PATH(int, stat, (const char *path, struct stat *out), (path, out), stat(to, out))
HOOK_PATH(int, lstat, (const char *path, struct stat *out), (path, out), lstat(to, out))
HOOK_AT(int, fstatat, (int directory, const char *path, struct stat *out, int flags),
	(directory, path, out, flags), fstatat(directory, to, out, flags))
HOOK_AT(int, statx,
	(int directory, const char *path, int flags, unsigned int mask, struct statx *out),
	(directory, path, flags, mask, out), statx(directory, to, flags, mask, out))
/* of programs built before glibc 2.33; the struct is the same in all versions for 64 bits */
HOOK_PATH(int, xstat, (int version, const char *path, struct stat *out), (version, path, out),
	  stat(to, out))
HOOK_PATH(int, lxstat, (int version, const char *path, struct stat *out), (version, path, out),
	  lstat(to, out))
HOOK_AT(int, fxstatat, (int version, int directory, const char *path, struct stat *out, int flags),
	(version, directory, path, out, flags), fstatat(directory, to, out, flags))
HOOK_PATH(int, access, (const char *path, int mode), (path, mode), access(to, mode))
HOOK_PATH(int, euidaccess, (const char *path, int mode), (path, mode), euidaccess(to, mode))
HOOK_AT(int, faccessat, (int directory, const char *path, int mode, int flags),
	(directory, path, mode, flags), faccessat(directory, to, mode, flags))
HOOK_LONG(DIR *, opendir, (const char *path), (path), AT_FDCWD, opendir(to))
HOOK_LONG(int, scandir,
	  (const char *path, struct dirent ***out, filter_fn *filter, compare_fn *compare),
	  (path, out, filter, compare), AT_FDCWD, scandir(to, out, filter, compare))
HOOK_LONG(int, scandirat,
	  (int directory, const char *path, struct dirent ***out, filter_fn *filter,
	   compare_fn *compare),
	  (directory, path, out, filter, compare), directory,
	  scandirat(directory, to, out, filter, compare))
HOOK_PATH(ssize_t, readlink, (const char *path, char *out, size_t size), (path, out, size),
	  readlink(to, out, size))
HOOK_AT(ssize_t, readlinkat, (int directory, const char *path, char *out, size_t size),
	(directory, path, out, size), readlinkat(directory, to, out, size))
HOOK_PATH(ssize_t, readlink_chk, (const char *path, char *out, size_t size, size_t room),
	  (path, out, size, room), __readlink_chk(to, out, size, room))
HOOK_AT(ssize_t, readlinkat_chk,
	(int directory, const char *path, char *out, size_t size, size_t room),
	(directory, path, out, size, room), __readlinkat_chk(directory, to, out, size, room))

HOOK_PATH(ssize_t, getxattr, (const char *path, const char *name, void *out, size_t size),
	  (path, name, out, size), getxattr(to, name, out, size))
HOOK_PATH(ssize_t, lgetxattr, (const char *path, const char *name, void *out, size_t size),
	  (path, name, out, size), lgetxattr(to, name, out, size))
HOOK_PATH(ssize_t, listxattr, (const char *path, char *out, size_t size), (path, out, size),
	  listxattr(to, out, size))
HOOK_PATH(ssize_t, llistxattr, (const char *path, char *out, size_t size), (path, out, size),
	  llistxattr(to, out, size))
HOOK_PATH(int, inotify_add_watch, (int watcher, const char *path, uint32_t mask),
	  (watcher, path, mask), inotify_add_watch(watcher, to, mask))

/* What is ours says that it is of the file system in which it is seen: programs ask whether that is
 * sysfs. In the end `path` is that one's directory. */
static void cut_to_mount(char path[PATH_MAX])
{
	vb_redirect_owner->back(path);
	path[1 + strcspn(path + 1, "/")] = '\0';
}

#define HOOK_FILE_SYSTEM(name)                                                                     \
	ELSEWHERE int name##_elsewhere(int system, int before, const char *path, struct name *out) \
	{                                                                                          \
		char buffer[PATH_MAX], mount[PATH_MAX];                                            \
		struct vb_way way = vb_path_find_way(AT_FDCWD, path, buffer);                      \
                                                                                                   \
		if (way.to == path)                                                                \
			return system;                                                             \
		errno = before;                                                                    \
		if (!way.ours || name(way.to, out) != 0)                                           \
			return way.ours ? -1 : name(way.to, out);                                  \
		cut_to_mount(strcpy(mount, way.to));                                               \
		return name(mount, out);                                                           \
	}                                                                                          \
	static int hook_##name(const char *path, struct name *out)                                 \
	{                                                                                          \
		int before = errno, system = name(path, out);                                      \
                                                                                                   \
		return vb_path_is_candidate_still(system < 0, AT_FDCWD, path)                      \
			       ? name##_elsewhere(system, before, path, out)                       \
			       : system;                                                           \
	}                                                                                          \
	ELSEWHERE int f##name##_elsewhere(int descriptor, struct name *out)                        \
	{                                                                                          \
		char self[48], mount[PATH_MAX];                                                    \
		ssize_t length;                                                                    \
                                                                                                   \
		snprintf(self, sizeof(self), "/proc/thread-self/fd/%d", descriptor);                      \
		length = readlink(self, mount, PATH_MAX - 1);                                      \
		if (length <= 0)                                                                   \
			return f##name(descriptor, out);                                           \
		mount[length] = '\0';                                                              \
		cut_to_mount(mount);                                                               \
		return name(mount, out);                                                           \
	}                                                                                          \
	static int hook_f##name(int descriptor, struct name *out)                                  \
	{                                                                                          \
		return vb_path_is_descriptor_ours(descriptor)                                      \
			       ? f##name##_elsewhere(descriptor, out)                              \
			       : f##name(descriptor, out);                                         \
	}

HOOK_FILE_SYSTEM(statfs)
HOOK_FILE_SYSTEM(statvfs)

/* A character device is itself, and not what stands in for it: the directory's real path, and its
 * name. */
static char *realpath_of_device(const char *path, char *out)
{
	char whole[PATH_MAX], simple[PATH_MAX], buffer[PATH_MAX];
	char *name, *above = NULL;
	const char *to;
	bool met;

	if (vb_path_make_whole(AT_FDCWD, path, whole) &&
	    vb_walk(vb_redirect_owner, whole, simple, &met)) {
		name = strrchr(simple, '/');
		*name++ = '\0';
		to = vb_redirect_owner->where(simple, buffer);
		above = realpath(to ? to : simple, buffer == to ? whole : buffer);
		if (above)
			vb_redirect_owner->back(above);
	}
	if (!above)
		return NULL;
	if (!out)
		out = malloc(PATH_MAX);
	if (out && snprintf(out, PATH_MAX, "%s/%s", above, name) >= PATH_MAX)
		errno = ENAMETOOLONG;
	return out;
}

ELSEWHERE char *realpath_elsewhere(const char *path, char *out)
{
	char buffer[PATH_MAX];
	struct vb_way way = vb_path_find_way(AT_FDCWD, path, buffer);
	char *result;

	if (way.ours && is_null_device(way.to))
		return realpath_of_device(path, out);
	result = realpath(way.to, out);
	if (result && way.ours)
		vb_redirect_owner->back(result);
	return result;
}

static char *hook_realpath(const char *path, char *out)
{
	return vb_path_is_candidate(AT_FDCWD, path) ? realpath_elsewhere(path, out)
						    : realpath(path, out);
}

static char *hook_realpath_chk(const char *path, char *out, size_t room)
{
	return room < PATH_MAX || !vb_path_is_candidate(AT_FDCWD, path)
		       ? __realpath_chk(path, out, room)
		       : hook_realpath(path, out);
}

static char *hook_canonicalize_file_name(const char *path)
{
	return hook_realpath(path, NULL);
}

typedef int glob_error_fn(const char *, int);

/* What was found, in the words of the pattern: relative where that is. */
static void rename_found(const char *pattern, char *found)
{
	char whole[PATH_MAX];
	size_t above;

	vb_redirect_owner->back(found);
	if (pattern[0] == '/' || !vb_path_make_whole(AT_FDCWD, pattern, whole))
		return;
	above = strlen(whole) - strlen(pattern);
	if (strncmp(found, whole, above) == 0)
		memmove(found, found + above, strlen(found + above) + 1);
}

ELSEWHERE int glob_elsewhere(const char *pattern, int flags, glob_error_fn *error, glob_t *out)
{
	char buffer[PATH_MAX];
	struct vb_way way = vb_path_find_way(AT_FDCWD, pattern, buffer);
	size_t first = flags & GLOB_APPEND ? out->gl_pathc : 0;
	int rc;

	if (!way.ours || is_null_device(way.to) || flags & GLOB_ALTDIRFUNC)
		return glob(pattern, flags, error, out);
	rc = glob(way.to, flags, error, out);
	for (size_t i = first; rc == 0 && i < out->gl_pathc; i++)
		rename_found(pattern, out->gl_pathv[(flags & GLOB_DOOFFS ? out->gl_offs : 0) + i]);
	return rc;
}

static int hook_glob(const char *pattern, int flags, glob_error_fn *error, glob_t *out)
{
	return vb_path_is_candidate(AT_FDCWD, pattern) ? glob_elsewhere(pattern, flags, error, out)
						       : glob(pattern, flags, error, out);
}

/* --- walking ----------------------------------------------------------------------------- */

typedef int ftw_fn(const char *, const struct stat *, int);
typedef int nftw_fn(const char *, const struct stat *, int, struct FTW *);

/* The program's function, of the walk that this thread is on. */
static __thread nftw_fn *visit_by_nftw;
static __thread ftw_fn *visit_by_ftw;

/* Where the name begins in the path that is shown: as far from its end, mostly. */
static int base_in(const char *path, const char *name)
{
	size_t length = strlen(path), behind = strlen(name);
	const char *slash = strrchr(path, '/');

	if (behind <= length && strcmp(path + length - behind, name) == 0)
		return (int)(length - behind);
	return slash ? (int)(slash + 1 - path) : 0;
}

static int visit(const char *found, const struct stat *status, int type, struct FTW *place)
{
	struct FTW shown = *place;
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s", found) >= PATH_MAX)
		return visit_by_nftw ? visit_by_nftw(found, status, type, place)
				     : visit_by_ftw(found, status, type);
	vb_redirect_owner->back(path);
	shown.base = base_in(path, found + place->base);
	return visit_by_nftw ? visit_by_nftw(path, status, type, &shown)
			     : visit_by_ftw(path, status, type);
}

/* Walks may be nested. nftw(3) with FTW_PHYS off goes as ftw(3) does. */
ELSEWHERE int walk_elsewhere(const char *path, ftw_fn *by_ftw, nftw_fn *by_nftw, int descriptors,
			     int flags)
{
	nftw_fn *nftw_before = visit_by_nftw;
	ftw_fn *ftw_before = visit_by_ftw;
	char buffer[PATH_MAX];
	struct vb_way way = vb_path_find_way(AT_FDCWD, path, buffer);
	int result;

	if (!way.ours || path[0] != '/')
		return by_nftw ? nftw(way.to, by_nftw, descriptors, flags)
			       : ftw(way.to, by_ftw, descriptors);
	visit_by_nftw = by_nftw;
	visit_by_ftw = by_ftw;
	result = nftw(way.to, visit, descriptors, flags);
	visit_by_nftw = nftw_before;
	visit_by_ftw = ftw_before;
	return result;
}

static int hook_nftw(const char *path, nftw_fn *call, int descriptors, int flags)
{
	return vb_path_is_candidate(AT_FDCWD, path)
		       ? walk_elsewhere(path, NULL, call, descriptors, flags)
		       : nftw(path, call, descriptors, flags);
}

static int hook_ftw(const char *path, ftw_fn *call, int descriptors)
{
	return vb_path_is_candidate(AT_FDCWD, path)
		       ? walk_elsewhere(path, call, NULL, descriptors, 0)
		       : ftw(path, call, descriptors);
}

/* Before a function that ends the program (later.c). */
void vb_hook_ending(void)
{
	if (vb_redirect_owner->ending)
		vb_redirect_owner->ending();
}

/* --- the table --------------------------------------------------------------------------- */

#if defined(__x86_64__) || defined(__aarch64__)
#define TRAMPOLINE_HOOK(name) {#name, vb_hook_##name},
#else
#define TRAMPOLINE_HOOK(name)
#endif

/* clang-format off */
static const struct vb_hook hooks[] = {
	TRAMPOLINE_HOOK(_Exit)
	{"__fxstatat", hook_fxstatat},
	{"__fxstatat64", hook_fxstatat},
	{"__lxstat", hook_lxstat},
	{"__lxstat64", hook_lxstat},
	{"__open64_2", hook_open_2},
	{"__open_2", hook_open_2},
	{"__openat64_2", hook_openat_2},
	{"__openat_2", hook_openat_2},
	{"__readlink_chk", hook_readlink_chk},
	{"__readlinkat_chk", hook_readlinkat_chk},
	{"__realpath_chk", hook_realpath_chk},
	{"__xstat", hook_xstat},
	{"__xstat64", hook_xstat},
	TRAMPOLINE_HOOK(_exit)
	{"access", hook_access},
	{"canonicalize_file_name", hook_canonicalize_file_name},
	{"creat", hook_creat},
	{"creat64", hook_creat},
	TRAMPOLINE_HOOK(dlsym)
	TRAMPOLINE_HOOK(dlvsym)
	{"eaccess", hook_euidaccess},
	{"euidaccess", hook_euidaccess},
	TRAMPOLINE_HOOK(execl)
	TRAMPOLINE_HOOK(execle)
	TRAMPOLINE_HOOK(execlp)
	TRAMPOLINE_HOOK(execv)
	TRAMPOLINE_HOOK(execve)
	TRAMPOLINE_HOOK(execveat)
	TRAMPOLINE_HOOK(execvp)
	TRAMPOLINE_HOOK(execvpe)
	{"faccessat", hook_faccessat},
	TRAMPOLINE_HOOK(fexecve)
	{"fopen", hook_fopen},
	{"fopen64", hook_fopen},
	{"freopen", hook_freopen},
	{"freopen64", hook_freopen},
	{"fstatat", hook_fstatat},
	{"fstatat64", hook_fstatat},
	{"fstatfs", hook_fstatfs},
	{"fstatfs64", hook_fstatfs},
	{"fstatvfs", hook_fstatvfs},
	{"fstatvfs64", hook_fstatvfs},
	{"ftw", hook_ftw},
	{"ftw64", hook_ftw},
	{"getxattr", hook_getxattr},
	{"glob", hook_glob},
	{"glob64", hook_glob},
	{"inotify_add_watch", hook_inotify_add_watch},
	{"lgetxattr", hook_lgetxattr},
	{"listxattr", hook_listxattr},
	{"llistxattr", hook_llistxattr},
	{"lstat", hook_lstat},
	{"lstat64", hook_lstat},
	{"nftw", hook_nftw},
	{"nftw64", hook_nftw},
	{"open", hook_open},
	{"open64", hook_open},
	{"openat", hook_openat},
	{"openat64", hook_openat},
	{"opendir", hook_opendir},
	TRAMPOLINE_HOOK(quick_exit)
	{"readlink", hook_readlink},
	{"readlinkat", hook_readlinkat},
	{"realpath", hook_realpath},
	{"scandir", hook_scandir},
	{"scandir64", hook_scandir},
	{"scandirat", hook_scandirat},
	{"scandirat64", hook_scandirat},
	{"stat", hook_stat},
	{"stat64", hook_stat},
	{"statfs", hook_statfs},
	{"statfs64", hook_statfs},
	{"statvfs", hook_statvfs},
	{"statvfs64", hook_statvfs},
	{"statx", hook_statx},
};
/* clang-format on */

void vb_redirect_start(const struct vb_redirect_ops *ops)
{
	for (size_t i = 1; i < VB_ARRAY_SIZE(hooks); i++)
		VB_ASSERT(strcmp(hooks[i - 1].name, hooks[i].name) < 0);
	_Static_assert(sizeof(off_t) == 8, "the 64-bit kin of each function are the function");
	vb_redirect_owner = ops;
	vb_redirect_update(true);
}

void vb_redirect_update(bool afresh)
{
	if (vb_redirect_owner)
		vb_slots_patch(hooks, VB_ARRAY_SIZE(hooks), afresh);
}
