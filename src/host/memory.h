/* SPDX-License-Identifier: BSD-2-Clause */
/* memory.h - does a range of this process's memory exist, with the rights? And copies that survive
 * when it does not. */
#ifndef VB_HOST_MEMORY_H
#define VB_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct vb_atomic;

/* vb_memory_check - 0 when every page of addr[0..length) is mapped, readable, and writable if write
 * is set. -EFAULT when not, -EINVAL when the range wraps, or what opening /proc/self/maps says.
 * Pages are not touched, brought in or locked. */
int vb_memory_check(const void *addr, uint64_t length, bool write);

/* vb_memory_bring_in - 0 when every page of addr[0..length) is there to be read, and written if
 * write is set: those that were not are brought in. -EFAULT when there is no such mapping, or what
 * it maps has ended (a file that was cut). */
int vb_memory_bring_in(const void *addr, uint64_t length, bool write);

/* vb_memory_read, vb_memory_write - from and to memory of the program that may be gone, or go
 * meanwhile; the other side is memory of ours. 0; -EFAULT: part of it was not there, or lacks the
 * right, and part may have been copied; or what making a pipe says, where only that is left. */
int vb_memory_read(void *to, const void *from, uint32_t length);
int vb_memory_write(void *to, const void *from, uint32_t length);

/* vb_memory_atomic - op on an aligned word of the same; 0 and the value before. -EFAULT as above;
 * -ENOMEM. Atomic towards every processor, as anywhere; but where no process may be made
 * (RLIMIT_NPROC, a sandbox), towards other RDMA atomics alone. */
int vb_memory_atomic(uint64_t *word, const struct vb_atomic *op, uint64_t *before);

/* The latter way. For tests. */
int vb_memory_atomic_by_copies(uint64_t *word, const struct vb_atomic *op, uint64_t *before);

/* Two ways a copy is made; -ENOSYS, -EPERM: the first is forbidden here. For tests. */
int vb_memory_copy_by_vm(bool write, void *program, void *ours, uint32_t length);
int vb_memory_copy_by_pipe(bool write, void *program, void *ours, uint32_t length);

/* The two ways that a check is done; -ENOTTY: the kernel does not know this one. For tests. */
int vb_memory_check_by_query(int maps, uint64_t start, uint64_t end, bool write);
int vb_memory_check_by_text(int maps, uint64_t start, uint64_t end, bool write);

#endif
