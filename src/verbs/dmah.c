/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dmah.c - DMA handles (ibv_alloc_dmah(3), node IBVERBS_1.15).
 *
 * A handle tells an adapter how to mark what it sends over the bus for a region (TLP processing
 * hints, PCIe 6.2.17): which processor will look at the data, in which kind of memory, and how. No
 * bus lies between us and the memory, and the copies are made by the processor that asks: so the
 * hints are checked, as the kernel and its one driver that has handles check them, and have no
 * effect. What is left is the object's life: a region keeps its handle.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "verbs/newer.h"

#define MOST_CPUS 8192 /* that a kernel can be built for */
#define MOST_PH 3      /* two bits of the packet */

/* struct ibv_dmah_init_attr, and its mask */
enum {
	WITH_CPU = 1 << 0,
	WITH_PH = 1 << 1,
	WITH_MEMORY = 1 << 2,
};
enum { MEMORY_VOLATILE, MEMORY_PERSISTENT, MEMORY_KINDS };
struct dmah_attr {
	uint32_t comp_mask;
	uint32_t cpu;
	uint8_t ph;
	uint8_t memory;
};

struct vb_face_dmah *alloc_handle(struct ibv_context *context, struct dmah_attr *attr)
	VB_NEWER("ibv_alloc_dmah");
int dealloc_handle(struct vb_face_dmah *dmah) VB_NEWER("ibv_dealloc_dmah");

/* Whether the calling thread may run there. */
static bool is_allowed(uint32_t cpu)
{
	cpu_set_t allowed[MOST_CPUS / CPU_SETSIZE];

	CPU_ZERO_S(sizeof(allowed), allowed);
	return cpu < MOST_CPUS && sched_getaffinity(0, sizeof(allowed), allowed) == 0 &&
	       CPU_ISSET_S(cpu, sizeof(allowed), allowed);
}

/* 0 or the errno. A steering tag is of a processor and a kind of memory: of both or of none. */
static int check(const struct dmah_attr *attr)
{
	const uint32_t of_tag = WITH_CPU | WITH_MEMORY;

	if (attr->comp_mask & ~(of_tag | WITH_PH))
		return EOPNOTSUPP;
	if (!(attr->comp_mask & WITH_PH))
		return EINVAL;
	if (attr->comp_mask & of_tag) {
		if ((attr->comp_mask & of_tag) != of_tag)
			return EINVAL;
		if (attr->memory >= MEMORY_KINDS)
			return EOPNOTSUPP;
		if (!is_allowed(attr->cpu))
			return EPERM;
	}
	return attr->ph > MOST_PH ? EINVAL : 0;
}

struct vb_face_dmah *alloc_handle(struct ibv_context *context, struct dmah_attr *attr)
{
	struct vb_face_dmah *dmah;

	errno = vb_face_context(context)->engine ? check(attr) : EIO;
	if (errno)
		return NULL;
	dmah = calloc(1, sizeof(*dmah));
	if (!dmah) {
		errno = ENOMEM;
		return NULL;
	}
	dmah->context = context;
	vb_face_add(context, &dmah->object, VB_FACE_DMAH);
	return dmah;
}

int dealloc_handle(struct vb_face_dmah *dmah)
{
	if (atomic_load(&dmah->users))
		return EBUSY;
	vb_face_remove(&dmah->object);
	free(dmah);
	return 0;
}
