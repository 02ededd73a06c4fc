/* SPDX-License-Identifier: BSD-2-Clause */
/* foreign.c - see foreign.h. */
#define _GNU_SOURCE
#include "host/foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/demand.h"
#include "core/transport.h"
#include "host/engine.h"
#include "registry/files.h"

void vb_engine_identify(const struct vb_engine *engine, struct vb_process *out)
{
	const struct vb_registry *registry = engine->registry;

	*out = (struct vb_process){
		.pid = (int32_t)getpid(),
		.slot = registry->slot,
		.member = registry->shared->member_key[registry->slot],
		.pid_ns = vb_registry_pid_ns(registry),
	};
}

bool vb_engine_meets(struct vb_engine *engine, const struct vb_process *process)
{
	struct vb_registry *registry = engine->registry;

	if (process->slot == 0 || process->slot >= VB_REGISTRY_SLOTS || process->pid <= 0 ||
	    !process->pid_ns || process->pid_ns != vb_registry_pid_ns(registry))
		return false;
	/* The lock is gone with the process, and with the program that it was before exec. */
	return __atomic_load_n(&registry->shared->member_key[process->slot], __ATOMIC_RELAXED) ==
		       process->member &&
	       vb_registry_pid(registry, (uint16_t)process->slot) == process->pid;
}

static bool is_unchanged(const struct vb_foreign *foreign)
{
	return __atomic_load_n(foreign->now, __ATOMIC_SEQ_CST) == foreign->then;
}

bool vb_foreign_is_there(struct vb_engine *engine, const struct vb_foreign *foreign)
{
	return is_unchanged(foreign) && vb_engine_meets(engine, &foreign->owner);
}

static int set_lock(const struct vb_foreign *foreign, short type)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = foreign->entry, .l_len = 1};

	return fcntl(foreign->fd, F_OFD_SETLK, &lock) < 0 ? -errno : 0;
}

static int copy(const struct vb_foreign *foreign, bool write, uint64_t addr, void *ours,
		uint32_t length)
{
	/* Programs poll on the last bytes, which are a piece behind the rest. */
	uint8_t *there = (uint8_t *)(uintptr_t)addr;
	const uint32_t head = write ? vb_place_head(there, length) : length;
	const struct iovec local = {ours, length};
	const struct iovec remote[2] = {{there, head}, {there + head, length - head}};
	const ssize_t n = write ? process_vm_writev(foreign->owner.pid, &local, 1, remote, 2, 0)
				: process_vm_readv(foreign->owner.pid, &local, 1, remote, 2, 0);

	if (n < 0)
		return -errno;
	return n == (ssize_t)length ? 0 : -EFAULT;
}

int vb_foreign_copy(struct vb_engine *engine, const struct vb_foreign *foreign, bool write,
		    const uint8_t *at, void *ours, uint32_t length)
{
	const uint64_t offset = (uint64_t)(at - foreign->at);
	int rc;

	if (offset > foreign->length || length > foreign->length - offset)
		return -EFAULT;
	rc = set_lock(foreign, F_RDLCK);
	if (rc)
		return rc;
	rc = vb_foreign_is_there(engine, foreign)
		     ? copy(foreign, write, foreign->addr + offset, ours, length)
		     : -EFAULT;
	(void)set_lock(foreign, F_UNLCK);
	return rc;
}

struct vb_foreign *vb_foreign_at(const struct vb_engine *engine, const void *at)
{
	const struct vb_list *link;

	for (link = engine->foreign.next; link != &engine->foreign; link = link->next) {
		struct vb_foreign *f = vb_container_of(link, struct vb_foreign, link);

		if ((const uint8_t *)at >= (uint8_t *)f->reserved &&
		    (const uint8_t *)at < (uint8_t *)f->reserved + f->reserved_bytes)
			return f;
	}
	return NULL;
}

/* What the system says of a look into that process. That nothing is there now means nothing: it may
 * be on demand there, too. */
static int try(const struct vb_foreign *foreign)
{
	uint8_t byte;
	int rc = foreign->length ? copy(foreign, false, foreign->addr, &byte, 1) : 0;

	return rc == -EFAULT ? 0 : rc == -ENOSYS ? -EPERM : rc;
}

int vb_foreign_create(struct vb_engine *engine, const struct vb_foreign *given,
		      struct vb_foreign **out)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct vb_foreign *foreign = malloc(sizeof(*foreign));
	int rc = -ESRCH;

	if (!foreign)
		return -ENOMEM;
	*foreign = *given;
	foreign->reserved_bytes =
		(given->addr % page + VB_MAX(given->length, (uint64_t)1) + page - 1) / page * page;
	if (vb_engine_enter(engine)) {
		if (vb_foreign_is_there(engine, foreign))
			rc = try(foreign);
		vb_engine_leave(engine);
	}
	foreign->reserved = rc ? MAP_FAILED
			       : mmap(NULL, foreign->reserved_bytes, PROT_NONE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (foreign->reserved == MAP_FAILED) {
		free(foreign);
		return rc ? rc : -ENOMEM;
	}
	foreign->at = (uint8_t *)foreign->reserved + given->addr % page;
	vb_list_init(&foreign->link);
	if (vb_engine_enter(engine)) {
		vb_list_append(&engine->foreign, &foreign->link);
		vb_engine_leave(engine);
	}
	*out = foreign;
	return 0;
}

void vb_foreign_destroy(struct vb_engine *engine, struct vb_foreign *foreign)
{
	if (vb_engine_enter(engine)) {
		vb_list_remove(&foreign->link);
		vb_engine_leave(engine);
	}
	munmap(foreign->reserved, foreign->reserved_bytes);
	free(foreign);
}

int vb_engine_reg_foreign_mr(struct vb_engine *engine, struct vb_pd *pd,
			     const struct vb_foreign *foreign, const struct vb_mr *like,
			     struct vb_mr **out)
{
	/* No system call does arithmetic in another's memory. */
	const uint32_t access =
		(like->access & ~(uint32_t)VB_ACCESS_REMOTE_ATOMIC) | VB_ACCESS_ON_DEMAND;
	int rc;

	if (!vb_engine_enter(engine))
		return -EIO;
	*out = vb_mr_create_again(pd, foreign->at, foreign->length, like->iova, access, like->lkey,
				  like->rkey);
	rc = *out ? 0 : -errno;
	vb_engine_leave(engine);
	return rc;
}
