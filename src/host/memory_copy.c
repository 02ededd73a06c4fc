/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory_copy.c - copies to and from memory that the program may take away at any instant: of
 * regions on demand, and of files that may be cut.
 *
 * A processor that touches such memory at the wrong moment ends the process, and a library may not
 * take its signals. The kernel that copies for us says EFAULT instead. process_vm_readv(2) on
 * oneself does:
 *
 *      program's memory   the local side: touched as any system call's buffer, so that everything
 *                         that can be mapped will do
 *      ours               the remote side: its pages are held meanwhile
 *
 * Where that is forbidden (a sandbox) a pipe is filled from one side and emptied into the other.
 *
 * No system call does arithmetic on 64 bits of memory. So an atomic is done by a child that shares
 * our memory and nothing else, for as long as that takes: as with vfork(2) we wait for it. It
 * handles SIGSEGV and SIGBUS for itself, by ending without having said that it was done. It is no
 * child to the program: no signal tells of it, and a plain wait(2) does not see it. Where no
 * process may be made, two copies do it: atomic to other RDMA atomics, and not to the processor's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/demand.h"
#include "core/transport.h"
#include "host/memory.h"

#define PIPE_PIECE 4096u	/* a pipe holds that much, however little it may */
#define CHILD_STACK (64u << 10) /* a frame of a signal takes up to 12 KiB of it */

/* --- copies ------------------------------------------------------------------------------ */

int vb_memory_copy_by_vm(bool write, void *program, void *ours, uint32_t length)
{
	/* Programs poll on the last bytes, which are a piece behind the rest. */
	const uint32_t head = write ? vb_place_head(program, length) : length;
	const struct iovec remote = {ours, length};
	const struct iovec local[2] = {{program, head}, {(uint8_t *)program + head, length - head}};
	const pid_t self = gettid(); /* the first thread may have ended, and has no memory then */
	const ssize_t n = write ? process_vm_readv(self, local, 2, &remote, 1, 0)
				: process_vm_writev(self, local, 2, &remote, 1, 0);

	if (n < 0)
		return -errno;
	return n == (ssize_t)length ? 0 : -EFAULT;
}

/* through - all of length bytes, which is no more than the pipe takes at once. */
static int through(const int ends[2], void *to, const void *from, size_t length)
{
	ssize_t n = write(ends[1], from, length);

	if (n == (ssize_t)length)
		n = read(ends[0], to, length);
	if (n == (ssize_t)length)
		return 0;
	return n < 0 ? -errno : -EFAULT;
}

int vb_memory_copy_by_pipe(bool write, void *program, void *ours, uint32_t length)
{
	uint8_t *to = write ? program : ours;
	const uint8_t *from = write ? ours : program;
	int ends[2], rc = 0;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	for (uint32_t done = 0; done < length && rc == 0; done += PIPE_PIECE)
		rc = through(ends, to + done, from + done, VB_MIN(length - done, PIPE_PIECE));
	close(ends[0]);
	close(ends[1]);
	return rc;
}

static int copy(bool write, void *program, void *ours, uint32_t length)
{
	static _Atomic bool forbidden;
	int rc = forbidden ? -ENOSYS : vb_memory_copy_by_vm(write, program, ours, length);

	if (rc != -ENOSYS && rc != -EPERM)
		return rc;
	forbidden = true;
	return vb_memory_copy_by_pipe(write, program, ours, length);
}

int vb_memory_read(void *to, const void *from, uint32_t length)
{
	return copy(false, (void *)(uintptr_t)from, to, length);
}

int vb_memory_write(void *to, const void *from, uint32_t length)
{
	return copy(true, to, (void *)(uintptr_t)from, length);
}

/* --- atomics ----------------------------------------------------------------------------- */

struct errand {
	uint64_t *word;
	const struct vb_atomic *op;
	uint64_t before;
	bool done;
};

static void give_up(int signal)
{
	(void)signal;
	_exit(1);
}

/* run_errand - in the child, with every signal blocked. What it sets is its own, but memory. */
static int run_errand(void *argument)
{
	struct errand *errand = argument;
	const struct sigaction handler = {.sa_handler = give_up};
	sigset_t faults;

	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	sigaddset(&faults, SIGBUS);
	if (sigaction(SIGSEGV, &handler, NULL) || sigaction(SIGBUS, &handler, NULL) ||
	    sigprocmask(SIG_UNBLOCK, &faults, NULL))
		return 1;
	errand->before = vb_atomic_do(errand->word, errand->op);
	__atomic_store_n(&errand->done, true, __ATOMIC_RELEASE);
	return 0;
}

/* Several engines of the process may have the memory registered. */
static pthread_mutex_t by_copies_lock = PTHREAD_MUTEX_INITIALIZER;

int vb_memory_atomic_by_copies(uint64_t *word, const struct vb_atomic *op, uint64_t *before)
{
	uint64_t value;
	int rc;

	pthread_mutex_lock(&by_copies_lock);
	rc = vb_memory_read(before, word, sizeof(*before));
	if (rc == 0) {
		value = *before;
		(void)vb_atomic_do(&value, op);
		rc = vb_memory_write(word, &value, sizeof(value));
	}
	pthread_mutex_unlock(&by_copies_lock);
	return rc;
}

int vb_memory_atomic(uint64_t *word, const struct vb_atomic *op, uint64_t *before)
{
	struct errand errand = {.word = word, .op = op};
	uint8_t *stack = malloc(CHILD_STACK);
	sigset_t all, old;
	pid_t child;

	if (!stack)
		return -ENOMEM;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	child = clone(run_errand, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK, &errand);
	while (child > 0 && waitpid(child, NULL, __WCLONE) < 0 && errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	free(stack);
	if (child < 0)
		return vb_memory_atomic_by_copies(word, op, before);
	if (!__atomic_load_n(&errand.done, __ATOMIC_ACQUIRE))
		return -EFAULT;
	*before = errand.before;
	return 0;
}
