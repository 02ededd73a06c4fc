/* SPDX-License-Identifier: BSD-2-Clause */
/* later.h - modules that come later: a program calls dlsym before it calls into one that it loaded.
 */
#ifndef VB_REDIRECT_LATER_H
#define VB_REDIRECT_LATER_H

/* vb_hook_dlsym, vb_hook_dlvsym - in place of the loader's functions, whose types are their own
 * business; x86-64 and AArch64 alone have them. */
void vb_hook_dlsym(void);
void vb_hook_dlvsym(void);

#endif
