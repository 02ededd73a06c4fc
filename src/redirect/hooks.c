/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hooks.c - what modules call in place of libc's functions that take a path.
 *
 * A hook looks at the first bytes of its path and calls libc's function with it, unless the path is
 * one that the owner sends elsewhere. It may be called at any time: by a program's signal handler,
 * before main, while another thread loads a module. So there is no lock and no memory here, and a
 * pointer that the kernel would refuse is passed on to be refused.
 *
 * The paths that lead elsewhere are the kernel's own files, which nobody writes: opening one for
 * writing is refused as the kernel does, also to root.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "redirect/redirect.h"
#include "redirect/slots.h"

#define NULL_DEVICE "/dev/null"

static const struct vb_redirect_ops *redirect;

/* Whether it is worth asking where the path leads, which takes more of the stack than a signal
 * handler may have. What is no pointer is for the kernel to refuse. */
static inline bool is_candidate(const char *path)
{
	if ((uintptr_t)path < 4096 || path[0] != '/')
		return false;
	if (strncmp(path + 1, "sys/", 4) != 0 && strncmp(path + 1, "dev/", 4) != 0 &&
	    path[1] != '/' && path[1] != '.')
		return false;
	for (const char *const *mark = redirect->marks; *mark; mark++)
		if (strstr(path, *mark))
			return true;
	return false;
}

/* The path to use, which is the program's own where it leads nowhere else. */
static const char *lead(const char *path, char buffer[PATH_MAX])
{
	const char *to;
	int error = errno;

	to = redirect->where(path, buffer);
	errno = error;
	return to ? to : path;
}

/* A relative path that begins as the absolute ones do, from a descriptor of "/". */
static inline bool is_candidate_from(int directory, const char *path)
{
	struct stat from, root;
	int error = errno;
	bool from_root = false;

	if ((uintptr_t)path < 4096 || path[0] == '/' || directory == AT_FDCWD)
		return is_candidate(path);
	if (strncmp(path, "sys/", 4) != 0 && strncmp(path, "dev/", 4) != 0)
		return false;
	for (const char *const *mark = redirect->marks; *mark && !from_root; mark++)
		from_root = strstr(path, *mark) && fstat(directory, &from) == 0 &&
			    stat("/", &root) == 0 && from.st_ino == root.st_ino &&
			    from.st_dev == root.st_dev;
	errno = error;
	return from_root;
}

/* The same with "/" in front. */
static const char *absolute(const char *path, char buffer[PATH_MAX])
{
	if (path[0] == '/' || snprintf(buffer, PATH_MAX, "/%s", path) >= PATH_MAX)
		return path;
	return buffer;
}

#define ELSEWHERE __attribute__((noinline)) static

/* --- opening ----------------------------------------------------------------------------- */

static bool is_null_device(const char *path)
{
	return strcmp(path, NULL_DEVICE) == 0;
}

static int open_elsewhere(const char *path, const char *to, int flags)
{
	struct stat status;
	int fd;

	if (is_null_device(to))
		return open(to, flags & ~(O_CREAT | O_EXCL | O_TRUNC));
	if ((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT) {
		errno = stat(to, &status) == 0 && S_ISDIR(status.st_mode) ? EISDIR : EACCES;
		if (!(flags & O_CREAT) && stat(to, &status) != 0)
			errno = ENOENT;
		return -1;
	}
	if (!(flags & (O_PATH | O_DIRECTORY))) {
		fd = redirect->value(path, flags & O_CLOEXEC);
		if (fd >= 0)
			return fd;
	}
	return open(to, flags);
}

ELSEWHERE int open_at(int directory, const char *path, int flags, mode_t mode)
{
	char whole[PATH_MAX], buffer[PATH_MAX];
	const char *from = absolute(path, whole), *to = lead(from, buffer);

	return to == from ? openat(directory, path, flags, mode) : open_elsewhere(from, to, flags);
}

static mode_t mode_of(int flags, va_list arguments)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

static int hook_open(const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = mode_of(flags, arguments);
	va_end(arguments);
	return is_candidate(path) ? open_at(AT_FDCWD, path, flags, mode) : open(path, flags, mode);
}

static int hook_openat(int directory, const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = mode_of(flags, arguments);
	va_end(arguments);
	return is_candidate_from(directory, path) ? open_at(directory, path, flags, mode)
						  : openat(directory, path, flags, mode);
}

/* The fortified ones have no mode. */
static int hook_open_2(const char *path, int flags)
{
	return is_candidate(path) ? open_at(AT_FDCWD, path, flags, 0) : open(path, flags, 0);
}

static int hook_openat_2(int directory, const char *path, int flags)
{
	return is_candidate_from(directory, path) ? open_at(directory, path, flags, 0)
						  : openat(directory, path, flags, 0);
}

ELSEWHERE FILE *fopen_elsewhere(const char *path, const char *mode)
{
	char buffer[PATH_MAX];
	const char *to = lead(path, buffer);
	int flags = O_RDONLY, fd;
	FILE *file;

	if (to == path || is_null_device(to))
		return fopen(to, mode);
	if (mode[0] != 'r')
		flags = O_WRONLY | O_CREAT;
	else if (strchr(mode, '+'))
		flags = O_RDWR;
	fd = open_elsewhere(path, to, flags | (strchr(mode, 'e') ? O_CLOEXEC : 0));
	if (fd < 0)
		return NULL;
	file = fdopen(fd, mode);
	if (!file)
		close(fd);
	return file;
}

static FILE *hook_fopen(const char *path, const char *mode)
{
	return is_candidate(path) ? fopen_elsewhere(path, mode) : fopen(path, mode);
}

/* --- looking ----------------------------------------------------------------------------- */

/* `to` is the path that `call` uses. */
#define HOOK(result, name, parameters, arguments, candidate, call)                                 \
	ELSEWHERE result name##_elsewhere parameters                                               \
	{                                                                                          \
		char whole[PATH_MAX], buffer[PATH_MAX];                                            \
		const char *from = absolute(path, whole), *to = lead(from, buffer);                \
                                                                                                   \
		if (to == from)                                                                    \
			to = path;                                                                 \
		return call;                                                                       \
	}                                                                                          \
	static result hook_##name parameters                                                       \
	{                                                                                          \
		const char *to = path;                                                             \
                                                                                                   \
		return candidate ? name##_elsewhere arguments : call;                              \
	}
#define HOOK_PATH(result, name, parameters, arguments, call)                                       \
	HOOK(result, name, parameters, arguments, is_candidate(path), call)
#define HOOK_AT(result, name, parameters, arguments, call)                                         \
	HOOK(result, name, parameters, arguments, is_candidate_from(directory, path), call)

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
HOOK_PATH(DIR *, opendir, (const char *path), (path), opendir(to))
HOOK_PATH(int, scandir,
	  (const char *path, struct dirent ***out, filter_fn *filter, compare_fn *compare),
	  (path, out, filter, compare), scandir(to, out, filter, compare))
HOOK_PATH(ssize_t, readlink, (const char *path, char *out, size_t size), (path, out, size),
	  readlink(to, out, size))
HOOK_AT(ssize_t, readlinkat, (int directory, const char *path, char *out, size_t size),
	(directory, path, out, size), readlinkat(directory, to, out, size))
HOOK_PATH(ssize_t, readlink_chk, (const char *path, char *out, size_t size, size_t room),
	  (path, out, size, room), __readlink_chk(to, out, size, room))
HOOK_AT(ssize_t, readlinkat_chk,
	(int directory, const char *path, char *out, size_t size, size_t room),
	(directory, path, out, size, room), __readlinkat_chk(directory, to, out, size, room))

/* A character device is itself, and not what stands in for it. */
static char *name_of_device(const char *path, char *out)
{
	if (!out)
		return strdup(path);
	return strcpy(out, path);
}

ELSEWHERE char *realpath_elsewhere(const char *path, char *out)
{
	char buffer[PATH_MAX];
	const char *to = lead(path, buffer);
	char *result;

	if (to != path && is_null_device(to))
		return name_of_device(path, out);
	result = realpath(to, out);
	if (result && to != path)
		redirect->back(result);
	return result;
}

static char *hook_realpath(const char *path, char *out)
{
	return is_candidate(path) ? realpath_elsewhere(path, out) : realpath(path, out);
}

static char *hook_realpath_chk(const char *path, char *out, size_t room)
{
	return room < PATH_MAX || !is_candidate(path) ? __realpath_chk(path, out, room)
						      : hook_realpath(path, out);
}

static char *hook_canonicalize_file_name(const char *path)
{
	return hook_realpath(path, NULL);
}

typedef int glob_error_fn(const char *, int);

ELSEWHERE int glob_elsewhere(const char *pattern, int flags, glob_error_fn *error, glob_t *out)
{
	char buffer[PATH_MAX];
	const char *to = lead(pattern, buffer);
	int rc;

	if (to == pattern || is_null_device(to) || flags & GLOB_ALTDIRFUNC)
		return glob(pattern, flags, error, out);
	rc = glob(to, flags, error, out);
	for (size_t i = 0; rc == 0 && i < out->gl_pathc; i++)
		redirect->back(out->gl_pathv[(flags & GLOB_DOOFFS ? out->gl_offs : 0) + i]);
	return rc;
}

static int hook_glob(const char *pattern, int flags, glob_error_fn *error, glob_t *out)
{
	return is_candidate(pattern) ? glob_elsewhere(pattern, flags, error, out)
				     : glob(pattern, flags, error, out);
}

/* --- modules that come later ------------------------------------------------------------- */

/* dlsym and dlvsym find out who called them (RTLD_NEXT), so the hook must leave no trace: it looks
 * for new modules and jumps. A program calls them before it calls into a module that it loaded. */
void vb_hook_dlsym(void);
void vb_hook_dlvsym(void);
void vb_hook_look(void);

__attribute__((used, visibility("hidden"))) void vb_hook_look(void)
{
	vb_redirect_update(false);
}

#if defined(__x86_64__)
#define TRAMPOLINE(name)                                                                           \
	__asm__(".text\n.globl vb_hook_" #name "\n.hidden vb_hook_" #name "\n.type vb_hook_" #name \
		", @function\nvb_hook_" #name ":\n"                                                \
		".cfi_startproc\nendbr64\n"                                                        \
		"push %rdi\n.cfi_adjust_cfa_offset 8\npush %rsi\n.cfi_adjust_cfa_offset 8\n"       \
		"push %rdx\n.cfi_adjust_cfa_offset 8\n"                                            \
		"call vb_hook_look\n"                                                              \
		"pop %rdx\n.cfi_adjust_cfa_offset -8\npop %rsi\n.cfi_adjust_cfa_offset -8\n"       \
		"pop %rdi\n.cfi_adjust_cfa_offset -8\n"                                            \
		"jmp " #name "@PLT\n.cfi_endproc\n.size vb_hook_" #name ", .-vb_hook_" #name       \
		"\n.previous\n")
TRAMPOLINE(dlsym);
TRAMPOLINE(dlvsym);
#elif defined(__aarch64__)
#define TRAMPOLINE(name)                                                                           \
	__asm__(".text\n.globl vb_hook_" #name "\n.hidden vb_hook_" #name "\n.type vb_hook_" #name \
		", %function\nvb_hook_" #name ":\n"                                                \
		".cfi_startproc\nhint #34\n"                                                       \
		"stp x29, x30, [sp, #-48]!\n.cfi_def_cfa_offset 48\n"                              \
		".cfi_offset 29, -48\n.cfi_offset 30, -40\nmov x29, sp\n"                          \
		"stp x0, x1, [sp, #16]\nstr x2, [sp, #32]\n"                                       \
		"bl vb_hook_look\n"                                                                \
		"ldr x2, [sp, #32]\nldp x0, x1, [sp, #16]\nldp x29, x30, [sp], #48\n"              \
		".cfi_def_cfa_offset 0\n.cfi_restore 29\n.cfi_restore 30\n"                        \
		"b " #name "\n.cfi_endproc\n.size vb_hook_" #name ", .-vb_hook_" #name             \
		"\n.previous\n")
TRAMPOLINE(dlsym);
TRAMPOLINE(dlvsym);
#endif

/* --- the table --------------------------------------------------------------------------- */

static const struct vb_hook hooks[] = {
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
	{"access", hook_access},
	{"canonicalize_file_name", hook_canonicalize_file_name},
#if defined(__x86_64__) || defined(__aarch64__)
	{"dlsym", vb_hook_dlsym},
	{"dlvsym", vb_hook_dlvsym},
#endif
	{"eaccess", hook_euidaccess},
	{"euidaccess", hook_euidaccess},
	{"faccessat", hook_faccessat},
	{"fopen", hook_fopen},
	{"fopen64", hook_fopen},
	{"fstatat", hook_fstatat},
	{"fstatat64", hook_fstatat},
	{"glob", hook_glob},
	{"glob64", hook_glob},
	{"lstat", hook_lstat},
	{"lstat64", hook_lstat},
	{"open", hook_open},
	{"open64", hook_open},
	{"openat", hook_openat},
	{"openat64", hook_openat},
	{"opendir", hook_opendir},
	{"readlink", hook_readlink},
	{"readlinkat", hook_readlinkat},
	{"realpath", hook_realpath},
	{"scandir", hook_scandir},
	{"scandir64", hook_scandir},
	{"stat", hook_stat},
	{"stat64", hook_stat},
	{"statx", hook_statx},
};

void vb_redirect_start(const struct vb_redirect_ops *ops)
{
	for (size_t i = 1; i < VB_ARRAY_SIZE(hooks); i++)
		VB_ASSERT(strcmp(hooks[i - 1].name, hooks[i].name) < 0);
	_Static_assert(sizeof(off_t) == 8, "the 64-bit kin of each function are the function");
	redirect = ops;
	vb_redirect_update(true);
}

void vb_redirect_update(bool afresh)
{
	if (redirect)
		vb_slots_patch(hooks, VB_ARRAY_SIZE(hooks), afresh);
}
