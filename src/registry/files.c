/* SPDX-License-Identifier: BSD-2-Clause */
/* files.c - making, checking, mapping and sweeping the files of a registry; files.h says what they
 * are. */
#include "registry/registry_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const kind_names[] = {
	[VB_FILE_SEGMENT] = "seg",
	[VB_FILE_BELL] = "bell",
	[VB_FILE_RING] = "ring",
};

struct file_name {
	char text[40];
};

static struct file_name file_name(enum vb_file_kind kind, uint16_t slot, uint16_t peer)
{
	struct file_name name;

	if (peer)
		snprintf(name.text, sizeof(name.text), "%s.%u.%u", kind_names[kind], slot, peer);
	else
		snprintf(name.text, sizeof(name.text), "%s.%u", kind_names[kind], slot);
	return name;
}

static struct file_name temporary_name(uint16_t slot, uint32_t number)
{
	struct file_name name;

	snprintf(name.text, sizeof(name.text), "tmp.%u.%" PRIu32, slot, number);
	return name;
}

static int reserve(int fd, size_t offset, size_t bytes)
{
	int error;

	do
		error = posix_fallocate(fd, (off_t)offset, (off_t)bytes);
	while (error == EINTR);
	return -error;
}

int vb_registry_file_create(struct vb_registry *registry, enum vb_file_kind kind, uint16_t peer,
			    size_t bytes, size_t reserve_bytes, uint32_t *number)
{
	struct vb_registry_private *p = registry->private_data;
	struct vb_file_header header = {
		.magic = VB_FILE_MAGIC,
		.version = VB_FILE_VERSION,
		.kind = (uint32_t)kind,
		.bytes = bytes,
		.instance = registry->instance,
		.pid_ns = p->pid_ns,
		.pid = (uint32_t)p->pid,
		.slot = registry->slot,
		.peer = peer,
	};
	struct file_name name;
	int fd, r;

	*number = __atomic_fetch_add(&p->next_temporary, 1, __ATOMIC_RELAXED);
	name = temporary_name(registry->slot, *number);
	fd = openat(p->dir_fd, name.text, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes)) {
		r = -errno;
		goto err_unlink;
	}
	r = reserve(fd, 0, reserve_bytes);
	if (r)
		goto err_unlink;
	if (pwrite(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header)) {
		r = -EIO;
		goto err_unlink;
	}
	return fd;

err_unlink:
	vb_registry_file_abandon(registry, *number);
	close(fd);
	return r;
}

int vb_registry_file_publish(struct vb_registry *registry, enum vb_file_kind kind, uint16_t peer,
			     uint32_t number)
{
	struct file_name from = temporary_name(registry->slot, number);
	struct file_name to = file_name(kind, registry->slot, peer);
	int dir = registry->private_data->dir_fd;

	return renameat(dir, from.text, dir, to.text) ? -errno : 0;
}

void vb_registry_file_abandon(struct vb_registry *registry, uint32_t number)
{
	struct file_name name = temporary_name(registry->slot, number);

	(void)unlinkat(registry->private_data->dir_fd, name.text, 0);
}

/* The checks of vb_registry_file_open() on an open descriptor. */
static int check_file(int fd, enum vb_file_kind kind, uint16_t slot, uint16_t peer, size_t bytes,
		      struct vb_file_header *header)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (uint64_t)st.st_size != bytes)
		return -EBADMSG;
	if (pread(fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header))
		return -EBADMSG;
	if (header->magic != VB_FILE_MAGIC || header->version != VB_FILE_VERSION ||
	    header->kind != (uint32_t)kind || header->bytes != bytes || header->slot != slot ||
	    header->peer != peer)
		return -EBADMSG;
	return 0;
}

int vb_registry_file_open(struct vb_registry *registry, enum vb_file_kind kind, uint16_t slot,
			  uint16_t peer, size_t bytes, bool writable, struct vb_file_header *header)
{
	struct file_name name = file_name(kind, slot, peer);
	int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	int fd = openat(registry->private_data->dir_fd, name.text, flags);
	int r;

	if (fd < 0)
		return -errno;
	r = check_file(fd, kind, slot, peer, bytes, header);
	if (r) {
		close(fd);
		return r;
	}
	return fd;
}

void vb_registry_file_remove(struct vb_registry *registry, enum vb_file_kind kind, uint16_t peer)
{
	struct file_name name = file_name(kind, registry->slot, peer);

	(void)unlinkat(registry->private_data->dir_fd, name.text, 0);
}

int vb_file_map(int fd, size_t bytes, bool writable, void **out)
{
	void *map = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	struct stat st;

	if (map == MAP_FAILED)
		return -errno;
	/* Again, behind the mmap: a file that shrank in between would be a SIGBUS at first touch.
	 */
	if (fstat(fd, &st) || (uint64_t)st.st_size < bytes) {
		munmap(map, bytes);
		return -EBADMSG;
	}
	*out = map;
	return 0;
}

void *vb_registry_segment(struct vb_registry *registry)
{
	return registry->private_data->segment;
}

int vb_registry_reserve(struct vb_registry *registry, size_t offset, size_t bytes)
{
	if (offset > VB_SEGMENT_BYTES || bytes > VB_SEGMENT_BYTES - offset)
		return -EINVAL;
	return reserve(registry->private_data->seg_fd, offset, bytes);
}

/* --- leftovers --------------------------------------------------------------------------- */

/* Reads a decimal slot number; NULL when there is none. */
static const char *read_number(const char *at, unsigned int *value)
{
	unsigned int n = 0;

	if (*at < '0' || *at > '9')
		return NULL;
	for (; *at >= '0' && *at <= '9'; at++) {
		n = n * 10 + (unsigned int)(*at - '0');
		if (n > 0xffffff)
			n = 0xffffff;
	}
	*value = n;
	return at;
}

/* What a name says: the owner's slot and, of a ring, the reader's. False: not one of our names. */
static bool parse_name(const char *name, unsigned int *owner, unsigned int *reader)
{
	const char *dot = strchr(name, '.');
	size_t length = dot ? (size_t)(dot - name) : 0;
	bool known = false;
	unsigned int i, second = 0;

	for (i = 0; i < VB_ARRAY_SIZE(kind_names); i++)
		known |= length == strlen(kind_names[i]) && !memcmp(name, kind_names[i], length);
	if (!known && (length != 3 || memcmp(name, "tmp", 3)))
		return false;
	dot = read_number(dot + 1, owner);
	if (dot && *dot == '.')
		dot = read_number(dot + 1, &second);
	if (!dot || *dot || *owner == 0 || *owner >= VB_REGISTRY_SLOTS)
		return false;
	*reader = name[0] == 'r' ? second : 0;
	return true;
}

/* Tells those who have the file mapped that it has no owner. Returns the file's size. */
static off_t mark_closed(int dir, const char *name)
{
	const uint32_t closed = 1;
	struct stat st;
	int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		st.st_size = 0;
	if (st.st_size >= (off_t)sizeof(struct vb_file_header) &&
	    pwrite(fd, &closed, sizeof(closed), offsetof(struct vb_file_header, closed)) < 0)
		st.st_size = 0;
	close(fd);
	return st.st_size;
}

void vb_files_sweep(struct vb_registry *registry)
{
	struct vb_registry_private *p = registry->private_data;
	enum { UNKNOWN, DEAD, LIVE } state[VB_REGISTRY_SLOTS] = {UNKNOWN};
	int fd = openat(p->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		unsigned int slots[2], i;
		off_t size;

		if (!parse_name(entry->d_name, &slots[0], &slots[1]))
			continue;
		for (i = 0; i < 2; i++) {
			if (slots[i] >= VB_REGISTRY_SLOTS)
				slots[i] = 0;
			if (state[slots[i]] == UNKNOWN)
				state[slots[i]] =
					slots[i] && slots[i] != registry->slot &&
							vb_slot_holder(p->reg_fd, slots[i], 1, NULL)
						? LIVE
						: DEAD;
		}
		if (state[slots[0]] == LIVE)
			continue;
		size = mark_closed(p->dir_fd, entry->d_name);
		/* What a dead process sent to a live one is still on its way. */
		if (slots[1] && state[slots[1]] == LIVE && size)
			continue;
		(void)unlinkat(p->dir_fd, entry->d_name, 0);
	}
	closedir(dir);
}

void vb_registry_file_retire(struct vb_registry *registry, uint16_t slot, uint64_t instance)
{
	struct vb_registry_private *p = registry->private_data;
	struct file_name name = file_name(VB_FILE_RING, slot, registry->slot);
	int fd = openat(p->dir_fd, name.text, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct vb_file_header header;
	struct stat st;

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
	    header.instance == instance && ftruncate(fd, 0) == 0 &&
	    pthread_mutex_trylock(&p->lock) == 0) {
		/* Under the registry's lock nobody can take the slot and give the name to a new
		 * ring. */
		if (vb_slot_try(p->reg_fd, VB_REGISTRY_LOCK_BYTE) == 0) {
			if (!vb_slot_holder(p->reg_fd, slot, 1, NULL) && slot != registry->slot)
				(void)unlinkat(p->dir_fd, name.text, 0);
			vb_slot_release(p->reg_fd, VB_REGISTRY_LOCK_BYTE);
		}
		pthread_mutex_unlock(&p->lock);
	}
	close(fd);
}
