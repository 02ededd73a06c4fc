/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * leftovers.c - the registries of hosts on which nobody lives any more.
 *
 * Who leaves last removes its host's registry; who is killed does not. The next process of that
 * host would clean up, but there may never be one. So whoever joins any host looks at the others'
 * directories, VB_LEFTOVERS_MAX of them at most:
 *
 *      no slot is held? -> take the registry's lock, if it is to be had at once
 *                       -> still no slot, and is `reg` still the file of that name? -> remove all
 *
 * A process that joins that host at this moment has the lock itself, and then we go on; or it gets
 * the lock after us, finds that its `reg` has lost its name, and begins again (registry.c).
 *
 * A directory without `reg` is of somebody who is about to make one, or was killed there, or whose
 * `reg` a stranger took away: when it is old we make one, and go on as above.
 */
#include "registry/registry_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define REG_FLAGS (O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
#define OLD_S 10 /* nobody is that long between two steps of joining */

/* "<netns>-<address>" */
static bool is_host(const char *name)
{
	size_t digits = strspn(name, "0123456789");

	return digits > 0 && name[digits] == '-' && strlen(name) < VB_DIRECTORY_NAME_MAX;
}

static bool is_old(const struct stat *st)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec - st->st_mtim.tv_sec > OLD_S;
}

/* With dir/reg open: whether nobody can be in it, now and until the descriptor is closed. */
static bool is_nobodys(int dir, int reg)
{
	struct stat ours, named;

	if (fstat(reg, &ours) || !S_ISREG(ours.st_mode) || ours.st_uid != geteuid())
		return false;
	if (vb_slot_holder(reg, 1, VB_REGISTRY_SLOTS - 1, NULL) ||
	    vb_slot_try(reg, VB_REGISTRY_LOCK_BYTE))
		return false;
	return !vb_slot_holder(reg, 1, VB_REGISTRY_SLOTS - 1, NULL) &&
	       fstatat(dir, "reg", &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

static void remove_host(int parent, const char *name, int dir, int reg)
{
	struct vb_registry_private p = {.dir_fd = dir, .reg_fd = reg};
	struct vb_registry nobody = {.slot = 0, .private_data = &p};

	vb_files_sweep(&nobody);
	(void)unlinkat(dir, VB_PORTS_NAME, 0);
	(void)unlinkat(dir, "reg", 0);
	(void)unlinkat(parent, name, AT_REMOVEDIR);
}

static void look_at(int parent, const char *name)
{
	int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), reg;
	struct stat st;

	if (dir < 0)
		return;
	if (fstat(dir, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 0777) == 0700) {
		reg = openat(dir, "reg", REG_FLAGS);
		if (reg < 0 && errno == ENOENT && is_old(&st))
			reg = openat(dir, "reg", REG_FLAGS | O_CREAT, 0600);
		if (reg >= 0 && is_nobodys(dir, reg))
			remove_host(parent, name, dir, reg);
		if (reg >= 0)
			close(reg); /* gives the lock back */
	}
	close(dir);
}

/* Where to begin, so that with very many hosts each gets its turn. */
static unsigned int first_of(DIR *listing)
{
	unsigned int count = 0, random = 0;

	while (readdir(listing))
		count++;
	rewinddir(listing);
	if (count <= VB_LEFTOVERS_MAX ||
	    getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
		return 0;
	return random % (count - VB_LEFTOVERS_MAX);
}

void vb_leftovers_sweep(void)
{
	int parent = vb_user_directory_open(NULL), looks = 0;
	DIR *listing = parent < 0 ? NULL : fdopendir(parent);
	struct dirent *entry;

	if (!listing) {
		if (parent >= 0)
			close(parent);
		return;
	}
	for (unsigned int skip = first_of(listing); skip && readdir(listing); skip--)
		;
	while (looks < VB_LEFTOVERS_MAX && (entry = readdir(listing)) != NULL) {
		if (!is_host(entry->d_name) || vb_registry_has_joined(entry->d_name))
			continue;
		look_at(parent, entry->d_name);
		looks++;
	}
	closedir(listing);
}
