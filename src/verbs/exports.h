/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exports.h - what other processes may import of a context's family: the file behind cmd_fd.
 *
 *      unit 0, 1   who it is of: process, device, family
 *      unit 2 ...  one object each, 64 bytes, changed under its sequence number
 *
 * Its owner has it mapped writable; it is sealed, so that nobody else can write or cut it, and
 * whoever holds a descriptor reads. An odd number says that the object is being changed, or taken
 * back.
 *
 * Before the memory of a region is the program's again, nobody may be copying to it. Who copies
 * locks the byte of the file that is the object's unit, then looks at its number; the owner makes
 * the number odd, then looks for locks.
 */
#ifndef VB_VERBS_EXPORTS_H
#define VB_VERBS_EXPORTS_H

#include "host/foreign.h"
#include "verbs/face.h"

enum vb_export_kind {
	VB_EXPORT_NOTHING,
	VB_EXPORT_PD,
	VB_EXPORT_MR,
	VB_EXPORT_NULL_MR,
	VB_EXPORT_DM,
};

struct vb_export {
	uint32_t number;
	uint32_t kind; /* enum vb_export_kind */
	uint32_t handle;
	uint32_t pd;		     /* of a region */
	uint32_t access, lkey, rkey; /* of a region */
	int32_t fd;		     /* of device memory, in its owner */
	uint64_t addr, iova, length;
	uint64_t inode; /* of fd */
};
_Static_assert(sizeof(struct vb_export) == 64, "a unit");

struct vb_export_header {
	char magic[16];
	struct vb_process process;
	uint8_t address[16]; /* of the device */
	uint32_t device;     /* its index, in the owner */
	uint32_t family;
	uint32_t units; /* that have been in use */
};
#define VB_EXPORT_FIRST 2u /* the first unit of an object */
_Static_assert(sizeof(struct vb_export_header) <= VB_EXPORT_FIRST * sizeof(struct vb_export),
	       "room for the header");

struct vb_exports; /* the owner's */

/* A reader's. */
struct vb_imports {
	struct vb_export_header header; /* as it was when it was opened */
	const struct vb_export *units;	/* mapped */
	int fd;				/* an open file description of our own */
	unsigned int users;
	uint32_t family; /* that contexts with it are of here */
};

/* --- exports.c --------------------------------------------------------------------------- */
/* vb_exports_create - the file for a new context's family, which gets it; cmd_fd, or -1. */
int vb_exports_create(struct vb_face_context *context, unsigned int device_index);
/* vb_exports_join - another context of a family of this process. */
void vb_exports_join(struct vb_face_context *context);
/* vb_exports_part - the context is closed. */
void vb_exports_part(struct vb_face_context *context);

/* vb_export_add - the object can be imported from here on: object->unit, 0: no room. */
void vb_export_add(struct vb_face_object *object, const struct vb_export *what);
/* vb_export_take - nobody uses the object any more when it returns 0, and nobody can until it is
 * given back, changed (what) or not (NULL), or dropped. -EBUSY: somebody does not stop. */
int vb_export_take(struct vb_face_object *object);
void vb_export_give(struct vb_face_object *object, const struct vb_export *what);
void vb_export_drop(struct vb_face_object *object);

/* --- import.c ---------------------------------------------------------------------------- */
/* vb_imports_put - NULL is accepted. */
void vb_imports_put(struct vb_imports *imports);

/* --- pd.c, mr.c, dm.c: what another process has -------------------------------------------- */
struct vb_face_pd *vb_face_pd_import(struct ibv_context *context, uint32_t handle);
/* vb_face_mr_import - a region over foreign memory, which is the shell's from then on; NULL: over
 * none (VB_EXPORT_NULL_MR). NULL with errno. */
struct vb_face_mr *vb_face_mr_import(struct ibv_pd *pd, const struct vb_export *like,
				     struct vb_foreign *foreign);
/* vb_face_dm_import - device memory that fd maps, which it takes over. NULL with errno. */
struct vb_face_dm *vb_face_dm_import(struct ibv_context *context, const struct vb_export *like,
				     int fd);

#endif
