/* SPDX-License-Identifier: BSD-2-Clause */
/* memory.h - does a range of this process's memory exist, with the rights? */
#ifndef VB_HOST_MEMORY_H
#define VB_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* vb_memory_check - 0 when every page of addr[0..length) is mapped, readable, and writable if write
 * is set. -EFAULT when not, -EINVAL when the range wraps, or what opening /proc/self/maps says.
 * Pages are not touched, brought in or locked. */
int vb_memory_check(const void *addr, uint64_t length, bool write);

/* vb_memory_bring_in - 0 when every page of addr[0..length) is there to be read, and written if
 * write is set: those that were not are brought in. -EFAULT when there is no such mapping, or what
 * it maps has ended (a file that was cut). */
int vb_memory_bring_in(const void *addr, uint64_t length, bool write);

/* The two ways it is done; -ENOTTY: the kernel does not know this one. For tests. */
int vb_memory_check_by_query(int maps, uint64_t start, uint64_t end, bool write);
int vb_memory_check_by_text(int maps, uint64_t start, uint64_t end, bool write);

#endif
