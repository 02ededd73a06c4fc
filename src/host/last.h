/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * last.h - the program ends when its own last thread does, although ours are left (last.c).
 */
#ifndef VB_HOST_LAST_H
#define VB_HOST_LAST_H

#include "base/macros.h"

/* vb_host_thread_begins, vb_host_thread_ends - by each thread of ours, at the beginning and at the
 * end of what it runs. */
VB_SHARED void vb_host_thread_begins(void);
VB_SHARED void vb_host_thread_ends(void);

/* vb_last_note_thread - by the thread that opens a device. */
void vb_last_note_thread(void);

#endif
