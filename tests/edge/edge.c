/* SPDX-License-Identifier: BSD-2-Clause */
/* edge.c - see edge.h. */
#include "edge.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WAIT_SECONDS 20.0

double edge_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Addresses of this process's own: tests run side by side, and one of them as another user, who
 * then has the port of its address for himself. */
static void choose_hosts(void)
{
	const char *topology = getenv("VB_EDGE_TOPOLOGY");
	unsigned int high = 64 + (unsigned int)getpid() / 256 % 64,
		     low = (unsigned int)getpid() % 256;
	char hosts[64];

	assert_non_null(topology);
	snprintf(hosts, sizeof(hosts),
		 strcmp(topology, "wire") == 0 ? "127.%u.%u.4,127.%u.%u.5" : "127.%u.%u.4", high,
		 low, high, low);
	setenv("VERBENA_ADDR", hosts, 1);
}

static void fill_in_defaults(struct edge_options *o)
{
	if (!o->type)
		o->type = IBV_QPT_RC;
	if (!o->cap_is_exact && !o->cap.max_send_wr)
		o->cap = (struct ibv_qp_cap){16, 16, 4, 4, 64};
}

static int or_default(int value, int fallback)
{
	return value < 0 ? 0 : value == 0 ? fallback : value;
}

/* Tag matching takes the send queue for itself. */
static void make_tm_srq(struct edge_end *end)
{
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 256,
		.channel = end->channel,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO,
	};
	struct ibv_srq_init_attr_ex srq = {
		.attr = {.max_wr = 64, .max_sge = 4},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = end->srq_pd,
		.tm_cap = {.max_num_tags = 64, .max_ops = 64},
	};

	end->tm_cq = ibv_create_cq_ex(end->context, &cq);
	assert_non_null(end->tm_cq);
	srq.cq = ibv_cq_ex_to_cq(end->tm_cq);
	end->srq = ibv_create_srq_ex(end->context, &srq);
	assert_non_null(end->srq);
}

static void make_srq(struct edge_end *end, const struct edge_options *o)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 64, .max_sge = 4}};

	end->srq_pd = o->srq_in_own_pd ? ibv_alloc_pd(end->context) : end->pd;
	assert_non_null(end->srq_pd);
	end->srq_mr = ibv_reg_mr(end->srq_pd, end->buffer, EDGE_BUFFER, EDGE_ALL_ACCESS);
	assert_non_null(end->srq_mr);
	if (o->tm_at_b) {
		make_tm_srq(end);
		return;
	}
	end->srq = ibv_create_srq(end->srq_pd, &attr);
	assert_non_null(end->srq);
}

static struct ibv_qp *create_qp_ex(const struct edge_end *end, const struct edge_options *o)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.srq = end->srq,
		.cap = o->cap,
		.qp_type = o->type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = o->send_ops,
	};

	return ibv_create_qp_ex(end->context, &init);
}

static void open_end(struct edge_end *end, struct ibv_device *device, const struct edge_options *o,
		     bool srq)
{
	end->context = ibv_open_device(device);
	assert_non_null(end->context);
	end->pd = ibv_alloc_pd(end->context);
	assert_non_null(end->pd);
	end->channel = ibv_create_comp_channel(end->context);
	assert_non_null(end->channel);
	end->cq = ibv_create_cq(end->context, o->cq_entries ? (int)o->cq_entries : 256, NULL,
				end->channel, 0);
	assert_non_null(end->cq);
	end->buffer =
		mmap(NULL, EDGE_BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(end->buffer != MAP_FAILED);
	end->mr = ibv_reg_mr(end->pd, end->buffer, EDGE_BUFFER, EDGE_ALL_ACCESS);
	assert_non_null(end->mr);
	if (srq)
		make_srq(end, o);

	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.srq = end->srq,
		.cap = o->cap,
		.qp_type = o->type,
	};

	if (end->tm_cq)
		init.cap.max_send_wr = 0;
	end->qp = o->send_ops ? create_qp_ex(end, o) : ibv_create_qp(end->pd, &init);
	assert_non_null(end->qp);
	assert_int_equal(ibv_query_gid(end->context, 1, o->gid_index < 0 ? 0 : 1, &end->gid), 0);
}

static void to_init(struct ibv_qp *qp, const struct edge_options *o)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = (unsigned int)or_default(o->qp_access, EDGE_ALL_ACCESS),
		.qkey = EDGE_QKEY,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
}

static struct ibv_ah_attr address_of(const union ibv_gid *gid, const struct edge_options *o)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = *gid, .sgid_index = o->gid_index < 0 ? 0 : 1, .hop_limit = 64},
	};
}

/* What is still under way of an earlier connection of the same queue pairs must not be taken for
 * what belongs to the new one. */
static uint32_t reconnections;

static uint32_t first_psn(uint32_t qpn)
{
	return (qpn + reconnections * 0x9e371u) & 0xffffff;
}

static void to_rtr(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid,
		   const struct edge_options *o)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = o->mtu ? o->mtu : IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = first_psn(peer),
		.max_dest_rd_atomic = (uint8_t)or_default(o->max_dest_rd_atomic, 4),
		.min_rnr_timer = o->rnr_timer_is_exact || o->min_rnr_timer ? o->min_rnr_timer : 1,
		.ah_attr = address_of(gid, o),
	};
	int mask = IBV_QP_STATE;

	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
}

static void to_rts(struct ibv_qp *qp, const struct edge_options *o)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = first_psn(qp->qp_num),
		.timeout = o->timeout ? o->timeout : 14,
		.retry_cnt = (uint8_t)or_default(o->retry_cnt, 7),
		.rnr_retry = (uint8_t)or_default(o->rnr_retry, 7),
		.max_rd_atomic = (uint8_t)or_default(o->max_rd_atomic, 4),
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	else if (qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_TIMEOUT;
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
}

void edge_connect_qp(struct ibv_qp *qp, const struct ibv_qp *peer, const union ibv_gid *gid,
		     unsigned int access)
{
	const struct edge_options usual = {.qp_access = (int)access};

	to_init(qp, &usual);
	to_rtr(qp, peer->qp_num, gid, &usual);
	to_rts(qp, &usual);
}

static void connect_ends(struct edge_pair *pair)
{
	const struct edge_options *o = &pair->options;
	struct ibv_qp *a = pair->a.qp, *b = pair->b.qp;

	to_init(a, o);
	to_init(b, o);
	to_rtr(b, a->qp_num, &pair->a.gid, o);
	to_rtr(a, b->qp_num, &pair->b.gid, o);
	to_rts(a, o);
	if (!o->leave_in_rtr)
		to_rts(b, o);
}

void edge_open(struct edge_pair *pair, const struct edge_options *options)
{
	int count = 0;

	memset(pair, 0, sizeof(*pair));
	pair->options = *options;
	fill_in_defaults(&pair->options);
	choose_hosts();
	pair->list = ibv_get_device_list(&count);
	assert_non_null(pair->list);
	assert_true(count >= 1);
	open_end(&pair->a, pair->list[0], &pair->options, false);
	open_end(&pair->b, pair->list[count > 1 ? 1 : 0], &pair->options, pair->options.srq_at_b);
	connect_ends(pair);
	if (pair->options.type == IBV_QPT_UD) {
		struct ibv_ah_attr to_b = address_of(&pair->b.gid, &pair->options);
		struct ibv_ah_attr to_a = address_of(&pair->a.gid, &pair->options);

		pair->a.ah = ibv_create_ah(pair->a.pd, &to_b);
		pair->b.ah = ibv_create_ah(pair->b.pd, &to_a);
		assert_non_null(pair->a.ah);
		assert_non_null(pair->b.ah);
	}
}

void edge_reconnect(struct edge_pair *pair)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(ibv_modify_qp(pair->a.qp, &reset, IBV_QP_STATE), 0);
	assert_int_equal(ibv_modify_qp(pair->b.qp, &reset, IBV_QP_STATE), 0);
	reconnections++;
	connect_ends(pair);
}

static void close_end(struct edge_end *end)
{
	if (end->ah)
		assert_int_equal(ibv_destroy_ah(end->ah), 0);
	assert_int_equal(ibv_destroy_qp(end->qp), 0);
	if (end->srq) {
		assert_int_equal(ibv_destroy_srq(end->srq), 0);
		if (end->tm_cq)
			assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(end->tm_cq)), 0);
		assert_int_equal(ibv_dereg_mr(end->srq_mr), 0);
		if (end->srq_pd != end->pd)
			assert_int_equal(ibv_dealloc_pd(end->srq_pd), 0);
	}
	assert_int_equal(ibv_dereg_mr(end->mr), 0);
	assert_int_equal(ibv_destroy_cq(end->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(end->channel), 0);
	assert_int_equal(ibv_dealloc_pd(end->pd), 0);
	assert_int_equal(ibv_close_device(end->context), 0);
	munmap(end->buffer, EDGE_BUFFER);
}

void edge_close(struct edge_pair *pair)
{
	close_end(&pair->a);
	close_end(&pair->b);
	ibv_free_device_list(pair->list);
}

struct ibv_wc edge_wait(struct ibv_cq *cq)
{
	const double until = edge_seconds() + WAIT_SECONDS;
	struct ibv_wc wc;
	int n;

	do {
		n = ibv_poll_cq(cq, 1, &wc);
		assert_true(n >= 0);
	} while (n == 0 && edge_seconds() < until);
	assert_int_equal(n, 1);
	return wc;
}

struct ibv_wc edge_expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = edge_wait(cq);

	if (wc.status != status || wc.wr_id != wr_id)
		print_error("wr_id %lu status %s, expected wr_id %lu status %s\n",
			    (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status),
			    (unsigned long)wr_id, ibv_wc_status_str(status));
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
	return wc;
}

void edge_expect_none(struct ibv_cq *cq)
{
	const double until = edge_seconds() + 0.005;
	struct ibv_wc wc;

	do {
		assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
	} while (edge_seconds() < until);
}

void edge_post_recv(struct edge_end *end, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)end->buffer + offset, length, end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	if (end->srq) {
		sge.lkey = end->srq_mr->lkey;
		assert_int_equal(ibv_post_srq_recv(end->srq, &wr, &bad), 0);
	} else {
		assert_int_equal(ibv_post_recv(end->qp, &wr, &bad), 0);
	}
}

int edge_post(struct edge_end *from, const struct edge_end *to, uint64_t wr_id,
	      enum ibv_wr_opcode opcode, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)from->buffer + offset, length, from->mr->lkey};
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (from->qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = from->ah;
		wr.wr.ud.remote_qpn = to->qp->qp_num;
		wr.wr.ud.remote_qkey = EDGE_QKEY;
	} else if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)to->buffer + offset;
		wr.wr.atomic.rkey = to->mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)to->buffer + offset;
		wr.wr.rdma.rkey = to->mr->rkey;
	}
	return ibv_post_send(from->qp, &wr, &bad);
}

static uint8_t filling(size_t i, uint32_t seed)
{
	return (uint8_t)((i + seed) * 2654435761u >> 13);
}

void edge_fill(uint8_t *at, size_t bytes, uint32_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = filling(i, seed);
}

bool edge_is_filled(const uint8_t *at, size_t bytes, uint32_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != filling(i, seed))
			return false;
	return true;
}

enum ibv_qp_state edge_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}
