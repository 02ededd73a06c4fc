/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * namespace.c - verbena run --namespace: a mount namespace of the program's own, in which every
 * program, script and shell finds our devices in the kernel's files.
 *
 *      /sys/class      tmpfs: infiniband, infiniband_verbs, infiniband_mad; all else bound from
 * below /sys/devices    tmpfs: verbena; all else bound from below /dev            tmpfs:
 * infiniband, its character devices bound from /dev/null; all else ...
 *
 * Neither sysfs nor, for a user, /dev lets anybody make a directory, so each of the three is
 * covered and what was in it is bound in its place again, entry by entry: then "../.." in the links
 * there leads where it did. Devices that the system makes later are not seen.
 *
 * Who may make mounts (root) makes a mount namespace alone. Others make a user namespace for it, in
 * which they are who they were; behind exec(2) the program has no rights there that it would not
 * have outside.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "sysfs/sysfs.h"
#include "tools/tools.h"

#define TMPFS_OPTIONS "mode=0755,size=64m"

/* --- refusals ---------------------------------------------------------------------------- */

/* A machine that forbids it, or that cannot. */
static int refuse(const char *what, int error)
{
	vb_complain("--namespace: %s: %s", what, strerror(error));
	if (error == EPERM || error == EACCES || error == ENOSPC || error == EUSERS)
		vb_complain("this system forbids user or mount namespaces to this user: "
			    "look at the sysctls user.max_user_namespaces, "
			    "kernel.unprivileged_userns_clone and "
			    "kernel.apparmor_restrict_unprivileged_userns, or at the container's "
			    "seccomp profile and capabilities (CAP_SYS_ADMIN); without "
			    "--namespace, programs that use libibverbs find the devices all the "
			    "same");
	return -error;
}

/* --- entering ---------------------------------------------------------------------------- */

static int write_proc(const char *path, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int write_proc(const char *path, const char *format, ...)
{
	char text[64];
	va_list arguments;
	int fd, length, rc = 0;

	va_start(arguments, format);
	length = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, (size_t)length) != length)
		rc = -errno;
	close(fd);
	return rc;
}

static int enter_user_namespace(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int rc;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return refuse("no namespace", errno);
	rc = write_proc("/proc/self/setgroups", "deny");
	if (rc == 0 || rc == -ENOENT)
		rc = write_proc("/proc/self/uid_map", "%u %u 1\n", uid, uid);
	if (rc == 0)
		rc = write_proc("/proc/self/gid_map", "%u %u 1\n", gid, gid);
	return rc ? refuse("the user cannot be taken into the namespace", -rc) : 0;
}

static int enter(void)
{
	int rc = unshare(CLONE_NEWNS) == 0 ? 0 : enter_user_namespace();

	if (rc)
		return rc;
	/* what the system mounts later is to come in, what we mount is not to get out */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
		return refuse("the mounts cannot be taken apart from the system's", errno);
	return 0;
}

/* --- covering ---------------------------------------------------------------------------- */

static int bind_onto(int from, const char *to)
{
	char source[48];

	snprintf(source, sizeof(source), "/proc/self/fd/%d", from);
	return mount(source, to, NULL, MS_BIND | MS_REC, NULL) == 0 ? 0 : -errno;
}

static int copy_link(int old, const char *name, const char *to)
{
	char target[PATH_MAX];
	ssize_t length = readlinkat(old, name, target, sizeof(target) - 1);

	if (length < 0)
		return -errno;
	target[length] = '\0';
	return symlink(target, to) == 0 ? 0 : -errno;
}

static int make_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* One entry of a covered directory into its place. */
static int restore(int old, const char *name, const char *directory)
{
	char to[PATH_MAX];
	struct stat status;
	int fd, rc;

	if (snprintf(to, sizeof(to), "%s/%s", directory, name) >= (int)sizeof(to))
		return -ENAMETOOLONG;
	fd = openat(old, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &status) != 0)
		rc = -errno;
	else if (S_ISLNK(status.st_mode))
		rc = copy_link(old, name, to);
	else if (S_ISDIR(status.st_mode))
		rc = mkdir(to, 0755) == 0 ? bind_onto(fd, to) : -errno;
	else
		rc = make_file(to) == 0 ? bind_onto(fd, to) : -errno;
	close(fd);
	return rc;
}

static bool is_ours(const char *name)
{
	static const char *const names[] = {
		".", "..", "infiniband", "infiniband_verbs", "infiniband_mad", "verbena"};

	for (size_t i = 0; i < VB_ARRAY_SIZE(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* What cannot be bound (another user's FUSE mount, a device that has just gone) is left out. */
static int cover(const char *directory)
{
	int old = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *entry;
	DIR *listing;

	if (old < 0)
		return refuse(directory, errno);
	if (mount("verbena", directory, "tmpfs", MS_NOSUID, TMPFS_OPTIONS) != 0) {
		int error = errno;

		close(old);
		return refuse(directory, error);
	}
	listing = fdopendir(old);
	if (!listing) {
		close(old);
		return refuse(directory, ENOMEM);
	}
	while ((entry = readdir(listing)) != NULL)
		if (!is_ours(entry->d_name))
			(void)restore(old, entry->d_name, directory);
	closedir(listing);
	return 0;
}

/* --- our own files ----------------------------------------------------------------------- */

/* A link would do for those who open it; ls and test -c see what it is. */
static int make_character_devices(void)
{
	const char *directory = "/dev/infiniband";
	struct dirent **list;
	char path[PATH_MAX];
	int count = scandir(directory, &list, NULL, alphasort), rc = 0;

	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, list[i]->d_name);
		if (list[i]->d_name[0] != '.' && rc == 0) {
			rc = unlink(path) == 0 ? make_file(path) : -errno;
			if (rc == 0 && mount("/dev/null", path, NULL, MS_BIND, NULL) != 0)
				rc = -errno;
		}
		free(list[i]);
	}
	free(list);
	return rc;
}

int vb_namespace_enter(struct vb_device *const *list, int count)
{
	static const char *const covered[] = {"/sys/class", "/sys/devices", "/dev"};
	int root, rc = enter();

	for (size_t i = 0; i < VB_ARRAY_SIZE(covered) && rc == 0; i++)
		rc = cover(covered[i]);
	if (rc)
		return rc;
	root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return refuse("/", errno);
	rc = vb_sysfs_write(root, list, count);
	if (rc == 0)
		rc = make_character_devices();
	if (rc == 0)
		return root;
	close(root);
	return refuse("our files", -rc);
}
