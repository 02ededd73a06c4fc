/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket.c - rsockets as programs call them: both ends in this process, on one virtual host.
 *
 * Nothing here waits for time: a call that cannot end at once is polled for, up to PATIENCE_MS.
 */

#include <dirent.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsocket.h"

enum {
	BUFFER = 1 << 20, /* both directions' default, of which a peer is granted halves */
	MANY = 3 * BUFFER + 12345,
};

struct pair {
	int listener, client, server;
	struct sockaddr_in name; /* the listener's */
};

static int listen_at(struct sockaddr_in *name)
{
	socklen_t size = sizeof(*name);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	*name = address(0);
	assert_int_equal(rbind(fd, (struct sockaddr *)name, sizeof(*name)), 0);
	assert_int_equal(rlisten(fd, 8), 0);
	assert_int_equal(rgetsockname(fd, (struct sockaddr *)name, &size), 0);
	assert_int_equal(size, sizeof(*name));
	assert_int_not_equal(name->sin_port, 0);
	set_nonblocking(fd);
	return fd;
}

static int start_connecting(const struct sockaddr_in *name)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, IPPROTO_TCP);

	assert_true(fd >= 0);
	set_nonblocking(fd);
	assert_int_equal(rconnect(fd, (const struct sockaddr *)name, sizeof(*name)), -1);
	assert_int_equal(errno, EINPROGRESS);
	return fd;
}

static void connect_with(struct pair *p, int client)
{
	int error = -1;
	socklen_t size = sizeof(error);

	p->client = client;
	assert_int_equal(await(p->listener, POLLIN), POLLIN);
	p->server = raccept(p->listener, NULL, NULL);
	assert_true(p->server >= 0);
	assert_int_equal(await(p->client, POLLOUT), POLLOUT);
	assert_int_equal(rgetsockopt(p->client, SOL_SOCKET, SO_ERROR, &error, &size), 0);
	assert_int_equal(error, 0);
	assert_int_equal(await(p->server, POLLOUT), POLLOUT);
	set_nonblocking(p->server);
}

static int make_pair(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	p->listener = listen_at(&p->name);
	connect_with(p, start_connecting(&p->name));
	*state = p;
	return 0;
}

static int drop_pair(void **state)
{
	struct pair *p = *state;

	if (p->client >= 0)
		assert_int_equal(rclose(p->client), 0);
	if (p->server >= 0)
		assert_int_equal(rclose(p->server), 0);
	assert_int_equal(rclose(p->listener), 0);
	free(p);
	return 0;
}

static void fill(uint8_t *bytes, size_t size, unsigned int seed)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)((i * 2654435761u >> 13) + seed);
}

static void send_text(int fd, const char *text)
{
	assert_int_equal(rsend(fd, text, strlen(text), 0), strlen(text));
}

static void expect_text(int fd, const char *text)
{
	char buffer[256];

	await(fd, POLLIN);
	assert_int_equal(rrecv(fd, buffer, sizeof(buffer), 0), strlen(text));
	assert_memory_equal(buffer, text, strlen(text));
}

/* --- sockets ----------------------------------------------------------------------------- */

static void descriptors_are_real(void **state)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), other = rsocket(AF_INET6, SOCK_STREAM, 0);
	char byte;

	assert_true(fd >= 0 && other >= 0 && fd != other);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	assert_int_equal(rfcntl(fd, F_SETFD, FD_CLOEXEC), 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_int_equal(rclose(fd), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(rsend(fd, "", 1, 0), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(rrecv(-1, &byte, 1, 0), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(rsend(other, "", 1, 0), -1);
	assert_int_equal(errno, ENOTCONN);
	assert_int_equal(raccept(other, NULL, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rclose(other), 0);
	assert_int_equal(rsocket(AF_UNIX, SOCK_STREAM, 0), -1);
	assert_int_equal(errno, ENOTSUP);
	assert_int_equal(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), -1);
	assert_int_equal(errno, ENOTSUP);
}

static void ports_are_taken_once(void **state)
{
	struct sockaddr_in name;
	int first = listen_at(&name), second = rsocket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(rbind(second, (struct sockaddr *)&name, sizeof(name)), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(rbind(second, (struct sockaddr *)&name, 3), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rclose(first), 0);
	assert_int_equal(rbind(second, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(rclose(second), 0);
}

static void nobody_listens(void **state)
{
	struct sockaddr_in name;
	int fd = listen_at(&name), error = 0;
	socklen_t size = sizeof(error);

	assert_int_equal(rclose(fd), 0);
	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(rconnect(fd, (struct sockaddr *)&name, sizeof(name)), -1);
	assert_int_equal(errno, ECONNREFUSED);
	assert_int_equal(rclose(fd), 0);

	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	set_nonblocking(fd);
	assert_int_equal(rconnect(fd, (struct sockaddr *)&name, sizeof(name)), -1);
	if (errno == EINPROGRESS) { /* the answer may be here before the call returns */
		assert_int_equal(await(fd, POLLOUT), POLLOUT | POLLERR | POLLHUP);
		assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
		errno = error;
	}
	assert_int_equal(errno, ECONNREFUSED);
	assert_int_equal(await(fd, POLLOUT), POLLOUT | POLLERR | POLLHUP);
	assert_int_equal(rgetpeername(fd, (struct sockaddr *)&name, &size), -1);
	assert_int_equal(errno, ENOTCONN);
	assert_int_equal(rclose(fd), 0);
}

static void both_ends_have_names(void **state)
{
	struct pair *p = *state;
	struct sockaddr_in client, server;
	socklen_t size = sizeof(client);

	assert_int_equal(rgetsockname(p->client, (struct sockaddr *)&client, &size), 0);
	assert_int_equal(rgetpeername(p->server, (struct sockaddr *)&server, &size), 0);
	assert_int_equal(client.sin_port, server.sin_port);
	assert_int_equal(client.sin_addr.s_addr, server.sin_addr.s_addr);
	assert_int_equal(rgetpeername(p->client, (struct sockaddr *)&server, &size), 0);
	assert_int_equal(server.sin_port, p->name.sin_port);
	assert_int_equal(rconnect(p->client, (struct sockaddr *)&p->name, sizeof(p->name)), -1);
	assert_int_equal(errno, EISCONN);
	assert_int_equal(raccept(p->listener, NULL, NULL), -1);
	assert_int_equal(errno, EAGAIN);
}

/* --- streams ----------------------------------------------------------------------------- */

/* Both ways at once, by one thread, in pieces as they fit. */
static void bytes_arrive_in_order(void **state)
{
	struct pair *p = *state;
	int from[2] = {p->client, p->server}, to[2] = {p->server, p->client};
	uint8_t *sent[2], *got[2];
	size_t out[2] = {0}, in[2] = {0};
	int i;

	for (i = 0; i < 2; i++) {
		sent[i] = malloc(MANY);
		got[i] = calloc(1, MANY);
		fill(sent[i], MANY, (unsigned int)i);
	}
	while (in[0] < MANY || in[1] < MANY) {
		struct pollfd fds[2] = {{p->client, POLLIN, 0}, {p->server, POLLIN, 0}};

		for (i = 0; i < 2; i++) {
			ssize_t n = rsend(from[i], sent[i] + out[i], MANY - out[i], 0);

			assert_true(n >= 0 || errno == EAGAIN);
			out[i] += n > 0 ? (size_t)n : 0;
		}
		assert_true(rpoll(fds, 2, PATIENCE_MS) > 0);
		for (i = 0; i < 2; i++) {
			ssize_t n = rrecv(to[i], got[i] + in[i], 7777, 0);

			assert_true(n >= 0 || errno == EAGAIN);
			in[i] += n > 0 ? (size_t)n : 0;
		}
	}
	for (i = 0; i < 2; i++) {
		assert_int_equal(out[i], MANY);
		assert_memory_equal(sent[i], got[i], MANY);
		free(sent[i]);
		free(got[i]);
	}
}

static void vectors_and_flags(void **state)
{
	struct pair *p = *state;
	char a[4] = "", b[8] = "", c[32] = "";
	struct iovec out[3] = {{(char[]){"one "}, 4}, {NULL, 0}, {(char[]){"two three"}, 9}};
	struct iovec in[2] = {{a, 4}, {b, 3}};
	struct msghdr msg = {.msg_iov = in, .msg_iovlen = 2};

	assert_int_equal(rwritev(p->client, out, 3), 13);
	await(p->server, POLLIN);
	assert_int_equal(rrecv(p->server, c, sizeof(c), MSG_PEEK), 13);
	assert_string_equal(c, "one two three");
	assert_int_equal(rrecvmsg(p->server, &msg, 0), 7);
	assert_memory_equal(a, "one ", 4);
	assert_string_equal(b, "two");
	assert_int_equal(rread(p->server, c, 1), 1);
	assert_int_equal(rrecv(p->server, c, 5, MSG_WAITALL), 5);
	assert_memory_equal(c, "three", 5);
	assert_int_equal(rrecv(p->server, c, 1, 0), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(rsend(p->client, "x", 1, MSG_OOB), -1);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(
		rsendto(p->client, "x", 1, 0, (struct sockaddr *)&p->name, sizeof(p->name)), -1);
	assert_int_equal(errno, EISCONN);
	assert_int_equal(rsend(p->client, "x", 0, 0), 0);
}

static size_t send_until_full(int fd)
{
	static uint8_t bytes[BUFFER];
	size_t total = 0;
	ssize_t n;

	while ((n = rsend(fd, bytes, sizeof(bytes), 0)) > 0)
		total += (size_t)n;
	assert_int_equal(n, -1);
	assert_int_equal(errno, EAGAIN);
	return total;
}

static size_t receive_until_empty(int fd)
{
	static uint8_t bytes[BUFFER];
	size_t total = 0;
	ssize_t n;

	while ((n = rrecv(fd, bytes, sizeof(bytes), 0)) > 0)
		total += (size_t)n;
	assert_int_equal(n, -1);
	assert_int_equal(errno, EAGAIN);
	return total;
}

/* A receiver that does not read stops its sender at the size of its buffer, exactly. */
static void sender_waits_for_room(void **state)
{
	struct pair *p = *state;
	size_t sent = 0, got = 0;

	while (sent < BUFFER) {
		is_ready(p->server, POLLIN); /* announces the second half */
		sent += send_until_full(p->client);
	}
	assert_int_equal(sent, BUFFER);
	is_ready(p->server, POLLIN);
	assert_false(is_ready(p->client, POLLOUT));
	while (got < sent) {
		await(p->server, POLLIN);
		got += receive_until_empty(p->server);
	}
	assert_int_equal(got, BUFFER);
	assert_int_equal(await(p->client, POLLOUT), POLLOUT);
}

/* More messages than the receive queue has places: credits come back in time. */
static void small_messages_get_credits(void **state)
{
	struct pair *p = *state;
	char byte = 0;

	for (int i = 0; i < 2000; i++) {
		char sent = (char)i;

		await(p->client, POLLOUT);
		assert_int_equal(rsend(p->client, &sent, 1, 0), 1);
		for (int k = 0; i % 100 == 99 && k < 100; k++) {
			await(p->server, POLLIN);
			assert_int_equal(rrecv(p->server, &byte, 1, 0), 1);
			assert_int_equal(byte, (char)(i - 99 + k));
		}
	}
	assert_int_equal(byte, (char)1999);
}

static void one_way_is_shut(void **state)
{
	struct pair *p = *state;
	char byte;

	send_text(p->client, "last words");
	assert_int_equal(rshutdown(p->client, SHUT_WR), 0);
	assert_int_equal(rsend(p->client, "x", 1, 0), -1);
	assert_int_equal(errno, EPIPE);
	expect_text(p->server, "last words");
	assert_int_equal(await(p->server, POLLIN), POLLIN);
	assert_int_equal(rrecv(p->server, &byte, 1, 0), 0);
	send_text(p->server, "answer");
	expect_text(p->client, "answer");
	assert_int_equal(rshutdown(p->server, SHUT_WR), 0);
	await(p->client, POLLIN);
	assert_int_equal(rrecv(p->client, &byte, 1, 0), 0);
	assert_int_equal(rshutdown(p->client, 7), -1);
	assert_int_equal(errno, EINVAL);
}

static void peer_closes(void **state)
{
	struct pair *p = *state;
	char byte;

	send_text(p->client, "good bye");
	assert_int_equal(rclose(p->client), 0);
	p->client = -1;
	assert_int_equal(await(p->server, POLLIN) & POLLIN, POLLIN);
	expect_text(p->server, "good bye");
	assert_int_equal(await(p->server, POLLIN), POLLIN | POLLHUP);
	assert_int_equal(rrecv(p->server, &byte, 1, 0), 0);
	assert_int_equal(rsend(p->server, "x", 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

static void *echo_blocking(void *argument)
{
	int fd = *(int *)argument;
	char buffer[1000];
	ssize_t n;

	rfcntl(fd, F_SETFL, 0);
	while ((n = rrecv(fd, buffer, sizeof(buffer), 0)) > 0)
		if (rsend(fd, buffer, (size_t)n, 0) != n)
			break;
	return (void *)(intptr_t)n;
}

/* A thread that sleeps in rrecv() or rsend() while this one does the same at the other end. */
static void blocking_calls_wait(void **state)
{
	struct pair *p = *state;
	uint8_t out[50000], in[50000];
	pthread_t thread;
	void *result;

	fill(out, sizeof(out), 3);
	assert_int_equal(pthread_create(&thread, NULL, echo_blocking, &p->server), 0);
	rfcntl(p->client, F_SETFL, 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(rsend(p->client, out, sizeof(out), 0), sizeof(out));
		memset(in, 0, sizeof(in));
		assert_int_equal(rrecv(p->client, in, sizeof(in), MSG_WAITALL), sizeof(in));
		assert_memory_equal(in, out, sizeof(out));
	}
	assert_int_equal(rshutdown(p->client, SHUT_WR), 0);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 0);
}

static void *receive_one(void *argument)
{
	char byte = 0;

	return (void *)(intptr_t)(rrecv(*(int *)argument, &byte, 1, 0) == 1 ? byte : -1);
}

/* Several sleepers on one rsocket: each gets its byte, whoever takes in the news. */
static void sleepers_wake_each_other(void **state)
{
	struct pair *p = *state;
	struct pollfd fds = {p->server, POLLIN, 0};
	pthread_t threads[4];
	void *result;
	int i, sum = 0;

	rfcntl(p->server, F_SETFL, 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, receive_one, &p->server), 0);
	for (i = 0; i < 4; i++) {
		char byte = (char)(1 << i);

		await(p->client, POLLOUT);
		assert_int_equal(rsend(p->client, &byte, 1, 0), 1);
	}
	for (i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		sum += (int)(intptr_t)result;
	}
	assert_int_equal(sum, 15);
	assert_int_equal(rpoll(&fds, 1, 0), 0);
}

/* Whoever sleeps hears of the end from another thread of its own process. */
static void shutting_down_wakes_readers(void **state)
{
	struct pair *p = *state;
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, echo_blocking, &p->server), 0);
	send_text(p->client, "first"); /* the thread is there once it answers */
	expect_text(p->client, "first");
	assert_int_equal(rshutdown(p->server, SHUT_RD), 0);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 0);
}

/* --- rpoll and rselect ------------------------------------------------------------------- */

static void rsockets_beside_pipes(void **state)
{
	struct pair *p = *state;
	struct pollfd fds[4];
	fd_set readable, writable;
	struct timeval timeout = {PATIENCE_MS / 1000, 0};
	int ends[2], high;

	assert_int_equal(pipe(ends), 0);
	fds[0] = (struct pollfd){ends[0], POLLIN, 0};
	fds[1] = (struct pollfd){p->server, POLLIN, 0};
	fds[2] = (struct pollfd){-1, POLLIN, 0};
	assert_int_equal(rpoll(fds, 3, 0), 0);
	assert_int_equal(rpoll(fds, 3, 1), 0);
	assert_int_equal(write(ends[1], "x", 1), 1);
	assert_int_equal(rpoll(fds, 3, PATIENCE_MS), 1);
	assert_int_equal(fds[0].revents, POLLIN);
	assert_int_equal(fds[1].revents, 0);
	send_text(p->client, "y");
	await(p->server, POLLIN);
	assert_int_equal(rpoll(fds, 3, PATIENCE_MS), 2);
	assert_int_equal(fds[1].revents, POLLIN);
	fds[3] = (struct pollfd){999, POLLIN, 0};
	assert_int_equal(rpoll(fds, 4, 0), 3);
	assert_int_equal(fds[3].revents, POLLNVAL);

	FD_ZERO(&readable);
	FD_ZERO(&writable);
	FD_SET(ends[0], &readable);
	FD_SET(p->server, &readable);
	FD_SET(p->client, &readable);
	FD_SET(p->client, &writable);
	high = p->server > p->client ? p->server : p->client;
	high = ends[0] > high ? ends[0] : high;
	assert_int_equal(rselect(high + 1, &readable, &writable, NULL, &timeout), 3);
	assert_true(FD_ISSET(ends[0], &readable) && FD_ISSET(p->server, &readable));
	assert_false(FD_ISSET(p->client, &readable));
	assert_true(FD_ISSET(p->client, &writable));
	expect_text(p->server, "y");
	FD_ZERO(&readable);
	FD_SET(p->server, &readable);
	timeout = (struct timeval){0, 0};
	assert_int_equal(rselect(p->server + 1, &readable, NULL, NULL, &timeout), 0);
	assert_false(FD_ISSET(p->server, &readable));
	FD_SET(999, &readable);
	assert_int_equal(rselect(1000, &readable, NULL, NULL, &timeout), -1);
	assert_int_equal(errno, EBADF);
	close(ends[0]);
	close(ends[1]);
}

static void *poll_both(void *argument)
{
	const int *fds = argument;
	struct pollfd entries[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};

	return (void *)(intptr_t)(rpoll(entries, 2, PATIENCE_MS) == 1 &&
				  entries[1].revents == POLLIN);
}

static void sleeping_poll_wakes(void **state)
{
	struct pair *p = *state;
	pthread_t thread;
	void *result;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	close(fds[1]);
	fds[1] = p->server;
	fds[0] = p->listener;
	assert_int_equal(pthread_create(&thread, NULL, poll_both, fds), 0);
	send_text(p->client, "wake up");
	pthread_join(thread, &result);
	assert_true(result);
	expect_text(p->server, "wake up");
}

/* --- options ----------------------------------------------------------------------------- */

static int get(int fd, int level, int option)
{
	int value = -1;
	socklen_t size = sizeof(value);

	assert_int_equal(rgetsockopt(fd, level, option, &value, &size), 0);
	assert_int_equal(size, sizeof(value));
	return value;
}

static int set(int fd, int level, int option, int value)
{
	return rsetsockopt(fd, level, option, &value, sizeof(value));
}

static void options_are_kept(void **state)
{
	struct pair *p = *state;
	int fd = rsocket(AF_INET6, SOCK_STREAM, 0);
	struct linger linger = {1, 5}, back;
	socklen_t size = sizeof(back);

	assert_int_equal(get(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
	assert_int_equal(get(fd, SOL_SOCKET, SO_DOMAIN), AF_INET6);
	assert_int_equal(get(p->listener, SOL_SOCKET, SO_ACCEPTCONN), 1);
	assert_int_equal(get(fd, SOL_SOCKET, SO_RCVBUF), BUFFER);
	assert_int_equal(set(fd, SOL_SOCKET, SO_RCVBUF, 100000), 0);
	assert_int_equal(get(fd, SOL_SOCKET, SO_RCVBUF), 200000);
	assert_int_equal(set(fd, SOL_SOCKET, SO_SNDBUF, 1), 0);
	assert_int_equal(get(fd, SOL_SOCKET, SO_SNDBUF), 4096);
	assert_int_equal(set(fd, SOL_SOCKET, SO_REUSEADDR, 1), 0);
	assert_int_equal(get(fd, SOL_SOCKET, SO_REUSEADDR), 1);
	assert_int_equal(set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1), 0);
	assert_int_equal(get(fd, IPPROTO_IPV6, IPV6_V6ONLY), 1);
	assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &back, &size), 0);
	assert_int_equal(back.l_linger, 5);
	assert_int_equal(set(fd, IPPROTO_TCP, TCP_NODELAY, 1), 0);
	assert_int_equal(get(fd, IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(set(p->client, IPPROTO_TCP, TCP_KEEPIDLE, 77), 0);
	assert_int_equal(set(p->client, SOL_SOCKET, SO_KEEPALIVE, 1), 0);
	assert_int_equal(get(p->client, IPPROTO_TCP, TCP_KEEPIDLE), 77);
	assert_int_equal(get(p->client, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(get(fd, SOL_RDMA, RDMA_SQSIZE), 384);
	assert_int_equal(set(fd, SOL_RDMA, RDMA_RQSIZE, 128), 0);
	assert_int_equal(get(fd, SOL_RDMA, RDMA_RQSIZE), 128);
	assert_int_equal(set(fd, SOL_RDMA, RDMA_IOMAPSIZE, 300), 0);
	assert_int_equal(get(fd, SOL_RDMA, RDMA_IOMAPSIZE), 256);
	assert_int_equal(set(p->client, SOL_RDMA, RDMA_SQSIZE, 10), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(set(fd, SOL_SOCKET, SO_BROADCAST, 1), -1);
	assert_int_equal(errno, ENOTSUP);
	assert_int_equal(set(fd, SOL_IP, IP_TOS, 1), -1);
	assert_int_equal(errno, ENOTSUP);
	assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &size, 2), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rclose(fd), 0);
}

/* What there is for `to`; 0 where the sender has room first, which it may hear of late. */
static size_t receive_or_room(int to, int from, uint8_t *in, size_t size)
{
	struct pollfd entries[] = {{to, POLLIN, 0}, {from, POLLOUT, 0}};
	ssize_t n;

	assert_true(rpoll(entries, 2, PATIENCE_MS) > 0);
	if (!entries[0].revents)
		return 0;
	n = rrecv(to, in, size, 0);
	assert_true(n > 0);
	return (size_t)n;
}

/* Small queues, no inline data, odd buffers: everything still arrives. */
static void sizes_do_not_matter(void **state)
{
	struct pair *p = *state;
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	struct pair small = {.listener = p->listener, .name = p->name};
	uint8_t out[30000], in[30000];
	size_t sent = 0, got = 0;

	assert_int_equal(set(fd, SOL_RDMA, RDMA_SQSIZE, 1), 0);
	assert_int_equal(set(fd, SOL_RDMA, RDMA_RQSIZE, 1), 0);
	assert_int_equal(set(fd, SOL_RDMA, RDMA_INLINE, 0), 0);
	assert_int_equal(set(fd, SOL_SOCKET, SO_SNDBUF, 2501), 0);
	assert_int_equal(set(fd, SOL_SOCKET, SO_RCVBUF, 2501), 0);
	set_nonblocking(fd);
	assert_int_equal(rconnect(fd, (struct sockaddr *)&p->name, sizeof(p->name)), -1);
	assert_int_equal(errno, EINPROGRESS);
	connect_with(&small, fd);
	assert_int_equal(get(fd, SOL_RDMA, RDMA_SQSIZE), 16);
	fill(out, sizeof(out), 5);
	for (int way = 0; way < 2; way++) {
		int from = way ? small.server : fd, to = way ? fd : small.server;

		for (sent = got = 0; got < sizeof(in);) {
			ssize_t n = rsend(from, out + sent, sizeof(out) - sent, 0);

			assert_true(n >= 0 || errno == EAGAIN);
			sent += n > 0 ? (size_t)n : 0;
			got += receive_or_room(to, from, in + got, sizeof(in) - got);
		}
		assert_memory_equal(in, out, sizeof(out));
	}
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(rclose(small.server), 0);
}

/* --- iomap ------------------------------------------------------------------------------- */

static void mapped_memory_is_written(void **state)
{
	struct pair *p = *state;
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	struct pair mapped = {.listener = p->listener, .name = p->name};
	static uint8_t memory[2][100000], out[100000];
	uint8_t *region = memory[0];
	size_t done = 0;

	/* who writes says how many regions it keeps in mind */
	assert_int_equal(set(fd, SOL_RDMA, RDMA_IOMAPSIZE, 1), 0);
	set_nonblocking(fd);
	assert_int_equal(rconnect(fd, (struct sockaddr *)&p->name, sizeof(p->name)), -1);
	connect_with(&mapped, fd);
	assert_int_equal(riomap(mapped.server, region, sizeof(memory[0]), PROT_READ, 0, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(riowrite(fd, out, 10, 5000, 0), 0); /* nothing is mapped yet */
	assert_int_equal(riomap(mapped.server, region, sizeof(memory[0]), PROT_WRITE, 0, 5000),
			 5000);
	assert_int_equal(riomap(mapped.server, memory[1], 10, PROT_WRITE, 0, -1), -1);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(riomap(mapped.server, memory[1], 10, PROT_NONE, 0, 1), 1);
	send_text(mapped.server, "mapped");
	expect_text(fd, "mapped");

	fill(out, sizeof(out), 9);
	while (done < 70000) {
		size_t n = riowrite(fd, out + done, 70000 - done, (off_t)(5000 + 20000 + done), 0);

		if ((ssize_t)n < 0) {
			assert_int_equal(errno, EAGAIN);
			await(fd, POLLOUT);
			continue;
		}
		done += n;
	}
	assert_int_equal(riowrite(fd, out, 10, 4999, 0), 0);
	assert_int_equal(riowrite(fd, out, 10, 105000, 0), 0);
	send_text(fd, "written");
	expect_text(mapped.server, "written");
	assert_memory_equal(region + 20000, out, 70000);
	for (size_t i = 0; i < 20000; i++)
		assert_int_equal(region[i], 0);
	assert_int_equal(riounmap(mapped.server, region, 3), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(riounmap(mapped.server, region, sizeof(memory[0])), 0);
	assert_int_equal(riomap(mapped.server, memory[1], 50, PROT_WRITE, 0, -1),
			 (off_t)(intptr_t)memory[1]);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(rclose(mapped.server), 0);
}

/* --- the end ----------------------------------------------------------------------------- */

static unsigned int count_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned int count = 0;

	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static void nothing_is_left_behind(void **state)
{
	unsigned int before;

	make_pair(state); /* the device is open now */
	drop_pair(state);
	before = count_descriptors();
	for (int i = 0; i < 30; i++) {
		make_pair(state);
		send_text(((struct pair *)*state)->client, "unread");
		drop_pair(state);
	}
	/* A close may end behind rclose(), the first one's as well as the last one's. */
	for (int ms = 0; count_descriptors() > before && ms < PATIENCE_MS; ms++)
		poll(NULL, 0, 1);
	assert_true(count_descriptors() <= before);
}

int main(void)
{
#define PAIR(test) cmocka_unit_test_setup_teardown(test, make_pair, drop_pair)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(descriptors_are_real),
		cmocka_unit_test(ports_are_taken_once),
		cmocka_unit_test(nobody_listens),
		PAIR(both_ends_have_names),
		PAIR(bytes_arrive_in_order),
		PAIR(vectors_and_flags),
		PAIR(sender_waits_for_room),
		PAIR(small_messages_get_credits),
		PAIR(one_way_is_shut),
		PAIR(peer_closes),
		PAIR(blocking_calls_wait),
		PAIR(sleepers_wake_each_other),
		PAIR(shutting_down_wakes_readers),
		PAIR(rsockets_beside_pipes),
		PAIR(sleeping_poll_wakes),
		PAIR(options_are_kept),
		PAIR(sizes_do_not_matter),
		PAIR(mapped_memory_is_written),
		cmocka_unit_test(nothing_is_left_behind),
	};

	setenv("VERBENA_ADDR", ADDRESS, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
