/* SPDX-License-Identifier: BSD-2-Clause */
/* path.h - what hooks ask about a path, see path.c. directory is as for openat(2). */
#ifndef VB_REDIRECT_PATH_H
#define VB_REDIRECT_PATH_H

#include <limits.h>
#include <stdbool.h>

#include "redirect/redirect.h"

/* Whose paths lead elsewhere; NULL before vb_redirect_start. */
extern const struct vb_redirect_ops *vb_redirect_owner;

/* vb_path_is_candidate - whether it is worth asking where the path leads. Any pointer may be given.
 */
bool vb_path_is_candidate(int directory, const char *path);
/* vb_path_is_candidate_still - the same behind the system's own answer, with errno where it failed.
 */
bool vb_path_is_candidate_still(bool failed, int directory, const char *path);
/* vb_path_is_descriptor_ours - it is one of the owner's directories or files. */
bool vb_path_is_descriptor_ours(int directory);

/* vb_path_make_whole - the path from "/", in the program's words. False: nobody can say. */
bool vb_path_make_whole(int directory, const char *path, char out[PATH_MAX]);

/* Where a call goes. Not ours: it is the system's, the program's own path mostly; but ".." may have
 * led out of what is ours. */
struct vb_way {
	const char *to;
	bool ours;
};
struct vb_way vb_path_find_way(int directory, const char *path, char buffer[PATH_MAX]);

#endif
