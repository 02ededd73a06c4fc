/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shared.c - one tree for all processes of this user that have the same devices.
 *
 *      /dev/shm/verbena-<uid>/sysfs-<hash of what it says>/     mode 0700
 *
 * It is made when a process first looks, in a directory of another name, which is renamed when it
 * is complete. Nobody changes it after that: what moves is not read from it (tree.c). Hundreds of
 * processes of an MPI job look at one tree of half a megabyte.
 *
 * Who uses a tree holds a shared lock (flock(2)) on its directory; the kernel drops it when the
 * last copy of the descriptor is closed, so also when a process is killed. Whoever gets the
 * exclusive one may remove the tree: each user when it ends, and who makes a tree, or opens a
 * device first, looks at all the others. A lock on a directory that has lost its name meanwhile is
 * worth nothing, so the name is looked at again once the lock is held.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "registry/directory.h"
#include "sysfs/sysfs.h"

#define PREFIX "sysfs-"
#define TRIES 1000    /* a millisecond apart where another process is at it */
#define SWEEP_MAX 128 /* trees that one look is about */

/* The device of the latest tree; 0: none yet. */
static _Atomic uint64_t tree_device;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	int fd; /* of the tree; holds the lock */
	ino_t inode;
	char name[32];
	char path[VB_USER_DIRECTORY_MAX + 32];
} tree = {.fd = -1};

/* --- its name ---------------------------------------------------------------------------- */

struct hash_sink {
	struct vb_sysfs_sink sink;
	uint64_t hash;
};

/* FNV-1a, 64 bits: two settings of one user must not meet, nobody else is kept out by it. */
static void hash_text(struct hash_sink *hash, const char *text)
{
	do
		hash->hash = (hash->hash ^ (uint8_t)*text) * 0x100000001b3ull;
	while (*text++);
}

static int hash_file(struct vb_sysfs_sink *sink, const char *path, const char *text, bool moves)
{
	struct hash_sink *hash = vb_container_of(sink, struct hash_sink, sink);

	hash_text(hash, path);
	hash_text(hash, moves ? "" : text);
	return 0;
}

static int hash_link(struct vb_sysfs_sink *sink, const char *path, const char *target)
{
	return hash_file(sink, path, target, false);
}

static void name_tree(struct vb_device *const *list, int count, char name[32])
{
	struct hash_sink hash = {{hash_file, hash_link}, 0xcbf29ce484222325ull};

	(void)vb_sysfs_describe(list, count, &hash.sink);
	snprintf(name, 32, PREFIX "%016" PRIx64, hash.hash);
}

/* --- making and taking ------------------------------------------------------------------- */

static int open_directory(int parent, const char *name)
{
	return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Whether the directory of that name is the one that is open. */
static bool is_named(int parent, const char *name, int fd, ino_t *inode)
{
	struct stat ours, named;

	if (fstat(fd, &ours) != 0 || fstatat(parent, name, &named, AT_SYMLINK_NOFOLLOW) != 0)
		return false;
	*inode = ours.st_ino;
	return ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

/* A name that no process looks for: of a tree on its way in or out. */
static int random_name(char name[64])
{
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -EIO;
	snprintf(name, 64, PREFIX "new-%016" PRIx64, random);
	return 0;
}

/* Removes a tree that nobody uses. With the lock, what has the name cannot lose it but by us. It
 * loses it first: we may be killed half way. */
static void remove_unused(int parent, const char *name)
{
	int fd = open_directory(parent, name);
	char other[64];
	ino_t inode;

	if (fd < 0)
		return;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_named(parent, name, fd, &inode) &&
	    random_name(other) == 0 && renameat(parent, name, parent, other) == 0)
		vb_sysfs_remove(parent, other);
	close(fd);
}

static void sweep(int parent)
{
	int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (int looks = 0; looks < SWEEP_MAX && (entry = readdir(dir)) != NULL;)
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0) {
			remove_unused(parent, entry->d_name);
			looks++;
		}
	closedir(dir);
}

void vb_sysfs_sweep(void)
{
	int parent = vb_user_directory_open(NULL);

	if (parent < 0)
		return;
	sweep(parent);
	close(parent);
}

/* 0 also when another process was faster. -ENOENT: somebody swept it away before we held it. */
static int make(int parent, const char *name, struct vb_device *const *list, int count)
{
	char unfinished[64];
	int fd, rc = random_name(unfinished);

	if (rc)
		return rc;
	if (mkdirat(parent, unfinished, 0700) != 0)
		return -errno;
	(void)fchmodat(parent, unfinished, 0700, 0);
	fd = open_directory(parent, unfinished);
	if (fd < 0)
		return -errno;
	rc = flock(fd, LOCK_SH | LOCK_NB) == 0 ? 0 : -ENOENT;
	if (rc == 0)
		rc = vb_sysfs_write(fd, list, count);
	if (rc == 0 && renameat(parent, unfinished, parent, name) == 0) {
		close(fd);
		return 0;
	}
	if (rc == 0)
		rc = errno == EEXIST || errno == ENOTEMPTY ? 0 : -errno;
	vb_sysfs_remove(parent, unfinished);
	close(fd);
	return rc;
}

/* The locked descriptor of the tree of that name, or -errno; -EAGAIN: it is on its way out. */
static int take(int parent, const char *name, ino_t *inode)
{
	int fd = open_directory(parent, name);

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0 && is_named(parent, name, fd, inode))
		return fd;
	close(fd);
	return -EAGAIN;
}

/* One try, which may have to be repeated: -EAGAIN. */
static int take_or_make(int parent, const char *name, struct vb_device *const *list, int count,
			ino_t *inode)
{
	const struct timespec pause = {.tv_nsec = 1000 * 1000};
	int rc = take(parent, name, inode);

	if (rc == -EAGAIN)
		nanosleep(&pause, NULL);
	if (rc != -ENOENT)
		return rc;
	sweep(parent);
	rc = make(parent, name, list, count);
	return rc == 0 || rc == -ENOENT ? -EAGAIN : rc;
}

static int acquire(void)
{
	struct vb_device *const *list;
	char above[VB_USER_DIRECTORY_MAX];
	struct stat status;
	int count = vb_host_devices(&list), parent, fd = -EAGAIN;

	if (count <= 0)
		return -ENODEV;
	name_tree(list, count, tree.name);
	/* Opened anew each time: it may have been empty for a moment, and taken away. */
	for (int i = 0; i < TRIES && fd == -EAGAIN; i++) {
		parent = vb_user_directory_open(above);
		if (parent < 0) {
			fd = parent;
			continue;
		}
		snprintf(tree.path, sizeof(tree.path), "%s/%s", above, tree.name);
		fd = take_or_make(parent, tree.name, list, count, &tree.inode);
		close(parent);
	}
	tree.fd = fd < 0 ? -1 : fd;
	if (fd >= 0 && fstat(fd, &status) == 0)
		atomic_store(&tree_device, (uint64_t)status.st_dev);
	return fd < 0 ? fd : 0;
}

/* A program may have closed our descriptor (closefrom(3)), and with it let go of the tree. */
static bool is_held(void)
{
	struct stat ours;

	return tree.fd >= 0 && fstat(tree.fd, &ours) == 0 && ours.st_ino == tree.inode &&
	       S_ISDIR(ours.st_mode) && ours.st_nlink > 0;
}

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void prepare_fork(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

const char *vb_sysfs_shared(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	bool good;

	pthread_once(&once, prepare_fork);
	pthread_mutex_lock(&lock);
	good = is_held() || acquire() == 0;
	pthread_mutex_unlock(&lock);
	return good ? tree.path : NULL;
}

const char *vb_sysfs_shared_made(void)
{
	return atomic_load(&tree_device) ? tree.path : NULL;
}

dev_t vb_sysfs_shared_device(void)
{
	return (dev_t)atomic_load(&tree_device);
}

/* A forked child has a copy of the descriptor, and the lock with it: then the tree stays. */
__attribute__((destructor)) static void at_exit(void)
{
	int parent;

	if (pthread_mutex_trylock(&lock) != 0)
		return;
	if (is_held()) {
		close(tree.fd);
		tree.fd = -1;
		parent = vb_user_directory_open(NULL);
		if (parent >= 0) {
			remove_unused(parent, tree.name);
			close(parent);
			vb_user_directory_remove();
		}
	}
	pthread_mutex_unlock(&lock);
}
