/* SPDX-License-Identifier: BSD-2-Clause */
/* UD multicast: every attached queue pair gets one copy, nobody else does, and what cannot be
 * attached says so. */
#include "edge.h"

#include <arpa/inet.h>
#include <unistd.h>

#define QKEY 0x11223344 /* edge.c's */

static union ibv_gid group(const char *ipv4)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	assert_int_equal(inet_pton(AF_INET, ipv4, &gid.raw[12]), 1);
	/* all virtual hosts share one interface: tests that run beside this one have other groups
	 */
	gid.raw[13] = (uint8_t)getpid();
	gid.raw[14] = (uint8_t)(getpid() >> 8);
	return gid;
}

static struct ibv_ah *handle_of(struct edge_end *end, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.grh = {.dgid = *gid, .sgid_index = 1, .hop_limit = 1},
		.port_num = 1,
	};
	struct ibv_ah *ah = ibv_create_ah(end->pd, &attr);

	assert_non_null(ah);
	return ah;
}

static void send_to(struct edge_end *end, struct ibv_ah *ah, uint64_t wr_id, const char *text)
{
	struct ibv_sge sge = {(uintptr_t)end->buffer + 8192, (uint32_t)strlen(text), end->mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = wr_id,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.ud = {ah, 0xffffff, QKEY},
				 };

	memcpy(end->buffer + 8192, text, strlen(text));
	assert_int_equal(ibv_post_send(end->qp, &wr, &bad), 0);
	edge_expect(end->cq, wr_id, IBV_WC_SUCCESS);
}

static void every_member_gets_one_copy(void **state)
{
	union ibv_gid gid = group("239.0.0.2"), other = group("239.0.0.3");
	struct edge_pair pair;
	struct ibv_ah *ah, *elsewhere;
	struct ibv_wc wc;

	edge_open(&pair, &(struct edge_options){.type = IBV_QPT_UD});
	ah = handle_of(&pair.a, &gid);
	elsewhere = handle_of(&pair.a, &other);
	assert_int_equal(ibv_attach_mcast(pair.b.qp, &gid, 0), 0);
	assert_int_equal(ibv_attach_mcast(pair.b.qp, &gid, 0), 0); /* no second copy */
	edge_post_recv(&pair.b, 1, 0, 200);
	edge_post_recv(&pair.b, 2, 1024, 200);
	send_to(&pair.a, elsewhere, 10, "not for you");
	send_to(&pair.a, ah, 11, "to all");
	wc = edge_expect(pair.b.cq, 1, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 40 + 6);
	assert_int_equal(wc.src_qp, pair.a.qp->qp_num);
	assert_memory_equal(pair.b.buffer + 40, "to all", 6);
	assert_memory_equal(pair.b.buffer + 36, &gid.raw[12], 4); /* the destination address */
	edge_expect_none(pair.b.cq);

	/* the sender is a member like any other */
	assert_int_equal(ibv_attach_mcast(pair.a.qp, &gid, 0), 0);
	edge_post_recv(&pair.a, 3, 0, 200);
	{
		struct ibv_sge sge = {(uintptr_t)pair.b.buffer + 8192, 4, pair.b.mr->lkey};
		struct ibv_ah *from_b = handle_of(&pair.b, &gid);
		struct ibv_send_wr *bad, wr = {
						 .wr_id = 12,
						 .sg_list = &sge,
						 .num_sge = 1,
						 .opcode = IBV_WR_SEND,
						 .wr.ud = {from_b, 0xffffff, QKEY},
					 };

		assert_int_equal(ibv_post_send(pair.b.qp, &wr, &bad), 0);
		edge_expect(pair.a.cq, 3, IBV_WC_SUCCESS);
		edge_expect(pair.b.cq, 2, IBV_WC_SUCCESS);
		assert_int_equal(ibv_destroy_ah(from_b), 0);
	}

	/* who left gets nothing */
	assert_int_equal(ibv_detach_mcast(pair.b.qp, &gid, 0), 0);
	edge_post_recv(&pair.b, 4, 0, 200);
	edge_post_recv(&pair.a, 5, 0, 200);
	send_to(&pair.a, ah, 13, "only me");
	edge_expect(pair.a.cq, 5, IBV_WC_SUCCESS);
	edge_expect_none(pair.b.cq);
	assert_int_equal(ibv_detach_mcast(pair.a.qp, &gid, 0), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_destroy_ah(elsewhere), 0);
	edge_close(&pair);
}

static void what_cannot_be_attached(void **state)
{
	union ibv_gid gid = group("239.0.0.2"), unicast = group("10.1.2.3");
	struct edge_pair pair;

	edge_open(&pair, &(struct edge_options){.type = IBV_QPT_UD});
	assert_int_equal(ibv_attach_mcast(pair.b.qp, &unicast, 0), EINVAL);
	assert_int_equal(ibv_detach_mcast(pair.b.qp, &gid, 0), EINVAL);
	assert_int_equal(ibv_attach_mcast(pair.b.qp, &gid, 0), 0);
	assert_int_equal(ibv_destroy_qp(pair.b.qp), EBUSY);
	assert_int_equal(ibv_detach_mcast(pair.b.qp, &gid, 0), 0);
	edge_close(&pair);

	edge_open(&pair, &(struct edge_options){.type = IBV_QPT_RC});
	assert_int_equal(ibv_attach_mcast(pair.b.qp, &gid, 0), EINVAL);
	/* and it cannot be connected to a group */
	{
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

		assert_int_equal(ibv_modify_qp(pair.b.qp, &attr, IBV_QP_STATE), 0);
		attr.qp_state = IBV_QPS_INIT;
		attr.port_num = 1;
		assert_int_equal(ibv_modify_qp(pair.b.qp, &attr,
					       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						       IBV_QP_ACCESS_FLAGS),
				 0);
		attr = (struct ibv_qp_attr){
			.qp_state = IBV_QPS_RTR,
			.path_mtu = IBV_MTU_1024,
			.dest_qp_num = 0xffffff,
			.ah_attr = {.is_global = 1,
				    .grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 1},
				    .port_num = 1},
		};
		assert_int_equal(ibv_modify_qp(pair.b.qp, &attr,
					       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						       IBV_QP_MAX_DEST_RD_ATOMIC |
						       IBV_QP_MIN_RNR_TIMER),
				 EINVAL);
	}
	edge_close(&pair);
}

static void more_groups_than_there_may_be(void **state)
{
	struct ibv_device_attr attr;
	struct edge_pair pair;
	union ibv_gid gid;
	char text[32];
	int n;

	edge_open(&pair, &(struct edge_options){.type = IBV_QPT_UD});
	assert_int_equal(ibv_query_device(pair.b.context, &attr), 0);
	assert_true(attr.max_mcast_grp > 0);
	for (n = 0; n < attr.max_mcast_grp; n++) {
		snprintf(text, sizeof(text), "239.0.0.%d", n + 1);
		gid = group(text);
		if (ibv_attach_mcast(pair.b.qp, &gid, 0))
			break;
	}
	/* the kernel has a limit of its own (igmp_max_memberships is for one socket; each of ours
	 * has one) */
	assert_int_equal(n, attr.max_mcast_grp);
	gid = group("239.0.0.250");
	assert_int_equal(ibv_attach_mcast(pair.b.qp, &gid, 0), ENOMEM);
	for (n = 0; n < attr.max_mcast_grp; n++) {
		snprintf(text, sizeof(text), "239.0.0.%d", n + 1);
		gid = group(text);
		assert_int_equal(ibv_detach_mcast(pair.b.qp, &gid, 0), 0);
	}
	assert_int_equal(ibv_attach_mcast(pair.b.qp, &gid, 0), 0);
	assert_int_equal(ibv_detach_mcast(pair.b.qp, &gid, 0), 0);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_member_gets_one_copy),
		cmocka_unit_test(what_cannot_be_attached),
		cmocka_unit_test(more_groups_than_there_may_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
