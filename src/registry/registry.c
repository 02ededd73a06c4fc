/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * registry.c - joining and leaving a virtual host's registry.
 *
 *      open the directory -> open `reg` -> take the registry's lock -> is `reg` still the file of
 * that name?
 *          -> take a free slot at random -> sweep -> make our segment -> open the ports
 *          -> give the lock back
 *
 * Joining, leaving and sweeping all happen under the registry's lock (a byte of `reg`), so a slot
 * that a sweeper finds free stays free while it sweeps. The last one to leave removes `reg` and the
 * directories; one that joins at that moment finds, once it has the lock, that its `reg` has
 * lost its name, and begins again.
 *
 * Closing any descriptor of `reg` drops all locks that the process holds on it. Therefore a process
 * opens it once: joins of one address share one registry and are counted.
 *
 * A process killed in the middle holds no lock any more. What it left, a temporary file or a
 * segment, is removed by the next one that joins or leaves this host; of a host where nobody is
 * left, by the next one that joins any (leftovers.c).
 */
#include "registry/registry_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define JOIN_TRIES 100
#define MAX_REGISTRIES 64 /* of one process: its addresses, in all its network namespaces */

static pthread_mutex_t joined_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_registry *joined[MAX_REGISTRIES];

/* `reg` below dir_fd, its lock held. -EAGAIN: it lost its name meanwhile. */
static int open_reg(struct vb_registry_private *p)
{
	struct stat ours, named;
	int r;

	p->reg_fd = openat(p->dir_fd, "reg", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (p->reg_fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	r = vb_slot_wait(p->reg_fd, VB_REGISTRY_LOCK_BYTE, VB_REGISTRY_LOCK_WAIT_MS);
	if (r)
		goto err_close;
	r = -EAGAIN;
	if (fstat(p->reg_fd, &ours) || fstatat(p->dir_fd, "reg", &named, AT_SYMLINK_NOFOLLOW))
		goto err_close;
	if (ours.st_ino != named.st_ino || ours.st_dev != named.st_dev)
		goto err_close;
	p->reg_inode = ours.st_ino;
	r = -EACCES;
	if (!S_ISREG(ours.st_mode) || ours.st_uid != geteuid())
		goto err_close;
	r = 0;
	if (ours.st_size < (off_t)VB_REGISTRY_FILE_BYTES)
		r = -posix_fallocate(p->reg_fd, 0, VB_REGISTRY_FILE_BYTES);
	if (r)
		goto err_close;
	return 0;

err_close:
	close(p->reg_fd); /* also gives the lock back */
	p->reg_fd = -1;
	return r;
}

/* Maps the shared table; the first of the host, or one that finds nonsense, makes it new. */
static int map_shared(struct vb_registry *registry)
{
	struct vb_registry_private *p = registry->private_data;
	struct stat st;
	void *map = mmap(NULL, VB_REGISTRY_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			 p->reg_fd, VB_FILE_PAGE);

	if (map == MAP_FAILED)
		return -errno;
	if (fstat(p->reg_fd, &st) || st.st_size < (off_t)VB_REGISTRY_FILE_BYTES) {
		munmap(map, VB_REGISTRY_SHARED_BYTES);
		return -EBADMSG;
	}
	registry->shared = map;
	if (registry->shared->magic == VB_REGISTRY_MAGIC &&
	    registry->shared->version == VB_REGISTRY_VERSION)
		return 0;
	if (registry->shared->magic == VB_REGISTRY_MAGIC &&
	    vb_slot_holder(p->reg_fd, 1, VB_REGISTRY_SLOTS - 1, NULL))
		return -EPROTO; /* another Verbena's processes, whose table this is */
	memset(map, 0, VB_REGISTRY_SHARED_BYTES);
	registry->shared->version = VB_REGISTRY_VERSION;
	registry->shared->magic = VB_REGISTRY_MAGIC;
	return 0;
}

static int make_segment(struct vb_registry *registry)
{
	struct vb_registry_private *p = registry->private_data;
	uint32_t number;
	void *map;
	int r;

	p->seg_fd = vb_registry_file_create(registry, VB_FILE_SEGMENT, 0, VB_SEGMENT_BYTES,
					    VB_FILE_PAGE, &number);
	if (p->seg_fd < 0)
		return p->seg_fd;
	r = vb_file_map(p->seg_fd, VB_SEGMENT_BYTES, true, &map);
	if (r == 0) {
		p->segment = map;
		r = vb_registry_file_publish(registry, VB_FILE_SEGMENT, 0, number);
	}
	if (r)
		vb_registry_file_abandon(registry, number);
	return r;
}

/* Gives back memory and descriptors; with them every lock that this process holds here. */
static void release(struct vb_registry *registry)
{
	struct vb_registry_private *p = registry->private_data;

	vb_ports_close(p);
	if (p->segment)
		munmap(p->segment, VB_SEGMENT_BYTES);
	if (registry->shared)
		munmap(registry->shared, VB_REGISTRY_SHARED_BYTES);
	if (p->seg_fd >= 0)
		close(p->seg_fd);
	if (p->reg_fd >= 0)
		close(p->reg_fd);
	if (p->dir_fd >= 0)
		close(p->dir_fd);
	pthread_mutex_destroy(&p->lock);
	free(registry);
}

/* With the registry's lock: takes our files away, and the whole registry when nobody else is in it.
 */
static void clean_up(struct vb_registry *registry)
{
	struct vb_registry_private *p = registry->private_data;
	struct stat st;

	vb_files_sweep(registry);
	vb_ports_withdraw(registry);
	if (vb_slot_holder(p->reg_fd, 1, VB_REGISTRY_SLOTS - 1, NULL))
		return;
	if (fstatat(p->dir_fd, "reg", &st, AT_SYMLINK_NOFOLLOW) || st.st_ino != p->reg_inode)
		return;
	(void)unlinkat(p->dir_fd, VB_PORTS_NAME, 0);
	(void)unlinkat(p->dir_fd, "reg", 0);
	vb_directory_remove(p->name);
}

/* One attempt; -EAGAIN when the ground moved under it. */
static int try_join(struct vb_registry *registry)
{
	struct vb_registry_private *p = registry->private_data;
	int r = vb_directory_open(p->name);

	if (r < 0)
		return r;
	p->dir_fd = r;
	r = open_reg(p);
	if (r)
		goto err_directory;
	r = map_shared(registry);
	if (r)
		goto err_reg;
	r = vb_slot_take_random(p->reg_fd);
	if (r < 0)
		goto err_reg;
	registry->slot = (uint16_t)r;
	vb_files_sweep(registry);
	r = make_segment(registry);
	if (r == 0)
		r = vb_ports_open(registry);
	if (r)
		clean_up(registry);
	else
		vb_slot_release(p->reg_fd, VB_REGISTRY_LOCK_BYTE);
	return r == -EAGAIN ? -EIO : r;

err_reg:
	if (registry->shared)
		munmap(registry->shared, VB_REGISTRY_SHARED_BYTES);
	registry->shared = NULL;
	close(p->reg_fd);
	p->reg_fd = -1;
err_directory:
	close(p->dir_fd);
	p->dir_fd = -1;
	return r;
}

static int join_new(struct vb_registry **out, const struct in6_addr *address, const char *name)
{
	struct {
		struct vb_registry registry;
		struct vb_registry_private p;
	} *both = calloc(1, sizeof(*both));
	struct vb_registry *registry;
	int r, tries;

	if (!both)
		return -ENOMEM;
	registry = &both->registry;
	registry->private_data = &both->p;
	registry->address = *address;
	both->p.dir_fd = both->p.reg_fd = both->p.seg_fd = both->p.ports_fd = -1;
	both->p.pid = getpid();
	both->p.pid_ns = vb_directory_pid_ns();
	both->p.refs = 1;
	strcpy(both->p.name, name);
	pthread_mutex_init(&both->p.lock, NULL);
	r = -EIO;
	do {
		if (getrandom(&registry->instance, sizeof(registry->instance), 0) !=
		    (ssize_t)sizeof(registry->instance))
			goto err_release;
	} while (registry->instance == 0);
	for (tries = 0; tries < JOIN_TRIES; tries++) {
		r = try_join(registry);
		if (r != -EAGAIN)
			break;
	}
	if (r)
		goto err_release;
	*out = registry;
	return 0;

err_release:
	release(registry);
	return r;
}

/* Closing a descriptor of such a `reg` would drop the locks that this process holds on it. */
bool vb_registry_has_joined(const char *name)
{
	for (int i = 0; i < MAX_REGISTRIES; i++)
		if (joined[i] && joined[i]->private_data->pid == getpid() &&
		    strcmp(joined[i]->private_data->name, name) == 0)
			return true;
	return false;
}

int vb_registry_join(struct vb_registry **out, const struct in6_addr *address)
{
	char name[VB_DIRECTORY_NAME_MAX];
	int i, place = -1, r = vb_directory_name(address, name);

	if (r)
		return r;
	pthread_mutex_lock(&joined_lock);
	for (i = 0; i < MAX_REGISTRIES; i++) {
		struct vb_registry_private *p = joined[i] ? joined[i]->private_data : NULL;

		/* One that a fork left over is the parent's. */
		if (!p || p->pid != getpid()) {
			place = place < 0 && !p ? i : place;
		} else if (!strcmp(p->name, name)) {
			p->refs++;
			*out = joined[i];
			pthread_mutex_unlock(&joined_lock);
			return 0;
		}
	}
	r = place < 0 ? -EMFILE : join_new(&joined[place], address, name);
	if (r == 0) {
		*out = joined[place];
		vb_leftovers_sweep();
	}
	pthread_mutex_unlock(&joined_lock);
	return r;
}

/* A value is written by one process and read whole; a row may be read half old and half new. */
static void add_up(const struct vb_registry_shared *shared, uint64_t sum[VB_REGISTRY_TRAFFIC],
		   uint64_t behind[2][VB_REGISTRY_TRAFFIC])
{
	for (unsigned int i = 0; i < VB_REGISTRY_TRAFFIC; i++) {
		sum[i] = 0;
		for (unsigned int slot = 0; slot < VB_REGISTRY_SLOTS; slot++)
			sum[i] += __atomic_load_n(&shared->traffic[slot][i], __ATOMIC_RELAXED);
		for (int set = 0; set < 2; set++)
			behind[set][i] =
				__atomic_load_n(&shared->traffic_behind[set][i], __ATOMIC_RELAXED);
	}
}

static int peek_file(const char *name, uint64_t sum[VB_REGISTRY_TRAFFIC],
		     uint64_t behind[2][VB_REGISTRY_TRAFFIC])
{
	int r = 0, fd = vb_directory_open_file(name, "reg");
	struct vb_registry_shared *shared;
	struct stat st;
	void *map;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)VB_REGISTRY_FILE_BYTES) {
		close(fd);
		return -ENOENT; /* on its way to be one */
	}
	map = mmap(NULL, VB_REGISTRY_SHARED_BYTES, PROT_READ, MAP_SHARED, fd, VB_FILE_PAGE);
	if (map == MAP_FAILED) {
		r = -errno;
		close(fd);
		return r;
	}
	shared = map;
	if (shared->magic == VB_REGISTRY_MAGIC && shared->version == VB_REGISTRY_VERSION)
		add_up(shared, sum, behind);
	else
		r = -ENOENT;
	munmap(map, VB_REGISTRY_SHARED_BYTES);
	close(fd);
	return r;
}

/* Closing a second descriptor of `reg` would drop the locks of a process that joined: it reads what
 * it has mapped, and nobody joins meanwhile. */
int vb_registry_peek(const struct in6_addr *address, uint64_t sum[VB_REGISTRY_TRAFFIC],
		     uint64_t behind[2][VB_REGISTRY_TRAFFIC])
{
	char name[VB_DIRECTORY_NAME_MAX];
	struct vb_registry *ours = NULL;
	int i, r = vb_directory_name(address, name);

	if (r)
		return r;
	pthread_mutex_lock(&joined_lock);
	for (i = 0; i < MAX_REGISTRIES; i++) {
		struct vb_registry_private *p = joined[i] ? joined[i]->private_data : NULL;

		if (p && p->pid == getpid() && !strcmp(p->name, name))
			ours = joined[i];
	}
	if (ours)
		add_up(ours->shared, sum, behind);
	else
		r = peek_file(name, sum, behind);
	pthread_mutex_unlock(&joined_lock);
	return r;
}

static void forget(const struct vb_registry *registry)
{
	int i;

	for (i = 0; i < MAX_REGISTRIES; i++)
		if (joined[i] == registry)
			joined[i] = NULL;
}

void vb_registry_leave(struct vb_registry *registry)
{
	struct vb_registry_private *p;

	if (!registry)
		return;
	p = registry->private_data;
	if (p->pid != getpid()) {
		vb_registry_drop_in_child(registry);
		return;
	}
	pthread_mutex_lock(&joined_lock);
	if (--p->refs) {
		pthread_mutex_unlock(&joined_lock);
		return;
	}
	forget(registry);
	if (vb_registry_check(registry) == -EBADF) {
		/* the numbers may be the program's by now */
		p->dir_fd = p->reg_fd = p->seg_fd = p->ports_fd = -1;
	} else if (vb_registry_lock(registry) == 0) {
		clean_up(registry);
		pthread_mutex_unlock(&p->lock);
	}
	/* The next to join this address may be ourselves: not before our descriptor is closed. */
	release(registry);
	pthread_mutex_unlock(&joined_lock);
}

void vb_registry_drop_in_child(struct vb_registry *registry)
{
	if (!registry || --registry->private_data->refs)
		return;
	/* The child has one thread, and whoever held this mutex in the parent is not in it. */
	pthread_mutex_init(&joined_lock, NULL);
	forget(registry);
	pthread_mutex_init(&registry->private_data->lock, NULL);
	release(registry);
}

int vb_registry_lock(struct vb_registry *registry)
{
	return vb_registry_lock_within(registry, VB_REGISTRY_LOCK_WAIT_MS);
}

int vb_registry_lock_within(struct vb_registry *registry, unsigned int wait_ms)
{
	struct vb_registry_private *p = registry->private_data;
	int r;

	pthread_mutex_lock(&p->lock);
	r = vb_slot_wait(p->reg_fd, VB_REGISTRY_LOCK_BYTE, wait_ms);
	if (r)
		pthread_mutex_unlock(&p->lock);
	return r;
}

void vb_registry_unlock(struct vb_registry *registry)
{
	vb_slot_release(registry->private_data->reg_fd, VB_REGISTRY_LOCK_BYTE);
	pthread_mutex_unlock(&registry->private_data->lock);
}

bool vb_registry_is_alive(struct vb_registry *registry, uint16_t slot)
{
	if (slot == 0 || slot >= VB_REGISTRY_SLOTS)
		return false;
	return slot == registry->slot ||
	       vb_slot_holder(registry->private_data->reg_fd, slot, 1, NULL);
}

pid_t vb_registry_pid(struct vb_registry *registry, uint16_t slot)
{
	pid_t pid;

	if (slot == 0 || slot >= VB_REGISTRY_SLOTS)
		return 0;
	if (slot == registry->slot)
		return registry->private_data->pid;
	(void)vb_slot_holder(registry->private_data->reg_fd, slot, 1, &pid);
	return pid;
}

uint64_t vb_registry_pid_ns(const struct vb_registry *registry)
{
	return registry->private_data->pid_ns;
}

int vb_registry_check(const struct vb_registry *registry)
{
	const struct vb_registry_private *p = registry->private_data;
	struct stat ours;

	if (fstat(p->reg_fd, &ours) || ours.st_ino != p->reg_inode || !S_ISREG(ours.st_mode))
		return -EBADF;
	return ours.st_nlink == 0 ? -ESTALE : 0;
}
