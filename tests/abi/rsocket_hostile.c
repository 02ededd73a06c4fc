/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_hostile.c - a peer that connects to an rsocket and does not keep to the protocol: it
 * speaks verbs, and says whatever it likes.
 *
 * What it may cost is its own connection: the rsocket says EPROTO, or that the peer is gone, and
 * the listener goes on.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#define ADDRESS "127.0.44.5"

enum {
	PATIENCE_MS = 20000,
	CONN_BYTES = 40,
	QUEUE = 384,
	HALF = 1 << 19, /* of the rsocket's receive buffer */
};

/* The peer. `said` is what it tells of itself, `heard` what the rsocket answered. */
struct hostile {
	struct sockaddr_in to;
	uint8_t said[CONN_BYTES];
	size_t said_bytes;
	uint8_t heard[CONN_BYTES];
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	uint8_t memory[256];
	int error;
};

struct scene {
	int listener, server;
	struct hostile hostile;
};

static void put64(uint8_t *p, uint64_t value)
{
	value = htobe64(value);
	memcpy(p, &value, 8);
}

static void put32(uint8_t *p, uint32_t value)
{
	value = htobe32(value);
	memcpy(p, &value, 4);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t value;

	memcpy(&value, p, 8);
	return be64toh(value);
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t value;

	memcpy(&value, p, 4);
	return be32toh(value);
}

/* Honest private data: version 1, credits, two slots and no buffer. */
static void introduce(struct hostile *h)
{
	memset(h->said, 0, sizeof(h->said));
	h->said_bytes = CONN_BYTES;
	h->said[0] = 1;
	h->said[3] = 200; /* credits */
	put64(h->said + 8, (uintptr_t)h->memory);
	put32(h->said + 16, h->mr ? h->mr->rkey : 0);
	put32(h->said + 20, 2);
}

static int prepare(struct hostile *h)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 1024,
			.max_recv_wr = 16,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	if (rdma_create_id(NULL, &h->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(h->id, NULL, (struct sockaddr *)&h->to, 2000) ||
	    rdma_resolve_route(h->id, 2000) || rdma_create_qp(h->id, NULL, &init))
		return errno;
	h->mr = rdma_reg_write(h->id, h->memory, sizeof(h->memory));
	return h->mr ? 0 : errno;
}

static void *connect_hostile(void *argument)
{
	struct hostile *h = argument;
	struct rdma_conn_param param = {
		.private_data = h->said,
		.private_data_len = (uint8_t)h->said_bytes,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	h->error = rdma_connect(h->id, &param) ? errno : 0;
	if (!h->error)
		memcpy(h->heard, h->id->event->param.conn.private_data, sizeof(h->heard));
	return NULL;
}

static short await(int fd, short events)
{
	struct pollfd entry = {fd, events, 0};

	assert_int_equal(rpoll(&entry, 1, PATIENCE_MS), 1);
	return entry.revents;
}

static void connect_both(struct scene *s)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, connect_hostile, &s->hostile), 0);
	await(s->listener, POLLIN);
	s->server = raccept(s->listener, NULL, NULL);
	assert_true(s->server >= 0);
	assert_int_equal(rfcntl(s->server, F_SETFL, O_NONBLOCK), 0);
	pthread_join(thread, NULL);
	assert_int_equal(s->hostile.error, 0);
}

static int set_up(void **state)
{
	struct scene *s = calloc(1, sizeof(*s));
	struct sockaddr_in name = {.sin_family = AF_INET};
	socklen_t size = sizeof(name);
	int on = 1;

	inet_pton(AF_INET, ADDRESS, &name.sin_addr);
	s->server = -1;
	s->listener = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(rsetsockopt(s->listener, SOL_RDMA, RDMA_IOMAPSIZE, &on, sizeof(on)), 0);
	assert_int_equal(rbind(s->listener, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(rlisten(s->listener, 4), 0);
	assert_int_equal(rgetsockname(s->listener, (struct sockaddr *)&name, &size), 0);
	assert_int_equal(rfcntl(s->listener, F_SETFL, O_NONBLOCK), 0);
	s->hostile.to = name;
	assert_int_equal(prepare(&s->hostile), 0);
	introduce(&s->hostile);
	*state = s;
	return 0;
}

static void drop_hostile(struct hostile *h)
{
	rdma_destroy_qp(h->id);
	assert_int_equal(rdma_dereg_mr(h->mr), 0);
	assert_int_equal(rdma_destroy_id(h->id), 0);
}

static int tear_down(void **state)
{
	struct scene *s = *state;

	drop_hostile(&s->hostile);
	if (s->server >= 0)
		assert_int_equal(rclose(s->server), 0);
	assert_int_equal(rclose(s->listener), 0);
	free(s);
	return 0;
}

/* Writes `size` bytes of its memory to an address of the rsocket's, with a word. */
static void say(struct hostile *h, uint32_t word, uint32_t size, uint64_t address, uint32_t key)
{
	struct ibv_sge sge = {(uintptr_t)h->memory, size, h->mr->lkey};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.sg_list = &sge,
		.num_sge = size ? 1 : 0,
		.imm_data = htonl(word),
		.wr.rdma = {address, key},
	};
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(h->id->qp, &wr, &bad), 0);
}

static void expect_error(int fd, int error)
{
	char bytes[64];

	assert_int_equal(await(fd, POLLRDHUP) & POLLRDHUP, POLLRDHUP);
	errno = 0;
	while (rrecv(fd, bytes, sizeof(bytes), 0) > 0)
		; /* what was right before the fault is still handed over */
	assert_int_equal(errno, error);
	assert_int_equal(await(fd, POLLIN) & POLLERR, POLLERR);
	assert_int_equal(rsend(fd, "x", 1, 0), -1);
	assert_int_equal(rrecv(fd, bytes, sizeof(bytes), 0), 0);
}

static void unknown_words(void **state)
{
	struct scene *s = *state;

	connect_both(s);
	say(&s->hostile, 0x20000001, 0, 0, 0);
	expect_error(s->server, EPROTO);
}

static void unknown_control(void **state)
{
	struct scene *s = *state;
	char byte;

	connect_both(s);
	say(&s->hostile, 0xe0000077, 0, 0, 0); /* of a later version: nothing to us */
	say(&s->hostile, 0xe0000002, 0, 0, 0);
	await(s->server, POLLIN);
	assert_int_equal(rrecv(s->server, &byte, 1, 0), 0);
}

static void more_than_granted(void **state)
{
	struct scene *s = *state;

	connect_both(s);
	/* both halves are granted at most: the most that may be said to have come */
	say(&s->hostile, 2 * HALF + 1, 0, 0, 0);
	expect_error(s->server, EPROTO);
}

static void huge_lengths(void **state)
{
	struct scene *s = *state;

	connect_both(s);
	say(&s->hostile, 0x1fffffff, 0, 0, 0);
	expect_error(s->server, EPROTO);
}

static void more_messages_than_places(void **state)
{
	struct scene *s = *state;

	connect_both(s);
	for (int i = 0; i <= QUEUE; i++)
		say(&s->hostile, 1, 0, 0, 0);
	expect_error(s->server, EPROTO);
}

static void empty_messages(void **state)
{
	struct scene *s = *state;
	char byte;

	connect_both(s);
	for (int i = 0; i < 900; i++)
		say(&s->hostile, 0, 0, 0, 0);
	memcpy(s->hostile.memory, "!", 1);
	say(&s->hostile, 1, 1, get64(s->hostile.heard + 24), get32(s->hostile.heard + 32));
	await(s->server, POLLIN);
	assert_int_equal(rrecv(s->server, &byte, 1, 0), 1);
	assert_int_equal(byte, '!');
}

static void plain_send(void **state)
{
	struct scene *s = *state;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;

	connect_both(s);
	assert_int_equal(ibv_post_send(s->hostile.id->qp, &wr, &bad), 0);
	expect_error(s->server, EPROTO);
}

/* A region that is not the peer's: the rsocket writes there, and the peer's adapter refuses. */
static void false_regions(void **state)
{
	struct scene *s = *state;
	uint64_t slot, entries;
	uint32_t length = 4096, key = 0x12345678;
	uint64_t address = 0x1000;

	connect_both(s);
	entries = get64(s->hostile.heard + 8) + 2 * 16;
	slot = get64(s->hostile.heard + 8) + 16;
	/* an iomap entry that covers everything: offset 0, the longest length */
	memset(s->hostile.memory, 0, 24);
	memset(s->hostile.memory + 8, 0xff, 16);
	say(&s->hostile, 0xc0000000, 24, entries, get32(s->hostile.heard + 16));
	say(&s->hostile, 0xdfffffff, 0, 0, 0); /* an entry that there is not */
	memcpy(s->hostile.memory + 32, &address, 8);
	memcpy(s->hostile.memory + 40, &key, 4);
	memcpy(s->hostile.memory + 44, &length, 4);
	{
		struct ibv_sge sge = {(uintptr_t)s->hostile.memory + 32, 16, s->hostile.mr->lkey};
		struct ibv_send_wr wr = {
			.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
			.sg_list = &sge,
			.num_sge = 1,
			.imm_data = htonl(0x800000c8),
			.wr.rdma = {slot, get32(s->hostile.heard + 16)},
		};
		struct ibv_send_wr *bad;

		assert_int_equal(ibv_post_send(s->hostile.id->qp, &wr, &bad), 0);
	}
	await(s->server, POLLOUT);
	assert_int_equal(riowrite(s->server, "x", 1, 77, 0), 1);
	expect_error(s->server, ECONNRESET);
}

/* What is no private data of an rsocket is refused, and the next one is taken. */
static void strangers_are_refused(void **state)
{
	struct scene *s = *state;
	struct pollfd entry = {s->listener, POLLIN, 0};
	pthread_t thread;

	for (int i = 0; i < 3; i++) {
		introduce(&s->hostile);
		if (i == 0)
			s->hostile.said_bytes = 0;
		else if (i == 1)
			s->hostile.said[0] = 2; /* version */
		else
			s->hostile.said[23] = 0; /* no slots */
		s->hostile.error = -1;
		assert_int_equal(pthread_create(&thread, NULL, connect_hostile, &s->hostile), 0);
		for (int tries = 0; tries < PATIENCE_MS; tries++) {
			assert_int_equal(rpoll(&entry, 1, 1), 0);
			if (pthread_tryjoin_np(thread, NULL) == 0)
				break;
		}
		assert_int_equal(s->hostile.error, ECONNREFUSED);
		drop_hostile(&s->hostile);
		assert_int_equal(prepare(&s->hostile), 0);
	}
	introduce(&s->hostile);
	connect_both(s);
}

int main(void)
{
#define SCENE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		SCENE(unknown_words),
		SCENE(unknown_control),
		SCENE(more_than_granted),
		SCENE(huge_lengths),
		SCENE(more_messages_than_places),
		SCENE(empty_messages),
		SCENE(plain_send),
		SCENE(false_regions),
		SCENE(strangers_are_refused),
	};

	setenv("VERBENA_ADDR", ADDRESS, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
