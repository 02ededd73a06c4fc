/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * directory.c - where a registry lives: /dev/shm/verbena-<uid>/<netns>-<address>/.
 *
 * /dev/shm is writable by everyone, so a stranger may have put something under our name. Both
 * levels are opened as directories without following links, and through the descriptor it is
 * checked that they are ours and closed to all others; everything below goes through the
 * descriptor.
 *
 * Directories come and go with their processes: one that vanishes between two steps is no error
 * but a reason to begin again.
 */
#include "registry/registry_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SHM_PATH "/dev/shm"

static void user_directory_name(char *out, size_t size)
{
	snprintf(out, size, "verbena-%u", (unsigned int)geteuid());
}

int vb_directory_name(const struct in6_addr *address, char out[VB_DIRECTORY_NAME_MAX])
{
	char text[INET6_ADDRSTRLEN];
	struct in_addr v4;
	struct stat st;

	if (stat("/proc/thread-self/ns/net", &st) && stat("/proc/self/ns/net", &st))
		return -errno;
	if (IN6_IS_ADDR_V4MAPPED(address)) {
		memcpy(&v4, &address->s6_addr[12], sizeof(v4));
		inet_ntop(AF_INET, &v4, text, sizeof(text));
	} else {
		inet_ntop(AF_INET6, address, text, sizeof(text));
	}
	snprintf(out, VB_DIRECTORY_NAME_MAX, "%" PRIu64 "-%s", (uint64_t)st.st_ino, text);
	return 0;
}

uint64_t vb_directory_pid_ns(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) ? 0 : (uint64_t)st.st_ino;
}

/* Opens name below parent, making it if need be. */
static int open_below(int parent, const char *name)
{
	bool made = mkdirat(parent, name, 0700) == 0;
	struct stat st;
	int fd;

	if (!made && errno != EEXIST)
		return errno == ENOENT ? -EAGAIN : -errno;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT			    ? -EAGAIN
		       : errno == ELOOP || errno == ENOTDIR ? -EACCES
							    : -errno;
	if (made && fchmod(fd, 0700)) /* an odd umask may have taken bits away */
		goto err_close;
	if (fstat(fd, &st))
		goto err_close;
	if (st.st_uid != geteuid() || (st.st_mode & 0777) != 0700) {
		errno = EACCES;
		goto err_close;
	}
	return fd;

err_close : {
	int error = errno;

	close(fd);
	return -error;
}
}

int vb_user_directory_open(char path[VB_USER_DIRECTORY_MAX])
{
	char user[32];
	int shm, fd;

	shm = open(SHM_PATH, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (shm < 0)
		return -errno;
	user_directory_name(user, sizeof(user));
	if (path)
		snprintf(path, VB_USER_DIRECTORY_MAX, SHM_PATH "/%s", user);
	fd = open_below(shm, user);
	close(shm);
	return fd;
}

void vb_user_directory_remove(void)
{
	char path[VB_USER_DIRECTORY_MAX], user[32];

	user_directory_name(user, sizeof(user));
	snprintf(path, sizeof(path), SHM_PATH "/%s", user);
	(void)rmdir(path);
}

int vb_directory_open(const char *name)
{
	int parent = vb_user_directory_open(NULL), fd;

	if (parent < 0)
		return parent;
	fd = open_below(parent, name);
	close(parent);
	return fd;
}

/* Nothing but our user's own closed directory counts, as for those who join. */
int vb_directory_open_file(const char *name, const char *file)
{
	char path[160], user[32];
	int dir, fd, error;
	struct stat st;

	user_directory_name(user, sizeof(user));
	snprintf(path, sizeof(path), SHM_PATH "/%s/%s", user, name);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	if (fstat(dir, &st) || st.st_uid != geteuid() || (st.st_mode & 0777) != 0700) {
		close(dir);
		return -EACCES;
	}
	fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	error = errno;
	close(dir);
	return fd < 0 ? -error : fd;
}

void vb_directory_remove(const char *name)
{
	char path[160], user[32];

	user_directory_name(user, sizeof(user));
	snprintf(path, sizeof(path), SHM_PATH "/%s/%s", user, name);
	if (rmdir(path) == 0)
		vb_user_directory_remove(); /* another address's registry may live there */
}
