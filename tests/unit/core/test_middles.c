/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_middles.c - MIDDLE packets have a way of their own through the NIC: whatever is odd about
 * one has the effect that it has on any packet.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "core/transport.h"
#include "fake_nic.h"

#define MTU 1024u
#define FIRST_PSN 0x123456u /* as fake_attr() has it */

struct peer {
	struct fake fake;
	struct fake_qp q;
	struct vb_mr *mr;
	uint8_t memory[4 * MTU], pattern[4 * MTU];
	bool write;
};

static void receive(struct peer *p, struct vb_headers h, uint32_t bytes,
		    const struct in6_addr *from)
{
	uint8_t packet[VB_HEADERS_MAX + MTU];
	int n;

	h.qpn = p->q.qp->qpn;
	n = vb_headers_encode(&h, packet, sizeof(packet));
	assert_true(n > 0);
	memcpy(packet + n, p->pattern + (h.psn - FIRST_PSN) % 4 * MTU, bytes);

	const struct vb_rx rx = {.data = packet, .size = (size_t)n + bytes, .src = *from};

	vb_nic_rx(p->fake.nic, &rx, 1000);
}

static struct vb_headers headers(const struct peer *p, enum vb_operation send,
				 enum vb_operation write, uint32_t psn)
{
	return (struct vb_headers){
		.opcode = vb_opcode(VB_TRANSPORT_RC, p->write ? write : send),
		.pkey = VB_DEFAULT_PKEY,
		.psn = FIRST_PSN + psn,
		.reth = {.va = (uintptr_t)p->memory, .rkey = p->mr->rkey, .length = 3 * MTU}};
}

/* The queue pair has had the first packet of a message of three. */
static void set_up(struct peer *p, bool write, uint32_t receive_bytes)
{
	*p = (struct peer){.write = write};
	for (uint32_t i = 0; i < sizeof(p->pattern); i++)
		p->pattern[i] = (uint8_t)(i * 7 + i / MTU);
	fake_init(&p->fake);
	fake_qp_create(&p->fake, &p->q, VB_QPT_RC, 64);
	fake_bring_to(p->q.qp, VB_QPS_RTS);
	p->mr = vb_mr_create(p->q.pd, p->memory, sizeof(p->memory), (uintptr_t)p->memory,
			     VB_ACCESS_LOCAL_WRITE | VB_ACCESS_REMOTE_WRITE);
	assert_non_null(p->mr);

	const struct vb_sge sge = {(uintptr_t)p->memory, receive_bytes, p->mr->lkey};
	const struct vb_recv_wr wr = {.sges = &sge, .num_sge = 1};

	assert_int_equal(vb_qp_post_recv(p->q.qp, &wr), 0);
	receive(p, headers(p, VB_OP_SEND_FIRST, VB_OP_WRITE_FIRST, 0), MTU, &p->q.qp->path.dgid);
	assert_int_equal(p->q.qp->resp.epsn, FIRST_PSN + 1);
}

static void tear_down(struct peer *p)
{
	if (p->mr)
		vb_mr_destroy(p->mr);
	fake_qp_destroy(&p->q);
	fake_finish(&p->fake);
}

static struct vb_headers middle(const struct peer *p)
{
	return headers(p, VB_OP_SEND_MIDDLE, VB_OP_WRITE_MIDDLE, 1);
}

static void receive_here(struct peer *p, struct vb_headers h, uint32_t bytes)
{
	receive(p, h, bytes, &p->q.qp->path.dgid);
}

/* What the NIC says next. */
static uint8_t answer(struct peer *p)
{
	const unsigned int before = p->fake.tx_count;

	while (vb_nic_run(p->fake.nic, 1000))
		;
	assert_int_equal(p->fake.tx_count, before + 1);
	assert_int_equal(vb_opcode_operation(p->fake.tx_headers.opcode), VB_OP_ACK);
	return p->fake.tx_headers.aeth.syndrome;
}

static void a_message_of_three(void **state)
{
	for (int write = 0; write < 2; write++) {
		struct peer p;
		struct vb_headers h;

		set_up(&p, write, 3 * MTU);
		h = middle(&p);
		h.ack_req = true;
		receive_here(&p, h, MTU);
		assert_int_equal(answer(&p), VB_AETH_ACK_NO_CREDIT);
		assert_int_equal(p.fake.tx_headers.psn, FIRST_PSN + 1);
		h = headers(&p, VB_OP_SEND_LAST, VB_OP_WRITE_LAST, 2);
		h.ack_req = true;
		receive_here(&p, h, MTU);
		assert_int_equal(answer(&p), VB_AETH_ACK_NO_CREDIT);
		assert_memory_equal(p.memory, p.pattern, 3 * MTU);
		assert_int_equal(vb_cq_poll(p.q.cq, &(struct vb_cqe){0}, 1), !write);
		tear_down(&p);
	}
}

/* Dropped and counted; the message goes on. */
static void what_is_not_seen(void **state)
{
	for (int write = 0; write < 2; write++) {
		const struct vb_counters *c;
		struct in6_addr other;
		struct vb_headers h;
		struct peer p;

		set_up(&p, write, 3 * MTU);
		c = &p.fake.nic->counters;
		h = middle(&p);
		h.tver = 1;
		receive_here(&p, h, MTU);
		assert_int_equal(c->rx_malformed, 1);
		h = middle(&p);
		h.pad = 1; /* the rest is no multiple of four */
		receive_here(&p, h, MTU - 1);
		assert_int_equal(c->rx_malformed, 2);
		h = middle(&p);
		h.pkey = 0x7abc;
		receive_here(&p, h, MTU);
		assert_int_equal(c->rx_wrong_pkey, 1);
		other = p.q.qp->path.dgid;
		other.s6_addr[15] ^= 1;
		receive(&p, middle(&p), MTU, &other);
		assert_int_equal(c->rx_wrong_address, 1);
		h = middle(&p);
		h.psn = FIRST_PSN; /* again */
		receive_here(&p, h, MTU);
		assert_int_equal(c->rx_duplicate, 1);
		assert_int_equal(p.q.qp->resp.epsn, FIRST_PSN + 1);
		receive_here(&p, middle(&p), MTU);
		assert_int_equal(p.q.qp->resp.epsn, FIRST_PSN + 2);
		tear_down(&p);
	}
}

typedef void odd_fn(struct peer *p, struct vb_headers *h, uint32_t *bytes);

static void of_another_kind(struct peer *p, struct vb_headers *h, uint32_t *bytes)
{
	h->opcode = vb_opcode(VB_TRANSPORT_RC, p->write ? VB_OP_SEND_MIDDLE : VB_OP_WRITE_MIDDLE);
}

static void of_another_size(struct peer *p, struct vb_headers *h, uint32_t *bytes)
{
	*bytes = MTU - 4;
}

static void ahead(struct peer *p, struct vb_headers *h, uint32_t *bytes)
{
	h->psn++;
}

static void into_no_region(struct peer *p, struct vb_headers *h, uint32_t *bytes)
{
	vb_mr_destroy(p->mr);
	p->mr = NULL;
}

static void without_the_right(struct peer *p, struct vb_headers *h, uint32_t *bytes)
{
	p->q.qp->attr.access_flags = 0;
}

static void too_far(struct peer *p, struct vb_headers *h, uint32_t *bytes)
{
	p->q.qp->resp.write_left = MTU - 4; /* as if the RETH had said so */
}

static void too_long(struct peer *p, struct vb_headers *h, uint32_t *bytes)
{
	p->q.qp->resp.recv.length = 2 * MTU - 4;
}

static void what_is_refused(void **state)
{
	static const struct {
		odd_fn *make;
		bool send, write;
		enum vb_nak_code code;
	} odd[] = {
		{of_another_kind, true, true, VB_NAK_INVALID_REQUEST},
		{of_another_size, true, true, VB_NAK_INVALID_REQUEST},
		{ahead, true, true, VB_NAK_PSN_SEQUENCE},
		{into_no_region, false, true, VB_NAK_REMOTE_ACCESS},
		{into_no_region, true, false, VB_NAK_REMOTE_OPERATIONAL},
		{without_the_right, false, true, VB_NAK_INVALID_REQUEST},
		{too_far, false, true, VB_NAK_INVALID_REQUEST},
		{too_long, true, false, VB_NAK_INVALID_REQUEST},
	};

	for (uint32_t i = 0; i < 2 * VB_ARRAY_SIZE(odd); i++) {
		const bool write = i % 2;
		struct vb_headers h;
		struct peer p;
		uint32_t bytes = MTU;

		if (!(write ? odd[i / 2].write : odd[i / 2].send))
			continue;
		set_up(&p, write, 3 * MTU);
		h = middle(&p);
		odd[i / 2].make(&p, &h, &bytes);
		receive_here(&p, h, bytes);
		assert_int_equal(answer(&p), vb_aeth_syndrome(VB_AETH_NAK, odd[i / 2].code));
		assert_int_equal(p.q.qp->resp.epsn, FIRST_PSN + 1);
		tear_down(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_of_three),
		cmocka_unit_test(what_is_not_seen),
		cmocka_unit_test(what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
