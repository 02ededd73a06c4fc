/* SPDX-License-Identifier: BSD-2-Clause */
/* rsocket_datagram.c - datagram rsockets as programs call them, both ends in this process. */
#include <stdlib.h>

#include "rsocket.h"

enum { DATAGRAM_MAX = 1024 - 8 }; /* path MTU 1024 at the least, less our header */

static int datagram_at(struct sockaddr_in *name)
{
	socklen_t size = sizeof(*name);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);

	assert_true(fd >= 0);
	*name = address(0);
	assert_int_equal(rbind(fd, (struct sockaddr *)name, sizeof(*name)), 0);
	assert_int_equal(rgetsockname(fd, (struct sockaddr *)name, &size), 0);
	set_nonblocking(fd);
	return fd;
}

static void send_datagram(int fd, const void *bytes, size_t size, const struct sockaddr_in *to)
{
	assert_int_equal(rsendto(fd, bytes, size, 0, (const struct sockaddr *)to, sizeof(*to)),
			 size);
}

/* Receives one whose first byte is `tag`; what is older may still come by the slower way. */
static size_t receive_datagram(int fd, uint8_t tag, struct sockaddr_in *from)
{
	uint8_t bytes[DATAGRAM_MAX];
	socklen_t size = sizeof(*from);
	ssize_t n;

	for (int i = 0; i < 1000; i++) {
		await(fd, POLLIN);
		n = rrecvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)from, &size);
		assert_true(n >= 1);
		if (bytes[0] == tag)
			return (size_t)n;
	}
	fail();
	return 0;
}

static void datagrams_find_their_way(void **state)
{
	struct sockaddr_in name[2], from;
	int fds[2] = {datagram_at(&name[0]), datagram_at(&name[1])};
	uint8_t bytes[4096] = {0};

	/* by UDP at first, then by the queue pairs: both ways, all sizes */
	for (int i = 0; i < 100; i++) {
		int one = i % 2;
		size_t size = i < 50 ? 1u + (size_t)i : DATAGRAM_MAX;

		bytes[0] = (uint8_t)i;
		send_datagram(fds[one], bytes, size, &name[!one]);
		assert_int_equal(receive_datagram(fds[!one], (uint8_t)i, &from), size);
		assert_int_equal(from.sin_port, name[one].sin_port);
		assert_int_equal(from.sin_addr.s_addr, name[one].sin_addr.s_addr);
	}
	assert_int_equal(rsendto(fds[0], bytes, sizeof(bytes), 0, (struct sockaddr *)&name[1],
				 sizeof(name[1])),
			 -1);
	assert_int_equal(errno, EMSGSIZE);
	assert_int_equal(rsend(fds[0], bytes, 1, 0), -1);
	assert_int_equal(errno, EDESTADDRREQ);
	assert_int_equal(rrecv(fds[0], bytes, 1, 0), -1);
	assert_int_equal(errno, EAGAIN);
	/* cut to the room there is, and told */
	bytes[0] = 200;
	send_datagram(fds[0], bytes, 100, &name[1]);
	await(fds[1], POLLIN);
	{
		struct iovec iov = {bytes, 10};
		struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

		assert_int_equal(rrecv(fds[1], bytes, 10, MSG_PEEK | MSG_TRUNC), 100);
		assert_int_equal(rrecvmsg(fds[1], &msg, 0), 10);
		assert_int_equal(msg.msg_flags, MSG_TRUNC);
	}
	assert_int_equal(rclose(fds[0]), 0);
	assert_int_equal(rclose(fds[1]), 0);
}

static void connected_datagrams(void **state)
{
	struct sockaddr_in name[3], peer;
	int fds[3] = {datagram_at(&name[0]), datagram_at(&name[1]), datagram_at(&name[2])};
	socklen_t size = sizeof(peer);
	uint8_t byte = 1;

	assert_int_equal(rgetpeername(fds[0], (struct sockaddr *)&peer, &size), -1);
	assert_int_equal(errno, ENOTCONN);
	assert_int_equal(rconnect(fds[0], (struct sockaddr *)&name[1], sizeof(name[1])), 0);
	assert_int_equal(rgetpeername(fds[0], (struct sockaddr *)&peer, &size), 0);
	assert_int_equal(peer.sin_port, name[1].sin_port);
	assert_int_equal(rsend(fds[0], &byte, 1, 0), 1);
	assert_int_equal(receive_datagram(fds[1], 1, &peer), 1);
	/* of a stranger nothing is heard, of the peer it is */
	byte = 66;
	for (int i = 0; i < 3; i++)
		send_datagram(fds[2], &byte, 1, &name[0]);
	byte = 2;
	send_datagram(fds[1], &byte, 1, &name[0]);
	await(fds[0], POLLIN);
	assert_int_equal(rrecv(fds[0], &byte, 1, 0), 1);
	assert_int_equal(byte, 2);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rclose(fds[i]), 0);
}

/* What was sent before rclose() arrives, as it does by UDP: none is left in the queue. */
static void closing_sends_the_rest(void **state)
{
	struct sockaddr_in name[2], from;
	int fds[2] = {datagram_at(&name[0]), datagram_at(&name[1])};
	uint8_t bytes[DATAGRAM_MAX] = {0};
	int i;

	for (i = 0; i < 2; i++) { /* both know each other from here on */
		bytes[0] = (uint8_t)(100 + i);
		send_datagram(fds[i], bytes, 1, &name[!i]);
		receive_datagram(fds[!i], bytes[0], &from);
	}
	for (i = 1; i <= 10; i++) {
		bytes[0] = (uint8_t)i;
		send_datagram(fds[0], bytes, sizeof(bytes), &name[1]);
	}
	assert_int_equal(rclose(fds[0]), 0);
	for (i = 1; i <= 10; i++)
		assert_int_equal(receive_datagram(fds[1], (uint8_t)i, &from), sizeof(bytes));
	assert_int_equal(rclose(fds[1]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(datagrams_find_their_way),
		cmocka_unit_test(connected_datagrams),
		cmocka_unit_test(closing_sends_the_rest),
	};

	setenv("VERBENA_ADDR", ADDRESS, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
