/* SPDX-License-Identifier: BSD-2-Clause */
/* registry_helper.h - a registry of the test's own, and real processes that join it. */
#ifndef VB_TESTS_REGISTRY_HELPER_H
#define VB_TESTS_REGISTRY_HELPER_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "registry/files.h"
#include "registry/registry.h"

/* An address that no other test program of this machine uses now: 127.200+n.<pid>. */
static inline struct in6_addr test_address(unsigned int n)
{
	struct in6_addr a = {0};
	static pid_t pid;

	if (!pid)
		pid = getpid(); /* children of the test share the test's */
	a.s6_addr[10] = a.s6_addr[11] = 0xff;
	a.s6_addr[12] = 127;
	a.s6_addr[13] = (uint8_t)(200 + n);
	a.s6_addr[14] = (uint8_t)(pid >> 8);
	a.s6_addr[15] = (uint8_t)pid;
	return a;
}

/* The registry's directory of an address. */
static inline void test_directory(const struct in6_addr *a, char *out, size_t size)
{
	struct stat st;

	assert_return_code(stat("/proc/self/ns/net", &st), errno);
	snprintf(out, size, "/dev/shm/verbena-%u/%llu-%u.%u.%u.%u", (unsigned int)geteuid(),
		 (unsigned long long)st.st_ino, a->s6_addr[12], a->s6_addr[13], a->s6_addr[14],
		 a->s6_addr[15]);
}

static inline bool test_exists(const struct in6_addr *a, const char *name)
{
	char path[200], dir[128];
	struct stat st;

	test_directory(a, dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return lstat(path, &st) == 0;
}

/* A child process with a byte stream each way. */
struct test_child {
	pid_t pid;
	int fd; /* socket to it */
};

typedef void (*test_child_fn)(int fd, void *arg);

static inline struct test_child test_fork(test_child_fn run, void *arg)
{
	struct test_child child;
	int pair[2];

	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), errno);
	fflush(NULL);
	child.pid = fork();
	assert_true(child.pid >= 0);
	if (child.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that failed leaves nobody behind */
		close(pair[0]);
		run(pair[1], arg);
		_exit(0);
	}
	close(pair[1]);
	child.fd = pair[0];
	return child;
}

static inline void test_send(int fd, const void *data, size_t size)
{
	if (send(fd, data, size, MSG_NOSIGNAL) != (ssize_t)size)
		_exit(90);
}

/* Waits at most 20 s; false: the other end is gone. */
static inline bool test_receive(int fd, void *data, size_t size)
{
	size_t got = 0;

	while (got < size) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		ssize_t n;

		if (poll(&p, 1, 20000) != 1)
			return false;
		n = recv(fd, (char *)data + got, size - got, 0);
		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

static inline void test_kill(struct test_child *child)
{
	assert_return_code(kill(child->pid, SIGKILL), errno);
	assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
	close(child->fd);
}

/* Waits for its end; its exit status. */
static inline int test_join_child(struct test_child *child)
{
	int status;

	close(child->fd);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
