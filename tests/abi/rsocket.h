/* SPDX-License-Identifier: BSD-2-Clause */
/* rsocket.h - what the tests of rsockets in this process have in common. */
#ifndef VB_TESTS_RSOCKET_H
#define VB_TESTS_RSOCKET_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>

#include <rdma/rsocket.h>

#define ADDRESS "127.0.44.4"

enum { PATIENCE_MS = 20000 };

static inline struct sockaddr_in address(uint16_t port)
{
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = port};

	inet_pton(AF_INET, ADDRESS, &name.sin_addr);
	return name;
}

static inline short await(int fd, short events)
{
	struct pollfd entry = {fd, events, 0};

	assert_int_equal(rpoll(&entry, 1, PATIENCE_MS), 1);
	return entry.revents;
}

static inline bool is_ready(int fd, short events)
{
	struct pollfd entry = {fd, events, 0};

	return rpoll(&entry, 1, 0) == 1;
}

static inline void set_nonblocking(int fd)
{
	assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rfcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
}

#endif
