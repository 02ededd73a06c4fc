/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * beside.c - what a program finds when it looks beside this library, at the kernel's own files.
 *
 *      /sys/class/infiniband, infiniband_verbs, infiniband_mad    the generated tree
 *      /sys/devices/verbena                                       (sysfs/sysfs.h)
 *      /dev/infiniband                     the same; its devices: /dev/null
 *
 * These paths, and no others, are redirected in the modules of this process (redirect/redirect.h),
 * unless VERBENA_REDIRECT=0. The tree is made when a program first looks, so that those who do not
 * pay nothing. A port's state and counters are answered with a file of their own each time.
 *
 * By the same way the end of a program that has no exit handlers is heard (host/host.h).
 *
 * A program that runs with more rights than its user is left alone altogether.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "redirect/redirect.h"
#include "sysfs/sysfs.h"
#include "verbs/face.h"

#define CHARACTER_DEVICES "/dev/infiniband"

static bool is_below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	return strncmp(path, directory, length) == 0 &&
	       (path[length] == '/' || path[length] == '\0');
}

static bool is_ours(const char *path)
{
	static const char *const directories[] = {
		"/sys/class/infiniband",     "/sys/class/infiniband_verbs",
		"/sys/class/infiniband_mad", "/sys/devices/verbena",
		CHARACTER_DEVICES,
	};

	for (size_t i = 0; i < VB_ARRAY_SIZE(directories); i++)
		if (is_below(path, directories[i]))
			return true;
	return false;
}

/* Not the directory itself, whatever is at the path's end. */
static bool is_character_device(const char *path, const char *in_tree)
{
	size_t length = strlen(CHARACTER_DEVICES "/");

	return strncmp(path, CHARACTER_DEVICES "/", length) == 0 && path[length] &&
	       access(in_tree, F_OK) == 0;
}

static const char *where(const char *path, char buffer[PATH_MAX])
{
	const char *tree;

	if (!is_ours(path))
		return NULL;
	tree = vb_sysfs_shared();
	if (!tree || snprintf(buffer, PATH_MAX, "%s%s", tree, path) >= PATH_MAX)
		return NULL;
	return is_character_device(path, buffer) ? "/dev/null" : buffer;
}

static void back(char *path)
{
	const char *tree = vb_sysfs_shared_made();
	size_t length = tree ? strlen(tree) : 0;

	if (length && strncmp(path, tree, length) == 0 && path[length] == '/')
		memmove(path, path + length, strlen(path + length) + 1);
}

/* A file without a name, open for reading alone. */
static int file_with(const char *text, size_t size, bool cloexec)
{
	int writable = memfd_create("verbena", MFD_CLOEXEC), fd;
	char self[48];

	if (writable < 0)
		return -1;
	if (write(writable, text, size) != (ssize_t)size) {
		close(writable);
		return -1;
	}
	snprintf(self, sizeof(self), "/proc/thread-self/fd/%d", writable);
	fd = open(self, O_RDONLY | (cloexec ? O_CLOEXEC : 0));
	close(writable);
	return fd;
}

/* The kernel refuses to be asked for the type and the interface of an entry without a GID, and
 * programs go by that (EINVAL). There is nothing to read on the descriptor that watches others. */
static int refusal(bool cloexec)
{
	return epoll_create1(cloexec ? EPOLL_CLOEXEC : 0);
}

static int value(const char *to, bool cloexec)
{
	struct vb_device *const *list;
	char text[VB_SYSFS_TEXT_MAX];
	int size, count = vb_host_devices(&list);

	if (vb_sysfs_is_refused(list, count, to))
		return refusal(cloexec);
	if (!vb_sysfs_is_moving(to))
		return -1;
	size = vb_sysfs_value(list, count, to, text);
	return size < 0 ? -1 : file_with(text, (size_t)size, cloexec);
}

/* Only this setting is looked at here: what is wrong with the others is said when a program first
 * looks for devices. */
__attribute__((constructor)) static void start(void)
{
	static const char *const marks[] = {"infiniband", "verbena", NULL};
	static const struct vb_redirect_ops ops = {
		marks, where, back, value, vb_sysfs_shared_device, vb_host_ending};
	const char *setting = getenv("VERBENA_REDIRECT");

	if (getauxval(AT_SECURE) || (setting && strcmp(setting, "0") == 0))
		return;
	vb_redirect_start(&ops);
	vb_host_hears_its_end();
}

void vb_face_look_for_modules(void)
{
	vb_redirect_update(true);
}

/* The rest of this library reads these files by the same way. */
int vb_face_open_beside(const char *path)
{
	char buffer[PATH_MAX];
	const char *to = where(path, buffer);
	int fd = to ? value(to, true) : -1;

	return fd >= 0 ? fd : open(to ? to : path, O_RDONLY | O_CLOEXEC);
}
