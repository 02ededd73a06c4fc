/* SPDX-License-Identifier: BSD-2-Clause */
/* raw_filter.h - which frames are wanted, as a program for the kernel (classic BPF). */
#ifndef VB_CARRIER_RAW_FILTER_H
#define VB_CARRIER_RAW_FILTER_H

#include <linux/filter.h>

#include "wire/frame.h"

#define VB_RAW_FILTER_MAX 4096u /* instructions that the kernel takes (BPF_MAXINSNS) */

/* vb_raw_filter_make - writes the program to code, which has room for VB_RAW_FILTER_MAX. It passes
 * every frame that is wanted, and few others: where a frame is unusual (short, tagged, IP options),
 * it passes. Returns its length; where the rules are too many, that of one that passes all. */
unsigned int vb_raw_filter_make(const struct vb_raw_wanted *wanted, struct sock_filter *code);

#endif
