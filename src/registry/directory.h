/* SPDX-License-Identifier: BSD-2-Clause */
/* directory.h - the directory in shared memory that holds all of this user's, see directory.c. */
#ifndef VB_REGISTRY_DIRECTORY_H
#define VB_REGISTRY_DIRECTORY_H

#include "base/macros.h"

#define VB_USER_DIRECTORY_MAX 64

/* vb_user_directory_open - opens it, and makes it where it is missing; path, unless it is NULL, gets
 * its name. The descriptor, -EAGAIN: it vanished while we looked, try again; -EACCES: not ours
 * alone; other -errno. */
int vb_user_directory_open(char path[VB_USER_DIRECTORY_MAX]) VB_MUST_USE;
/* vb_user_directory_remove - if empty. */
void vb_user_directory_remove(void);

#endif
