/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * foreign.h - regions whose memory is another process's, of this host and user.
 *
 * Such a region has addresses here at which nothing is, reserved so that no other memory gets them:
 *
 *      here    | PROT_NONE, as long as the region |     the core's address of it
 *                 same place in its page
 *      there   | the region                       |     where process_vm_readv(2) and its kin copy
 *
 * To the core it is one on demand (core/demand.h): it touches nothing, and copies are the engine's.
 * Before each the owner is asked for: it must be the process that it was, alive, and its entry (an
 * even number that each change makes another) the same. Meanwhile a read lock on the entry's file
 * tells the owner to wait, should it want its memory back; a lock, since it ends with us.
 */
#ifndef VB_HOST_FOREIGN_H
#define VB_HOST_FOREIGN_H

#include "base/list.h"
#include "host/host.h"

/* A process with an engine on a host. */
struct vb_process {
	int32_t pid;
	uint32_t slot;
	uint64_t member; /* tells the slot's owners apart */
	uint64_t pid_ns; /* in which pid counts */
};

/* vb_engine_identify - the process that the engine is of. */
void vb_engine_identify(const struct vb_engine *engine, struct vb_process *out);
/* vb_engine_meets - whether that process has an engine on the same host as this one. */
bool vb_engine_meets(struct vb_engine *engine, const struct vb_process *process);

struct vb_foreign {
	struct vb_list link; /* in engine->foreign, inside */
	struct vb_process owner;
	uint64_t addr, length; /* there */
	uint8_t *at;	       /* here */
	void *reserved;
	size_t reserved_bytes;
	int fd; /* the entry's file, an open file description of our own, which outlives this */
	uint32_t entry; /* the byte of it that is locked */
	const uint32_t *now;
	uint32_t then; /* *now when the region was found */
};

/* vb_foreign_create - what is not address here of given (at, reserved) is taken from it. 0 or
 * -errno: -EPERM: the system forbids to reach into that process; -ESRCH: it is gone. Outside. */
int vb_foreign_create(struct vb_engine *engine, const struct vb_foreign *given,
		      struct vb_foreign **out) VB_MUST_USE;
/* vb_foreign_destroy - once no region is over it. Outside. */
void vb_foreign_destroy(struct vb_engine *engine, struct vb_foreign *foreign);

/* vb_engine_reg_foreign_mr - a region over it: as vb_engine_reg_mr. */
int vb_engine_reg_foreign_mr(struct vb_engine *engine, struct vb_pd *pd,
			     const struct vb_foreign *foreign, const struct vb_mr *like,
			     struct vb_mr **out);

/* Inside. vb_foreign_at - whose address that is; NULL: ours. */
struct vb_foreign *vb_foreign_at(const struct vb_engine *engine, const void *at);
/* vb_foreign_is_there - its owner lives, and has left it as it was. */
bool vb_foreign_is_there(struct vb_engine *engine, const struct vb_foreign *foreign);
/* vb_foreign_copy - as vb_memory_read and vb_memory_write. 0 or -errno. */
int vb_foreign_copy(struct vb_engine *engine, const struct vb_foreign *foreign, bool write,
		    const uint8_t *at, void *ours, uint32_t length);

#endif
