/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * child.h - a program that we start, listen to, and end; every wait has a bound.
 *
 * Only processes started here are ever signalled, by their descriptor, so that a number which the
 * kernel gave to somebody else meanwhile cannot be hit. A child dies with us.
 */
#ifndef VB_TOOLS_CHILD_H
#define VB_TOOLS_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vb_child {
	pid_t pid; /* 0: none */
	int pidfd;
	int output; /* a memory file with its standard output and error */
	bool ended;
	int status; /* as of waitpid(2), once ended */
};

/* vb_child_start - runs argv on the virtual host addr. 0 or -errno. */
int vb_child_start(struct vb_child *child, char *const *argv, const char *addr);

/* vb_child_wait - until it ends or the time (vb_tools_now()) is deadline_ns. False: it still runs.
 */
bool vb_child_wait(struct vb_child *child, uint64_t deadline_ns);

/* vb_child_wait_listening - until a TCP socket of this network listens on port. False: the child
 * ended, or the deadline passed. */
bool vb_child_wait_listening(struct vb_child *child, uint16_t port, uint64_t deadline_ns);

/* vb_child_succeeded - it ended by itself with status 0. */
bool vb_child_succeeded(const struct vb_child *child);

/* vb_child_output - all that it has printed, NUL at the end; the caller frees it. NULL: no memory.
 */
char *vb_child_output(const struct vb_child *child);

/* vb_child_end - kills it if it runs, reaps it, closes its descriptors. */
void vb_child_end(struct vb_child *child);

/* vb_free_tcp_port - a TCP port that nothing uses now, 0 when there is none. */
uint16_t vb_free_tcp_port(void);

/* vb_tools_now - nanoseconds of the monotonic clock. */
uint64_t vb_tools_now(void);

#define VB_NS_PER_MS 1000000ull
#define VB_NS_PER_S 1000000000ull

#endif
