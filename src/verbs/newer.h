/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * newer.h - between the files that make public calls of releases newer than the header that this is
 * built with. The header may have them, and their structs: so both have other names here, and the
 * calls their own where programs look for them.
 */
#ifndef VB_VERBS_NEWER_H
#define VB_VERBS_NEWER_H

#include "verbs/face.h"

#define VB_NEWER(name) __asm__(name) __attribute__((visibility("default")))

/* struct ibv_dmah: dmah.c */
struct vb_face_dmah {
	struct ibv_context *context; /* all that programs see */
	struct vb_face_object object;
	atomic_uint users; /* regions registered with it */
};

#endif
