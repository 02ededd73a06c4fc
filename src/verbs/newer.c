/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * newer.c - public calls of releases newer than the header that this is built with (nodes
 * IBVERBS_1.15 to 1.18), for programs that were built with theirs.
 *
 * The header may have them: so they have other names here, and their own where programs look for
 * them. Their structs are described by what the manual pages say. DMA handles are in dmah.c,
 * completion counters in comp_cntr.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs/newer.h"

#define NEWER VB_NEWER

#define SPEED 1000u /* of the four lanes of 25 Gbit/s that the port tells of, in 100 Mbit/s */

/* struct ibv_mr_init_attr, and its mask */
enum {
	WITH_IOVA = 1 << 0,
	WITH_ADDR = 1 << 1,
	WITH_FD = 1 << 2,
	WITH_FD_OFFSET = 1 << 3,
	WITH_DMAH = 1 << 4,
	WITH_BUF = 1 << 5,
};
struct region_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	struct vb_face_dmah *dmah;
	struct buffer *buf; /* only with WITH_BUF: older programs' structs end before */
};

/* struct ibv_buf, which programs do not look into */
struct buffer {
	struct ibv_pd *pd;
	uint8_t *addr;
	size_t size;
};

struct ibv_mr *reg_mr_ex(struct ibv_pd *pd, struct region_attr *attr) NEWER("ibv_reg_mr_ex");
int query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
	NEWER("ibv_query_port_speed");
int dm_export(struct ibv_dm *dm) NEWER("ibv_dm_export_dmabuf_fd");
void *alloc_buf(struct ibv_pd *pd, size_t size, struct buffer **buf) NEWER("ibv_alloc_buf");
void free_buf(struct buffer *buf) NEWER("ibv_free_buf");
struct ibv_mr *reg_buf_mr(struct ibv_pd *pd, struct buffer *buf, void *addr, size_t length,
			  int access) NEWER("ibv_reg_buf_mr");
int export_buf(struct buffer *buf) NEWER("ibv_export_buf_dmabuf_fd");

/* --- 1.15: every kind of region, with a DMA handle (dmah.c) ------------------------------- */

/* The range of a buffer of ours. 0 or the errno. */
static int check_buffer(const struct ibv_pd *pd, const struct region_attr *attr)
{
	const struct buffer *buf = attr->buf;
	const uintptr_t base = (uintptr_t)buf->addr, addr = (uintptr_t)attr->addr;

	if (pd != buf->pd || !(attr->comp_mask & WITH_ADDR) || addr < base ||
	    addr - base > buf->size || attr->length > buf->size - (addr - base))
		return EINVAL;
	return 0;
}

/* 0 or the errno. A handle is one of its own context's; of pages that come and go no adapter has
 * any. */
static int check_handle(const struct ibv_pd *pd, const struct region_attr *attr)
{
	if (!attr->dmah)
		return EINVAL;
	if (vb_face_context(attr->dmah->context)->family != vb_face_context(pd->context)->family)
		return ENOENT;
	return attr->access & IBV_ACCESS_ON_DEMAND && !(attr->comp_mask & WITH_FD) ? EOPNOTSUPP : 0;
}

/* What the parts of attr say of each other. 0 or the errno. */
static int check_region(const struct ibv_pd *pd, const struct region_attr *attr)
{
	const uint64_t mask = attr->comp_mask;
	const uint64_t of_fd = WITH_FD | WITH_FD_OFFSET | WITH_IOVA;
	int error = 0;

	if (mask & ~(uint64_t)(of_fd | WITH_ADDR | WITH_DMAH | WITH_BUF))
		return EOPNOTSUPP;
	if (mask & WITH_BUF)
		error = check_buffer(pd, attr);
	if (error == 0 && mask & WITH_FD) {
		if (mask & (WITH_ADDR | WITH_BUF) || (mask & of_fd) != of_fd)
			error = EINVAL;
	} else if (error == 0 && (mask & WITH_FD_OFFSET || !(mask & WITH_ADDR))) {
		error = EINVAL;
	}
	if (error == 0 && mask & WITH_DMAH)
		error = check_handle(pd, attr);
	return error;
}

struct ibv_mr *reg_mr_ex(struct ibv_pd *pd, struct region_attr *attr)
{
	const uint64_t mask = attr->comp_mask;
	struct ibv_mr *mr;

	errno = check_region(pd, attr);
	if (errno)
		return NULL;
	if (mask & WITH_FD)
		mr = ibv_reg_dmabuf_mr(pd, attr->fd_offset, attr->length, attr->iova, attr->fd,
				       attr->access);
	else
		mr = ibv_reg_mr_iova2(pd, attr->addr, attr->length,
				      mask & WITH_IOVA ? attr->iova : (uintptr_t)attr->addr,
				      (unsigned int)attr->access);
	if (mr && mask & WITH_DMAH) {
		vb_face_mr(mr)->dmah = attr->dmah;
		atomic_fetch_add(&attr->dmah->users, 1);
	}
	return mr;
}

/* --- 1.16: a port's speed, device memory as a descriptor --------------------------------- */

int query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	struct ibv_port_attr attr;

	if (port != VB_PORT || vb_face_query_port(context, VB_PORT, &attr, sizeof(attr)) != 0)
		return EINVAL;
	*speed = SPEED;
	return 0;
}

int dm_export(struct ibv_dm *dm)
{
	return vb_face_dm_export(dm);
}

/* --- 1.17, 1.18: buffers ----------------------------------------------------------------- */

/* Pages of their own, whatever is asked for. */
void *alloc_buf(struct ibv_pd *pd, size_t size, struct buffer **out)
{
	struct buffer *buf;
	void *memory;

	if (!size) {
		errno = EINVAL;
		return NULL;
	}
	buf = calloc(1, sizeof(*buf));
	memory = buf ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
		     : MAP_FAILED;
	if (memory == MAP_FAILED) {
		free(buf);
		errno = ENOMEM;
		return NULL;
	}
	*buf = (struct buffer){.pd = pd, .addr = memory, .size = size};
	*out = buf;
	return memory;
}

void free_buf(struct buffer *buf)
{
	if (!buf)
		return;
	munmap(buf->addr, buf->size);
	free(buf);
}

struct ibv_mr *reg_buf_mr(struct ibv_pd *pd, struct buffer *buf, void *addr, size_t length,
			  int access)
{
	struct region_attr attr = {
		.length = length,
		.access = access,
		.comp_mask = WITH_BUF | WITH_ADDR,
		.addr = addr,
		.buf = buf,
	};

	return reg_mr_ex(pd, &attr);
}

int export_buf(struct buffer *buf)
{
	errno = ENODATA; /* it is ordinary memory */
	return -1;
}
