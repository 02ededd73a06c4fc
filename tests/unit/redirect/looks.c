/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * looks.c - a module of a program that looks at files: built in several ways, since each way leaves
 * other words behind for the loader to fill in. `look` does it with the function that is named, and
 * says what it found.
 */
#define _GNU_SOURCE
#include "looks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static int (*const table[])(const char *, int, ...) = {open};
static int (*volatile in_data)(const char *, int) = access;

static int say_read(int fd, char *out, size_t size)
{
	ssize_t got = fd < 0 ? -1 : read(fd, out, size - 1);
	int error = errno;

	if (fd >= 0)
		close(fd);
	if (got < 0)
		return error;
	out[got] = '\0';
	return 0;
}

static int say_stat(int rc, const struct stat *status, char *out, size_t size)
{
	if (rc != 0)
		return errno;
	snprintf(out, size, "%s",
		 S_ISCHR(status->st_mode)   ? "character device"
		 : S_ISDIR(status->st_mode) ? "directory"
		 : S_ISLNK(status->st_mode) ? "link"
					    : "file");
	return 0;
}

static int say_text(const char *text, char *out, size_t size)
{
	if (!text)
		return errno;
	snprintf(out, size, "%s", text);
	return 0;
}

static int look_fopen(const char *path, char *out, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t got;

	if (!file)
		return errno;
	got = fread(out, 1, size - 1, file);
	out[got] = '\0';
	fclose(file);
	return 0;
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static int look_scandir(const char *path, char *out, size_t size)
{
	struct dirent **list;
	int count = scandir(path, &list, is_visible, alphasort);

	if (count < 0)
		return errno;
	*out = '\0';
	for (int i = 0; i < count; i++) {
		strncat(out, list[i]->d_name, size - strlen(out) - 1);
		strncat(out, " ", size - strlen(out) - 1);
		free(list[i]);
	}
	free(list);
	return 0;
}

static int look_opendir(const char *path, char *out, size_t size)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	if (!dir)
		return errno;
	*out = '\0';
	while ((entry = readdir(dir)) != NULL)
		if (is_visible(entry))
			strncat(out, entry->d_name, size - strlen(out) - 1);
	closedir(dir);
	return 0;
}

static int look_glob(const char *path, char *out, size_t size)
{
	glob_t found;
	int rc = glob(path, 0, NULL, &found);

	*out = '\0';
	for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++) {
		strncat(out, found.gl_pathv[i], size - strlen(out) - 1);
		strncat(out, " ", size - strlen(out) - 1);
	}
	if (rc == 0)
		globfree(&found);
	return rc ? ENOENT : 0;
}

static int look_realpath(const char *path, char *out, size_t size)
{
	char *text = realpath(path, NULL);
	int rc = say_text(text, out, size);

	free(text);
	return rc;
}

static int look_readlink(const char *path, char *out, size_t size, int directory)
{
	ssize_t got = directory == AT_FDCWD ? readlink(path, out, size - 1)
					    : readlinkat(directory, path, out, size - 1);

	if (got < 0)
		return errno;
	out[got] = '\0';
	return 0;
}

/* One stream for all: whether a failure closes it or not, it can be opened again. */
static int look_freopen(const char *path, char *out, size_t size)
{
	static FILE *file;
	size_t got;

	if (!file)
		file = fopen("/dev/null", "r");
	if (!file || !freopen(path, "r", file))
		return errno;
	got = fread(out, 1, size - 1, file);
	out[got] = '\0';
	return 0;
}

static int look_scandirat(const char *path, char *out, size_t size)
{
	struct dirent **list;
	int count = scandirat(-1, path, &list, is_visible, alphasort);

	if (count < 0)
		return errno;
	snprintf(out, size, "%d", count);
	while (count)
		free(list[--count]);
	free(list);
	return 0;
}

static char *walked;

static int add_seen(const char *path, const struct stat *status, int type)
{
	if (type == FTW_F && strstr(path, "inside"))
		strcpy(walked, path);
	return 0;
}

static int add_seen_from(const char *path, const struct stat *status, int type, struct FTW *place)
{
	/* of what the walk begins with too */
	if (place->base < 1 || path[place->base - 1] != '/' || strchr(path + place->base, '/'))
		return -1;
	return strcmp(path + place->base, "inside") == 0 ? add_seen(path, status, type) : 0;
}

/* A descriptor of the directory above the last part, and from there by that part. */
static int look_below(const char *how, const char *path, char *out, size_t size)
{
	char above[256];
	const char *slash = strchr(how, '/') ? strstr(path, strchr(how, '/')) : strrchr(path, '/');
	struct stat status;
	int fd, error;

	snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
	fd = open(above, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return errno;
	error = strncmp(how, "stat", 4)
			? say_read(openat(fd, slash + 1, O_RDONLY), out, size)
			: say_stat(fstatat(fd, slash + 1, &status, 0), &status, out, size);
	close(fd);
	return error;
}

/* From a descriptor of a directory, without the "/" in front. */
static int look_from(const char *directory, const char *how, const char *path, char *out,
		     size_t size)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY), error;
	struct stat status;

	if (!strncmp(how, "openat", 6))
		error = say_read(openat(fd, path + 1, O_RDONLY), out, size);
	else if (!strncmp(how, "fstatat", 7))
		error = say_stat(fstatat(fd, path + 1, &status, 0), &status, out, size);
	else
		error = look_readlink(path + 1, out, size, fd);
	if (fd >= 0)
		close(fd);
	return error;
}

/* Whether it is of the same file system as /sys or as /dev. */
static int look_file_system(const char *how, const char *path, char *out, size_t size)
{
	struct statfs found, sys, dev;
	int fd, rc;

	if (!strcmp(how, "statfs")) {
		rc = statfs(path, &found);
	} else {
		fd = open(path, O_RDONLY);
		if (fd < 0)
			return errno;
		rc = fstatfs(fd, &found);
		close(fd);
	}
	if (rc || statfs("/sys", &sys) || statfs("/dev", &dev))
		return errno;
	snprintf(out, size, "%s",
		 found.f_type == sys.f_type   ? "/sys"
		 : found.f_type == dev.f_type ? "/dev"
					      : "another");
	return 0;
}

/* The same by the function that POSIX has, which tells of sizes alone: sysfs has none. */
static int look_posix_file_system(const char *how, const char *path, char *out, size_t size)
{
	struct statvfs found, sys;
	int fd, rc;

	if (!strcmp(how, "statvfs")) {
		rc = statvfs(path, &found);
	} else {
		fd = open(path, O_RDONLY);
		if (fd < 0)
			return errno;
		rc = fstatvfs(fd, &found);
		close(fd);
	}
	if (rc || statvfs("/sys", &sys))
		return errno;
	snprintf(out, size, "%s",
		 found.f_blocks == sys.f_blocks && found.f_files == sys.f_files ? "/sys"
										: "another");
	return 0;
}

static int look_watch(const char *path)
{
	int watcher = inotify_init1(IN_CLOEXEC), rc;

	rc = inotify_add_watch(watcher, path, IN_OPEN) < 0 ? errno : 0;
	close(watcher);
	return rc;
}

int look(const char *how, const char *path, char *out, size_t size)
{
	struct statx extended;
	struct stat status;

	errno = 0;
	*out = '\0';
	walked = out;
	if (strstr(how, "below"))
		return look_below(how, path, out, size);
	if (!strcmp(how, "freopen"))
		return look_freopen(path, out, size);
	if (!strcmp(how, "scandirat"))
		return look_scandirat(path, out, size);
	if (!strcmp(how, "ftw"))
		return ftw(path, add_seen, 4) ? errno : 0;
	if (!strcmp(how, "nftw"))
		return nftw(path, add_seen_from, 4, FTW_PHYS) ? errno : 0;
	if (!strcmp(how, "creat"))
		return say_read(creat(path, 0600), out, size);
	if (strstr(how, "from "))
		return look_from(strstr(how, "from ") + 5, how, path, out, size);
	if (strstr(how, "statfs"))
		return look_file_system(how, path, out, size);
	if (strstr(how, "statvfs"))
		return look_posix_file_system(how, path, out, size);
	if (!strcmp(how, "listxattr"))
		return listxattr(path, NULL, 0) < 0 ? errno : 0;
	if (!strcmp(how, "llistxattr"))
		return llistxattr(path, NULL, 0) < 0 ? errno : 0;
	if (!strcmp(how, "getxattr"))
		return getxattr(path, "trusted.none", out, size) < 0 ? errno : 0;
	if (!strcmp(how, "lgetxattr"))
		return lgetxattr(path, "trusted.none", out, size) < 0 ? errno : 0;
	if (!strcmp(how, "watch"))
		return look_watch(path);
	if (!strcmp(how, "open to make alone"))
		return say_read(open(path, O_RDWR | O_CREAT | O_EXCL, 0600), out, size);
	if (!strcmp(how, "fopen to make alone"))
		return fopen(path, "wx") ? 0 : errno;
	if (!strcmp(how, "open"))
		return say_read(open(path, O_RDONLY), out, size);
	if (!strcmp(how, "open by table"))
		return say_read(table[0](path, O_RDONLY), out, size);
	if (!strcmp(how, "openat"))
		return say_read(openat(-1, path, O_RDONLY), out, size);
	if (!strcmp(how, "open to write"))
		return say_read(open(path, O_WRONLY), out, size);
	if (!strcmp(how, "open to make"))
		return say_read(open(path, O_RDONLY | O_CREAT, 0600), out, size);
	if (!strcmp(how, "fopen"))
		return look_fopen(path, out, size);
	if (!strcmp(how, "fopen to write"))
		return fopen(path, "r+") ? 0 : errno;
	if (!strcmp(how, "fopen to make"))
		return fopen(path, "w") ? 0 : errno;
	if (!strcmp(how, "stat"))
		return say_stat(stat(path, &status), &status, out, size);
	if (!strcmp(how, "lstat"))
		return say_stat(lstat(path, &status), &status, out, size);
	if (!strcmp(how, "fstatat"))
		return say_stat(fstatat(-1, path, &status, 0), &status, out, size);
	if (!strcmp(how, "statx"))
		return statx(-1, path, 0, STATX_TYPE, &extended) ? errno : 0;
	if (!strcmp(how, "access"))
		return access(path, R_OK) ? errno : 0;
	if (!strcmp(how, "access by pointer"))
		return in_data(path, R_OK) ? errno : 0;
	if (!strcmp(how, "faccessat"))
		return faccessat(-1, path, R_OK, 0) ? errno : 0;
	if (!strcmp(how, "opendir"))
		return look_opendir(path, out, size);
	if (!strcmp(how, "scandir"))
		return look_scandir(path, out, size);
	if (!strcmp(how, "glob"))
		return look_glob(path, out, size);
	if (!strcmp(how, "readlink"))
		return look_readlink(path, out, size, AT_FDCWD);
	if (!strcmp(how, "readlinkat"))
		return look_readlink(path, out, size, -1);
	if (!strcmp(how, "realpath"))
		return look_realpath(path, out, size);
	return ENOSYS;
}
