/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdmacm_newer.c - calls of librdmacm that are newer than the installed header, looked up by name
 * and node as a program's loader does that was built with theirs.
 */
#define _GNU_SOURCE
#include "rsocket.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define EVENT_USER 18

static int (*create)(int flags);
static int (*control)(int set, int op, int fd, struct epoll_event *event);
static int (*wait_for)(int set, struct epoll_event *events, int max, int timeout);

static void *find(const char *name, const char *node)
{
	void *symbol = dlvsym(RTLD_DEFAULT, name, node);

	if (!symbol)
		fail_msg("%s@%s is missing", name, node);
	return symbol;
}

static int find_epoll(void **state)
{
	setenv("VERBENA_ADDR", ADDRESS, 1);
	*(void **)&create = find("repoll_create", "RDMACM_1.5");
	*(void **)&control = find("repoll_ctl", "RDMACM_1.5");
	*(void **)&wait_for = find("repoll_wait", "RDMACM_1.5");
	return 0;
}

static void add(int set, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = {.events = events, .data.u64 = data};

	assert_int_equal(control(set, EPOLL_CTL_ADD, fd, &event), 0);
}

static void expect(int set, uint64_t data, uint32_t events)
{
	struct epoll_event got[4];

	assert_int_equal(wait_for(set, got, 4, PATIENCE_MS), 1);
	assert_int_equal(got[0].data.u64, data);
	assert_int_equal(got[0].events & (EPOLLIN | EPOLLOUT | EPOLLHUP), events);
}

static void expect_nothing(int set)
{
	struct epoll_event got[4];

	assert_int_equal(wait_for(set, got, 4, 0), 0);
}

/* A stream within this process. */
static void open_stream(int fd[2])
{
	struct sockaddr_in name = address(0);
	socklen_t size = sizeof(name);
	int listener = rsocket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(rbind(listener, (struct sockaddr *)&name, size), 0);
	assert_int_equal(rlisten(listener, 1), 0);
	assert_int_equal(rgetsockname(listener, (struct sockaddr *)&name, &size), 0);
	fd[0] = rsocket(AF_INET, SOCK_STREAM, 0);
	set_nonblocking(fd[0]);
	(void)rconnect(fd[0], (struct sockaddr *)&name, size);
	await(listener, POLLIN);
	fd[1] = raccept(listener, NULL, NULL);
	assert_true(fd[1] >= 0);
	await(fd[0], POLLOUT);
	assert_int_equal(rclose(listener), 0);
}

static void a_stream_and_a_pipe(void **state)
{
	struct epoll_event event = {.events = EPOLLOUT, .data.u64 = 30};
	struct epoll_event got[4];
	int set = create(0), fd[2], pipes[2];
	char byte;

	assert_true(set >= 0);
	open_stream(fd);
	assert_int_equal(pipe(pipes), 0);
	add(set, fd[1], EPOLLIN, 10);
	add(set, pipes[0], EPOLLIN, 20);
	expect_nothing(set);
	assert_int_equal(rsend(fd[0], "x", 1, 0), 1);
	expect(set, 10, EPOLLIN);
	expect(set, 10, EPOLLIN); /* it is still there */
	assert_int_equal(write(pipes[1], "y", 1), 1);
	assert_int_equal(wait_for(set, got, 4, PATIENCE_MS), 2);
	/* One place: both get their turn. */
	assert_int_equal(wait_for(set, got, 1, PATIENCE_MS), 1);
	assert_int_equal(wait_for(set, got + 1, 1, PATIENCE_MS), 1);
	assert_int_equal(got[0].data.u64 + got[1].data.u64, 30);
	assert_int_equal(rrecv(fd[1], &byte, 1, 0), 1);
	expect(set, 20, EPOLLIN);
	assert_int_equal(control(set, EPOLL_CTL_DEL, pipes[0], NULL), 0);
	expect_nothing(set);
	assert_int_equal(control(set, EPOLL_CTL_MOD, fd[1], &event), 0);
	expect(set, 30, EPOLLOUT);
	event.events = EPOLLOUT | EPOLLONESHOT;
	assert_int_equal(control(set, EPOLL_CTL_MOD, fd[1], &event), 0);
	expect(set, 30, EPOLLOUT);
	expect_nothing(set);
	assert_int_equal(control(set, EPOLL_CTL_MOD, fd[1], &event), 0);
	expect(set, 30, EPOLLOUT);
	assert_int_equal(rclose(fd[0]), 0);
	assert_int_equal(rclose(fd[1]), 0);
	expect_nothing(set); /* what is closed is in no set any more */
	close(pipes[0]);
	close(pipes[1]);
	assert_int_equal(rclose(set), 0);
}

struct waiter {
	int set;
	struct epoll_event got;
	int result;
};

static void *wait_long(void *argument)
{
	struct waiter *waiter = argument;

	waiter->result = wait_for(waiter->set, &waiter->got, 1, PATIENCE_MS);
	return NULL;
}

/* Who waits sees what is added meanwhile. */
static void added_while_another_waits(void **state)
{
	struct waiter waiter = {.set = create(O_CLOEXEC)};
	pthread_t thread;
	int pipes[2];

	assert_true(fcntl(waiter.set, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(write(pipes[1], "z", 1), 1);
	assert_int_equal(pthread_create(&thread, NULL, wait_long, &waiter), 0);
	add(waiter.set, pipes[0], EPOLLIN, 77);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(waiter.result, 1);
	assert_int_equal(waiter.got.data.u64, 77);
	assert_int_equal(rclose(waiter.set), 0);
	close(pipes[0]);
	close(pipes[1]);
}

static void expect_error(int result, int error)
{
	assert_int_equal(result, -1);
	assert_int_equal(errno, error);
}

static void wrong_sets(void **state)
{
	struct epoll_event event = {.events = EPOLLIN};
	int set = create(0), pipes[2];

	assert_int_equal(pipe(pipes), 0);
	expect_error(create(1 << 30), EINVAL);
	expect_error(control(pipes[1], EPOLL_CTL_ADD, pipes[0], &event), EBADF);
	expect_error(control(set, EPOLL_CTL_ADD, -1, &event), EBADF);
	expect_error(control(set, EPOLL_CTL_ADD, set, &event), EINVAL);
	expect_error(control(set, 9, pipes[0], &event), EINVAL);
	expect_error(control(set, EPOLL_CTL_ADD, pipes[0], NULL), EFAULT);
	expect_error(control(set, EPOLL_CTL_MOD, pipes[0], &event), ENOENT);
	expect_error(control(set, EPOLL_CTL_DEL, pipes[0], NULL), ENOENT);
	add(set, pipes[0], EPOLLIN, 1);
	expect_error(control(set, EPOLL_CTL_ADD, pipes[0], &event), EEXIST);
	expect_error(wait_for(set, &event, 0, 0), EINVAL);
	expect_error(wait_for(set, NULL, 1, 0), EFAULT);
	expect_error(wait_for(pipes[0], &event, 1, 0), EBADF);
	assert_int_equal(rclose(set), 0);
	expect_error(wait_for(set, &event, 1, 0), EBADF);
	expect_error(rclose(set), EBADF);
	close(pipes[0]);
	close(pipes[1]);
}

/* --- events of the program's own, addresses of services ---------------------------------- */

static void events_of_the_program(void **state)
{
	int (*write_event)(struct rdma_cm_id * id, int type, int status, uint64_t argument);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct pollfd wait = {.events = POLLIN};
	uint64_t argument;

	*(void **)&write_event = find("rdma_write_cm_event", "RDMACM_1.4");
	assert_non_null(channel);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	expect_error(write_event(NULL, EVENT_USER, 0, 0), EINVAL);
	expect_error(write_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
	wait.fd = channel->fd;
	assert_int_equal(poll(&wait, 1, 0), 0);
	assert_int_equal(write_event(id, EVENT_USER, -5, 0x1122334455667788), 0);
	assert_int_equal(poll(&wait, 1, 0), 1);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	assert_int_equal(event->event, EVENT_USER);
	assert_string_equal(rdma_event_str(event->event), "RDMA_CM_EVENT_USER");
	assert_ptr_equal(event->id, id);
	assert_int_equal(event->status, -5);
	memcpy(&argument, &event->param, sizeof(argument));
	assert_true(argument == 0x1122334455667788);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

static void nobody_knows_services(void **state)
{
	int (*resolve)(struct rdma_cm_id * id, const char *node, const char *service, void *hints);
	int (*query)(struct rdma_cm_id * id, void **info);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	void *info;

	*(void **)&resolve = find("rdma_resolve_addrinfo", "RDMACM_1.4");
	*(void **)&query = find("rdma_query_addrinfo", "RDMACM_1.4");
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	expect_error(resolve(NULL, "a", "b", NULL), EINVAL);
	expect_error(resolve(id, "a", "b", NULL), EOPNOTSUPP);
	expect_error(query(NULL, &info), EINVAL);
	expect_error(query(id, NULL), EINVAL);
	expect_error(query(id, &info), ENOENT);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stream_and_a_pipe),
		cmocka_unit_test(added_while_another_waits),
		cmocka_unit_test(wrong_sets),
		cmocka_unit_test(events_of_the_program),
		cmocka_unit_test(nobody_knows_services),
	};

	return cmocka_run_group_tests(tests, find_epoll, NULL);
}
