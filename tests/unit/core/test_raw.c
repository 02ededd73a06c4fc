/* SPDX-License-Identifier: BSD-2-Clause */
/* test_raw.c - raw packets where the edge tests cannot reach: a carrier without room, SQD, hashes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "fake_nic.h"

#define MTU 1500u

static struct {
	int open_result, listen_result;
	int room; /* frames that are taken before -EAGAIN; -1: all */
	unsigned int opened, closed, sent;
	bool everything;
	uint32_t wanted;
	uint32_t last_size;
} outside;

static int raw_open(void *env, struct vb_raw_port *port)
{
	if (outside.open_result < 0)
		return outside.open_result;
	outside.opened++;
	*port = (struct vb_raw_port){.mac = {2, 0, 0, 0, 0, 1}, .mtu = MTU};
	return 0;
}

static void raw_close(void *env)
{
	outside.closed++;
}

static int raw_tx(void *env, const uint8_t *frame, uint32_t size)
{
	if (outside.room == 0)
		return -EAGAIN;
	outside.room -= outside.room > 0;
	outside.sent++;
	outside.last_size = size;
	return 0;
}

static int raw_listen(void *env, const struct vb_raw_wanted *wanted)
{
	outside.everything = wanted->everything;
	outside.wanted = wanted->count;
	return outside.listen_result;
}

struct fixture {
	struct fake fake;
	struct vb_pd *pd;
	struct vb_cq *cq;
	struct vb_mr *mr;
	struct vb_qp *qp;
	uint8_t memory[8192];
};

static struct vb_qp *make_qp(struct fixture *f)
{
	struct vb_qp_init init = fake_qp_init(VB_QPT_RAW_PACKET, f->cq);

	init.max_tso_header = 64;
	return vb_qp_create(f->pd, &init);
}

static void bring_up(struct vb_qp *qp)
{
	assert_int_equal(fake_modify(qp, VB_QPS_INIT, VB_QP_STATE | VB_QP_PORT), 0);
	assert_int_equal(fake_modify(qp, VB_QPS_RTR, VB_QP_STATE), 0);
	assert_int_equal(fake_modify(qp, VB_QPS_RTS, VB_QP_STATE), 0);
}

static void open_fixture(struct fixture *f)
{
	memset(&outside, 0, sizeof(outside));
	outside.room = -1;
	fake_init(&f->fake);
	f->fake.nic->ops.raw_open = raw_open;
	f->fake.nic->ops.raw_close = raw_close;
	f->fake.nic->ops.raw_tx = raw_tx;
	f->fake.nic->ops.raw_listen = raw_listen;
	f->pd = vb_pd_create(f->fake.nic);
	f->cq = vb_cq_create(f->fake.nic, 64, NULL);
	f->mr = vb_mr_create(f->pd, f->memory, sizeof(f->memory), 0, VB_ACCESS_LOCAL_WRITE);
	f->qp = make_qp(f);
	assert_non_null(f->qp);
	bring_up(f->qp);
	memset(f->memory, 0, sizeof(f->memory));
	memcpy(f->memory, "\x01\x50\x56\x19\x20\xa7\x24\x8a\x07\xa5\x28\xc8\x08\x00", 14);
}

static void close_fixture(struct fixture *f)
{
	vb_qp_destroy(f->qp);
	assert_int_equal(outside.opened, outside.closed);
	assert_null(f->fake.nic->raw);
	vb_mr_destroy(f->mr);
	assert_int_equal(vb_cq_destroy(f->cq), 0);
	assert_int_equal(vb_pd_destroy(f->pd), 0);
	fake_finish(&f->fake);
}

static int post(struct fixture *f, uint32_t length)
{
	const struct vb_sge sge = {.addr = 0, .length = length, .lkey = f->mr->lkey};
	const struct vb_send_wr wr = {
		.sges = &sge,
		.num_sge = 1,
		.opcode = VB_WR_SEND,
		.flags = VB_SEND_SIGNALED,
	};

	return vb_qp_post_send(f->qp, &wr);
}

static int post_tso(struct fixture *f, uint32_t length, uint16_t mss)
{
	const struct vb_sge sge = {.addr = 0, .length = length, .lkey = f->mr->lkey};
	uint8_t header[54] = {[12] = 0x08, [14] = 0x45, [23] = 6, [46] = 0x50};
	const struct vb_send_wr wr = {
		.sges = &sge,
		.num_sge = 1,
		.opcode = VB_WR_TSO,
		.flags = VB_SEND_SIGNALED,
		.tso_header = header,
		.tso_header_bytes = sizeof(header),
		.tso_mss = mss,
	};

	return vb_qp_post_send(f->qp, &wr);
}

static void the_surroundings_are_asked_once(void **state)
{
	struct fixture f;
	struct vb_qp *second;

	open_fixture(&f);
	second = make_qp(&f);
	assert_non_null(second);
	assert_int_equal(outside.opened, 1);
	vb_qp_destroy(second);
	assert_int_equal(outside.closed, 0);
	close_fixture(&f);

	open_fixture(&f);
	vb_qp_destroy(f.qp);
	outside.open_result = -EPERM;
	assert_null(make_qp(&f));
	assert_int_equal(errno, EPERM);
	assert_int_equal(f.fake.nic->qp_count, 0);
	f.fake.nic->ops.raw_open = NULL;
	assert_null(make_qp(&f));
	assert_int_equal(errno, EOPNOTSUPP);
	f.qp = NULL;
	close_fixture(&f);
}

/* In the middle of a TSO request the carrier is full: it goes on where it was. */
static void a_full_carrier_is_waited_for(void **state)
{
	struct fixture f;
	struct vb_cqe cqe;

	open_fixture(&f);
	outside.room = 2;
	assert_int_equal(post_tso(&f, 2500, 1000), 0);
	assert_int_equal(post(&f, 60), 0);
	vb_nic_run(f.fake.nic, 1);
	assert_int_equal(outside.sent, 2);
	assert_int_equal(vb_cq_count(f.cq), 0);
	assert_true(f.qp->blocked);
	outside.room = -1;
	vb_nic_unblock(f.fake.nic);
	vb_nic_run(f.fake.nic, 2);
	assert_int_equal(outside.sent, 4);
	assert_int_equal(outside.last_size, 60);
	assert_int_equal(vb_cq_poll(f.cq, &cqe, 1), 1);
	assert_int_equal(cqe.opcode, VB_WC_TSO);
	assert_int_equal(cqe.byte_len, 2500);
	assert_int_equal(vb_cq_poll(f.cq, &cqe, 1), 1);
	assert_int_equal(cqe.opcode, VB_WC_SEND);
	close_fixture(&f);
}

/* In SQD what has begun is finished, and what has not waits; then SQ_DRAINED may be told. */
static void draining_finishes_what_began(void **state)
{
	struct fixture f;

	open_fixture(&f);
	outside.room = 1;
	assert_int_equal(post_tso(&f, 2500, 1000), 0);
	assert_int_equal(post(&f, 60), 0);
	vb_nic_run(f.fake.nic, 1);
	assert_int_equal(fake_modify(f.qp, VB_QPS_SQD, VB_QP_STATE), 0);
	assert_false(f.qp->sqd_notified);
	outside.room = -1;
	vb_nic_unblock(f.fake.nic);
	vb_nic_run(f.fake.nic, 2);
	assert_int_equal(outside.sent, 3);
	assert_true(f.qp->sqd_notified);
	assert_int_equal(fake_modify(f.qp, VB_QPS_RTS, VB_QP_STATE), 0);
	vb_nic_run(f.fake.nic, 3);
	assert_int_equal(outside.sent, 4);
	close_fixture(&f);
}

static void a_wrong_key_fails_the_request(void **state)
{
	struct fixture f;
	struct vb_cqe cqe;

	open_fixture(&f);
	f.mr->lkey ^= 0x80000000u;
	assert_int_equal(post(&f, 60), 0);
	f.mr->lkey ^= 0x80000000u;
	assert_int_equal(post(&f, 60), 0);
	vb_nic_run(f.fake.nic, 1);
	assert_int_equal(outside.sent, 0);
	assert_int_equal(vb_cq_poll(f.cq, &cqe, 1), 1);
	assert_int_equal(cqe.status, VB_WC_LOC_PROT_ERR);
	assert_int_equal(vb_cq_poll(f.cq, &cqe, 1), 1);
	assert_int_equal(cqe.status, VB_WC_WR_FLUSH_ERR);
	assert_int_equal(f.qp->state, VB_QPS_SQE);
	close_fixture(&f);
}

/* The sender's own rule gives it its own frame, which fails it: what is behind is flushed. */
static void hearing_itself_may_end_it(void **state)
{
	const struct vb_flow_init all = {.type = VB_FLOW_ALL_DEFAULT};
	const struct vb_sge sge = {.addr = 4096, .length = 20};
	struct vb_recv_wr wr = {.wr_id = 5, .num_sge = 1};
	struct vb_sge own = sge;
	struct vb_flow *flow;
	struct fixture f;
	struct vb_cqe cqe[4];

	open_fixture(&f);
	flow = vb_flow_create(f.qp, &all);
	assert_non_null(flow);
	assert_true(outside.everything);
	own.lkey = f.mr->lkey;
	wr.sges = &own;
	assert_int_equal(vb_qp_post_recv(f.qp, &wr), 0);
	assert_int_equal(post(&f, 60), 0);
	assert_int_equal(post(&f, 60), 0);
	vb_nic_run(f.fake.nic, 1);
	assert_int_equal(f.qp->state, VB_QPS_ERR);
	assert_int_equal(vb_cq_poll(f.cq, cqe, 4), 3);
	assert_int_equal(cqe[0].status, VB_WC_SUCCESS); /* it had left */
	assert_int_equal(cqe[1].status, VB_WC_LOC_LEN_ERR);
	assert_int_equal(cqe[1].wr_id, 5);
	assert_int_equal(cqe[2].status, VB_WC_WR_FLUSH_ERR);
	vb_flow_destroy(flow);
	assert_false(outside.everything);
	close_fixture(&f);
}

static void a_rule_that_cannot_be_heard_is_none(void **state)
{
	const struct vb_flow_init normal = {.type = VB_FLOW_NORMAL};
	struct fixture f;

	open_fixture(&f);
	outside.listen_result = -ENOMEM;
	assert_null(vb_flow_create(f.qp, &normal));
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(f.qp->flows, 0);
	assert_int_equal(f.fake.nic->raw->flow_count, 0);
	close_fixture(&f);
}

/* The verification suite of Microsoft's RSS, without ports, and IPv6 with and without. */
static void hashes_are_those_of_the_suite(void **state)
{
	struct vb_rss rss = {.key = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
				     0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
				     0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
				     0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa}};
	struct vb_frame frame = {.l3 = VB_L3_IPV4, .l4 = VB_L4_TCP};

	memcpy(frame.key.ip_src, "\x42\x09\x95\xbb", 4);
	memcpy(frame.key.ip_dst, "\xa1\x8e\x64\x50", 4);
	memcpy(frame.key.src_port, "\x0a\xea", 2);
	memcpy(frame.key.dst_port, "\x06\xe6", 2);
	assert_int_equal(vb_rss_hash(&rss, &frame), 0);
	rss.fields = VB_RSS_SRC_IPV4 | VB_RSS_DST_IPV4 | VB_RSS_SRC_PORT_UDP | VB_RSS_SRC_IPV6;
	assert_int_equal(vb_rss_hash(&rss, &frame), 0x323e8fc2);
	rss.fields = VB_RSS_SRC_IPV4 | VB_RSS_DST_IPV4 | VB_RSS_SRC_PORT_TCP | VB_RSS_DST_PORT_TCP;
	assert_int_equal(vb_rss_hash(&rss, &frame), 0x51ccc178);
	/* 3ffe:2501:200:1fff::7 2794 to 3ffe:2501:200:3::1 1766 */
	frame.l3 = VB_L3_IPV6;
	memcpy(frame.key.ip_src, "\x3f\xfe\x25\x01\x02\x00\x1f\xff\x00\x00\x00\x00\x00\x00\x00\x07",
	       16);
	memcpy(frame.key.ip_dst, "\x3f\xfe\x25\x01\x02\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x01",
	       16);
	rss.fields = VB_RSS_SRC_IPV6 | VB_RSS_DST_IPV6;
	assert_int_equal(vb_rss_hash(&rss, &frame), 0x2cc18cd5);
	rss.fields |= VB_RSS_SRC_PORT_TCP | VB_RSS_DST_PORT_TCP;
	assert_int_equal(vb_rss_hash(&rss, &frame), 0x40207d3d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_surroundings_are_asked_once),
		cmocka_unit_test(a_full_carrier_is_waited_for),
		cmocka_unit_test(draining_finishes_what_began),
		cmocka_unit_test(a_wrong_key_fails_the_request),
		cmocka_unit_test(hearing_itself_may_end_it),
		cmocka_unit_test(a_rule_that_cannot_be_heard_is_none),
		cmocka_unit_test(hashes_are_those_of_the_suite),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
