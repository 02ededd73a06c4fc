/* SPDX-License-Identifier: BSD-2-Clause */
/* walk.h - the way that a path takes, see walk.c. */
#ifndef VB_REDIRECT_WALK_H
#define VB_REDIRECT_WALK_H

#include "redirect/redirect.h"

/* vb_walk - an absolute path, shorter than PATH_MAX, in its simplest words; *met says whether
 * ".." was gone up on a way that touched the owner's paths, so that the system would go another.
 * False: it does not fit, and the path is as good as any. errno may change. */
bool vb_walk(const struct vb_redirect_ops *ops, const char *path, char out[PATH_MAX], bool *met);

#endif
