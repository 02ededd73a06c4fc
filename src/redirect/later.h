/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * later.h - modules that come later: a program calls dlsym before it calls into one that it loaded;
 * and the end of the program, where it has no exit handlers.
 */
#ifndef VB_REDIRECT_LATER_H
#define VB_REDIRECT_LATER_H

/* vb_hook_dlsym, ... - in place of the functions of that name, whose types are their own business;
 * x86-64 and AArch64 alone have them. */
void vb_hook_dlsym(void);
void vb_hook_dlvsym(void);
void vb_hook__Exit(void);
void vb_hook__exit(void);
void vb_hook_execl(void);
void vb_hook_execle(void);
void vb_hook_execlp(void);
void vb_hook_execv(void);
void vb_hook_execve(void);
void vb_hook_execveat(void);
void vb_hook_execvp(void);
void vb_hook_execvpe(void);
void vb_hook_fexecve(void);
void vb_hook_quick_exit(void);

/* vb_hook_ending - hooks.c, called first by all but the first two. */
__attribute__((visibility("hidden"))) void vb_hook_ending(void);

#endif
