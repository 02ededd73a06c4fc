/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tree.c - a description as files below a directory, a single value out of it, and the end of a
 * tree.
 *
 * Everything goes through the descriptor of the tree's root. A file that moves is written beside
 * its name and renamed, so that a reader finds the old text or the new one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sysfs/sysfs.h"

struct tree_sink {
	struct vb_sysfs_sink sink;
	int root_fd;
};

/* The directories above a path. */
static int make_parents(int root_fd, const char *path)
{
	char above[PATH_MAX];

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
		if (mkdirat(root_fd, above, 0755) != 0) {
			if (errno != EEXIST)
				return -errno;
		} else if (fchmodat(root_fd, above, 0755, 0) != 0) { /* whatever the umask is */
			return -errno;
		}
	}
	return 0;
}

static int write_text(int root_fd, const char *path, const char *text)
{
	int fd = openat(root_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
	ssize_t size = (ssize_t)strlen(text), written;
	int error;

	if (fd < 0)
		return -errno;
	written = write(fd, text, (size_t)size);
	error = written < 0 ? errno : ENOSPC;
	(void)fchmod(fd, 0444); /* whatever the umask is */
	if (close(fd) != 0 && written == size)
		return -errno;
	return written == size ? 0 : -error;
}

/* Retried with the directories made: most files have the same ones as the file before. */
static int write_new(struct vb_sysfs_sink *sink, const char *path, const char *text, bool moves)
{
	int root = vb_container_of(sink, struct tree_sink, sink)->root_fd;
	int rc = write_text(root, path, text);

	if (rc == -ENOENT)
		rc = make_parents(root, path);
	else
		return rc;
	return rc ? rc : write_text(root, path, text);
}

static int link_new(struct vb_sysfs_sink *sink, const char *path, const char *target)
{
	int root = vb_container_of(sink, struct tree_sink, sink)->root_fd;
	int rc;

	if (symlinkat(target, root, path) == 0)
		return 0;
	rc = errno == ENOENT ? make_parents(root, path) : -errno;
	if (rc)
		return rc;
	return symlinkat(target, root, path) == 0 ? 0 : -errno;
}

int vb_sysfs_write(int root_fd, struct vb_device *const *list, int count)
{
	struct tree_sink tree = {.sink = {write_new, link_new}, .root_fd = root_fd};

	return vb_sysfs_describe(list, count, &tree.sink);
}

/* --- what moves -------------------------------------------------------------------------- */

#define MOVING_MAX 64u /* files of a device whose text moves */
#define MOVING_TEXT 32u

/* The texts in the order of the description; what does not fit is written each time. */
struct vb_sysfs_seen {
	size_t count;
	char texts[][MOVING_TEXT];
};

struct fresh_sink {
	struct tree_sink tree;
	struct vb_sysfs_seen *seen;
	size_t at;
};

struct vb_sysfs_seen *vb_sysfs_seen_create(int count)
{
	size_t places = (size_t)count * MOVING_MAX;
	struct vb_sysfs_seen *seen = calloc(1, sizeof(*seen) + places * MOVING_TEXT);

	if (seen)
		seen->count = places;
	return seen;
}

void vb_sysfs_seen_destroy(struct vb_sysfs_seen *seen)
{
	free(seen);
}

static int write_again(int root_fd, const char *path, const char *text)
{
	char beside[PATH_MAX];
	int rc;

	if (snprintf(beside, sizeof(beside), "%s.new", path) >= (int)sizeof(beside))
		return -ENAMETOOLONG;
	(void)unlinkat(root_fd, beside, 0);
	rc = write_text(root_fd, beside, text);
	if (rc == 0 && renameat(root_fd, beside, root_fd, path) != 0)
		rc = -errno;
	return rc;
}

static int write_moved(struct vb_sysfs_sink *sink, const char *path, const char *text, bool moves)
{
	struct fresh_sink *fresh = vb_container_of(sink, struct fresh_sink, tree.sink);
	char *place = fresh->at < fresh->seen->count ? fresh->seen->texts[fresh->at++] : NULL;
	int rc;

	if (place && strcmp(place, text) == 0)
		return 0;
	rc = write_again(fresh->tree.root_fd, path, text);
	if (rc == 0 && place && strlen(text) < MOVING_TEXT)
		strcpy(place, text);
	return rc;
}

int vb_sysfs_refresh(int root_fd, struct vb_device *const *list, int count,
		     struct vb_sysfs_seen *seen)
{
	struct fresh_sink fresh = {.tree = {{write_moved, link_new}, root_fd}, .seen = seen};
	int rc = 0;

	for (int i = 0; i < count && rc == 0; i++) {
		fresh.at = (size_t)i * MOVING_MAX;
		rc = vb_sysfs_describe_moving(list[i], &fresh.tree.sink);
	}
	return rc;
}

struct value_sink {
	struct vb_sysfs_sink sink;
	const char *name; /* "ports/1/..." */
	char *text;
	int size;
};

static int take_value(struct vb_sysfs_sink *sink, const char *path, const char *text, bool moves)
{
	struct value_sink *value = vb_container_of(sink, struct value_sink, sink);
	const char *name = strstr(path, "ports/");

	if (!name || strcmp(name, value->name) != 0)
		return 0;
	value->size = snprintf(value->text, VB_SYSFS_TEXT_MAX, "%s", text);
	return -EEXIST; /* which ends the description */
}

/* The device is the directory above "ports", by whichever way the path came there. */
static struct vb_device *device_of(struct vb_device *const *list, int count, const char *path,
				   const char *ports)
{
	for (int i = 0; i < count; i++) {
		size_t length = strlen(list[i]->name);

		if (ports - path > (ptrdiff_t)length && ports[-(ptrdiff_t)length - 1] == '/' &&
		    strncmp(ports - length, list[i]->name, length) == 0)
			return list[i];
	}
	return NULL;
}

bool vb_sysfs_is_refused(struct vb_device *const *list, int count, const char *path)
{
	const char *ports = strstr(path, "/ports/1/gid_attrs/");
	struct vb_device *device = ports ? device_of(list, count, path, ports) : NULL;
	unsigned int index;
	char kind[8];
	int end = 0;

	return device &&
	       sscanf(ports, "/ports/1/gid_attrs/%7[a-z]/%u%n", kind, &index, &end) == 2 &&
	       ports[end] == '\0' && (!strcmp(kind, "types") || !strcmp(kind, "ndevs")) &&
	       index >= device->gid_count && index < VB_MAX_GIDS;
}

int vb_sysfs_value(struct vb_device *const *list, int count, const char *path,
		   char text[VB_SYSFS_TEXT_MAX])
{
	struct value_sink value = {.sink = {take_value, NULL}, .text = text, .size = -ENOENT};
	const char *ports = strstr(path, "/ports/");
	struct vb_device *device;

	if (!ports)
		return -ENOENT;
	device = device_of(list, count, path, ports);
	if (!device)
		return -ENOENT;
	value.name = ports + 1;
	(void)vb_sysfs_describe_moving(device, &value.sink);
	return value.size;
}

/* --- the end ----------------------------------------------------------------------------- */

/* Bounded by the depth of what we make; never through a link. */
static void remove_below(int fd, int depth)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		close(fd);
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		int below;

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(fd, entry->d_name, 0) == 0)
			continue;
		below = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below < 0)
			continue;
		if (depth > 0)
			remove_below(below, depth - 1);
		else
			close(below);
		(void)unlinkat(fd, entry->d_name, AT_REMOVEDIR);
	}
	closedir(dir);
}

void vb_sysfs_remove(int parent_fd, const char *name)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	remove_below(fd, 16);
	(void)unlinkat(parent_fd, name, AT_REMOVEDIR);
}
