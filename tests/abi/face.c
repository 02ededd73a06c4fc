/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * face.c - the libibverbs face, called as a program calls it, within one process over 127.0.0.1:
 * what the man pages promise about arguments, events, descriptors, the ibv_wr_* calls and the
 * extended CQ.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <infiniband/verbs.h>

#define DEPTH 8
#define SIZE 4096
#define PATIENCE_MS 20000
#define IPV4_GID 1 /* the GID that is an IPv4 address */

#define SEND_OPS                                                                                   \
	(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |          \
	 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                           \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

/* Two RC queue pairs that are connected to each other, and a region for both. */
struct pair {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	struct ibv_qp_ex *ex;
	struct ibv_mr *mr;
	uint8_t *memory;
};

static struct ibv_context *open_first(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context;

	assert_non_null(list);
	assert_true(count >= 1);
	context = ibv_open_device(list[0]);
	assert_non_null(context);
	ibv_free_device_list(list);
	return context;
}

static struct ibv_qp *make_qp(struct pair *p, uint64_t operations)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = p,
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.cap = {DEPTH, DEPTH, 2, 2, 64},
		.qp_type = IBV_QPT_RC,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | (operations ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = p->pd,
		.send_ops_flags = operations,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(p->context, &attr);

	assert_non_null(qp);
	assert_int_equal(qp->state, IBV_QPS_RESET);
	return qp;
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

static void to_rts(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.sgid_index = IPV4_GID, .hop_limit = 64}},
	};

	assert_int_equal(ibv_query_gid(qp->context, 1, IPV4_GID, &attr.ah_attr.grh.dgid), 0);
	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
	assert_int_equal(qp->state, IBV_QPS_RTS);
}

static int connect_pair(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	int i;

	p->context = open_first();
	p->pd = ibv_alloc_pd(p->context);
	p->channel = ibv_create_comp_channel(p->context);
	p->cq = ibv_create_cq(p->context, 4 * DEPTH, p, p->channel, 0);
	p->memory = aligned_alloc(4096, SIZE);
	memset(p->memory, 0, SIZE);
	p->mr = ibv_reg_mr(p->pd, p->memory, SIZE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(p->cq);
	assert_non_null(p->mr);
	p->qp[0] = make_qp(p, SEND_OPS);
	p->qp[1] = make_qp(p, 0);
	p->ex = ibv_qp_to_qp_ex(p->qp[0]);
	assert_non_null(p->ex);
	assert_null(ibv_qp_to_qp_ex(p->qp[1]));
	for (i = 0; i < 2; i++)
		to_init(p->qp[i]);
	for (i = 0; i < 2; i++)
		to_rts(p->qp[i], p->qp[!i]->qp_num);
	*state = p;
	return 0;
}

static int disconnect_pair(void **state)
{
	struct pair *p = *state;
	int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(ibv_destroy_qp(p->qp[i]), 0);
	assert_int_equal(ibv_destroy_comp_channel(p->channel), EBUSY);
	assert_int_equal(ibv_destroy_cq(p->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(p->channel), 0);
	assert_int_equal(ibv_dealloc_pd(p->pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(p->mr), 0);
	assert_int_equal(ibv_dealloc_pd(p->pd), 0);
	assert_int_equal(ibv_close_device(p->context), 0);
	free(p->memory);
	free(p);
	return 0;
}

/* The next completion; fails the test when none comes. */
static struct ibv_wc await(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int tries, n = 0;

	for (tries = 0; tries < PATIENCE_MS && !n; tries++) {
		n = ibv_poll_cq(cq, 1, &wc);
		if (!n)
			poll(NULL, 0, 1);
	}
	assert_int_equal(n, 1);
	return wc;
}

static void post_recv(struct pair *p, uint64_t wr_id)
{
	struct ibv_sge sge = {(uintptr_t)p->memory + 2048, 1024, p->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(p->qp[1], &wr, &bad), 0);
}

static int post_send(struct pair *p, uint64_t wr_id, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)p->memory, length, p->mr->lkey};
	struct ibv_send_wr wr =
				   {
					   .wr_id = wr_id,
					   .sg_list = &sge,
					   .num_sge = 1,
					   .opcode = IBV_WR_SEND,
					   .send_flags = IBV_SEND_SIGNALED,
				   },
			   *bad = NULL;
	int error = ibv_post_send(p->qp[0], &wr, &bad);

	assert_ptr_equal(bad, error ? &wr : NULL);
	return error;
}

/* --- devices, ports, tables -------------------------------------------------------------- */

static void device_is_described(void **state)
{
	struct ibv_context *context = open_first(), *second = open_first();
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	__be16 pkey;

	assert_ptr_not_equal(context, second);
	assert_int_not_equal(context->async_fd, second->async_fd);
	assert_int_equal(ibv_close_device(second), 0);
	assert_string_equal(ibv_get_device_name(context->device), "verbena0");
	assert_int_equal(context->device->transport_type, IBV_TRANSPORT_IB);
	/* what libmlx5 and libefa look at to know their own */
	assert_null(*(void **)((char *)context->device + sizeof(struct ibv_device)));
	assert_int_equal(ibv_query_device(context, &attr), 0);
	assert_int_equal(attr.node_guid, ibv_get_device_guid(context->device));
	assert_int_equal(attr.phys_port_cnt, 1);
	assert_int_equal(ibv_query_device_ex(context, NULL, &ex), 0);
	assert_memory_equal(&ex.orig_attr, &attr, offsetof(struct ibv_device_attr, phys_port_cnt));
	assert_int_equal(ibv_query_port(context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(ibv_query_port(context, 0, &port), EINVAL);
	assert_int_equal(ibv_query_port(context, 2, &port), EINVAL);
	assert_int_equal(ibv_query_pkey(context, 1, 0, &pkey), 0);
	assert_int_equal(be16toh(pkey), 0xffff);
	assert_int_equal(ibv_query_pkey(context, 1, 1, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(context, 1, htobe16(0xffff)), 0);
	assert_int_equal(ibv_get_pkey_index(context, 1, htobe16(0x8001)), -1);
	assert_int_equal(ibv_close_device(context), 0);
}

static void gids_are_listed(void **state)
{
	struct ibv_context *context = open_first();
	struct ibv_gid_entry table[64], entry;
	union ibv_gid gid, zero = {.raw = {0}};
	struct ibv_port_attr port;
	ssize_t count;
	int i;

	assert_int_equal(ibv_query_port(context, 1, &port), 0);
	count = ibv_query_gid_table(context, table, 64, 0);
	assert_true(count >= 2 && count <= port.gid_tbl_len);
	for (i = 0; i < count; i++) {
		assert_int_equal(ibv_query_gid(context, 1, i, &gid), 0);
		assert_memory_equal(&gid, &table[i].gid, sizeof(gid));
		assert_int_equal(ibv_query_gid_ex(context, 1, (uint32_t)i, &entry, 0), 0);
		assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	}
	assert_int_equal(be64toh(table[0].gid.global.subnet_prefix), 0xfe80000000000000ull);
	assert_int_equal(table[1].gid.raw[10], 0xff); /* ::ffff:127.0.0.1 */
	assert_int_equal(table[1].gid.raw[12], 127);
	if (count < port.gid_tbl_len) {
		assert_int_equal(ibv_query_gid(context, 1, (int)count, &gid), 0);
		assert_memory_equal(&gid, &zero, sizeof(gid));
		assert_int_equal(ibv_query_gid_ex(context, 1, (uint32_t)count, &entry, 0), ENODATA);
	}
	assert_int_equal(ibv_query_gid(context, 1, port.gid_tbl_len, &gid), -1);
	assert_int_equal(ibv_query_gid(context, 2, 0, &gid), -1);
	assert_int_equal(ibv_close_device(context), 0);
}

/* --- what is refused, and changes nothing ------------------------------------------------ */

static void regions_refuse(void **state)
{
	struct pair *p = *state;
	struct ibv_mr *mr;

	errno = 0;
	assert_null(ibv_reg_mr(p->pd, p->memory, SIZE, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr(p->pd, p->memory, SIZE, 1 << 19));
	assert_int_equal(errno, EINVAL);
	/* implicit on demand begins at address 0 */
	assert_null(ibv_reg_mr_iova(p->pd, NULL, SIZE_MAX, 4096, IBV_ACCESS_ON_DEMAND));
	assert_int_equal(errno, EINVAL);
	mr = ibv_reg_mr(p->pd, p->memory, SIZE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	assert_non_null(mr);
	assert_int_equal(mr->length, SIZE);
	assert_ptr_equal(mr->addr, p->memory);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void objects_refuse(void **state)
{
	struct pair *p = *state;
	struct ibv_device_attr device;
	struct ibv_qp_init_attr init = {
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.cap = {1, 1, 1, 1, 0},
		.qp_type = 77,
	};
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.cap = {1, 1, 1, 1, 0},
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = p->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_cq_init_attr_ex cq = {.cqe = 1, .wc_flags = 1ull << 40};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};

	assert_int_equal(ibv_query_device(p->context, &device), 0);
	assert_null(ibv_create_cq(p->context, 0, NULL, NULL, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_cq(p->context, device.max_cqe + 1, NULL, NULL, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_cq(p->context, 1, NULL, NULL, p->context->num_comp_vectors));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_cq_ex(p->context, &cq));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_create_qp(p->pd, &init));
	assert_int_equal(errno, EINVAL);
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = (uint32_t)device.max_qp_wr + 1;
	assert_null(ibv_create_qp(p->pd, &init));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_qp_ex(p->context, &ex)); /* UD has no WRITE */
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_modify_qp(p->qp[0], &attr, IBV_QP_STATE | 1 << 30), EINVAL);
	assert_int_equal(ibv_modify_qp(p->qp[0], &attr, IBV_QP_STATE), EINVAL); /* RTS to INIT */
	assert_int_equal(p->qp[0]->state, IBV_QPS_RTS);
	assert_int_equal(ibv_destroy_cq(p->cq), EBUSY);
}

static void posts_refuse(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge = {(uintptr_t)p->memory, 8, p->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	struct ibv_recv_wr recv = {.num_sge = 3}, *bad_recv;
	struct ibv_wc wc;

	assert_int_equal(ibv_post_send(p->qp[0], NULL, &bad), 0);
	assert_int_equal(ibv_post_recv(p->qp[0], NULL, &bad_recv), 0);
	wr.send_flags = IBV_SEND_IP_CSUM;
	assert_int_equal(ibv_post_send(p->qp[0], &wr, &bad), EINVAL);
	wr.send_flags = 0;
	wr.opcode = IBV_WR_BIND_MW; /* of no window */
	assert_int_equal(ibv_post_send(p->qp[0], &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_DRIVER1;
	assert_int_equal(ibv_post_send(p->qp[0], &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_SEND;
	wr.num_sge = -1;
	assert_int_equal(ibv_post_send(p->qp[0], &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(ibv_post_recv(p->qp[0], &recv, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &recv);
	assert_int_equal(ibv_poll_cq(p->cq, 1, &wc), 0);
}

static void query_tells_what_was_set(void **state)
{
	struct pair *p = *state;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(p->qp[0], &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.path_mtu, IBV_MTU_1024);
	assert_int_equal(attr.dest_qp_num, p->qp[1]->qp_num);
	assert_int_equal(attr.timeout, 14);
	assert_int_equal(attr.ah_attr.grh.sgid_index, IPV4_GID);
	assert_true(attr.cap.max_send_wr >= DEPTH);
	assert_ptr_equal(init.send_cq, p->cq);
	assert_ptr_equal(init.qp_context, p);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
}

/* --- completion channels ----------------------------------------------------------------- */

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	return poll(&wait, 1, timeout_ms) == 1;
}

static void raise_event(struct pair *p)
{
	assert_int_equal(ibv_req_notify_cq(p->cq, 0), 0);
	post_recv(p, 1);
	assert_int_equal(post_send(p, 2, 16), 0);
	assert_true(is_readable(p->channel->fd, PATIENCE_MS));
	await(p->cq);
	await(p->cq);
}

static void channel_is_a_descriptor(void **state)
{
	struct pair *p = *state;
	struct ibv_cq *cq;
	void *context;

	assert_false(is_readable(p->channel->fd, 0));
	fcntl(p->channel->fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(ibv_get_cq_event(p->channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	raise_event(p);
	assert_int_equal(ibv_get_cq_event(p->channel, &cq, &context), 0);
	assert_ptr_equal(cq, p->cq);
	assert_ptr_equal(context, p);
	assert_false(is_readable(p->channel->fd, 0));
	/* not armed: completions raise nothing */
	post_recv(p, 3);
	assert_int_equal(post_send(p, 4, 16), 0);
	await(p->cq);
	await(p->cq);
	assert_int_equal(ibv_get_cq_event(p->channel, &cq, &context), -1);
	ibv_ack_cq_events(p->cq, 1);
}

/* Events that nobody took vanish with their CQ, and the descriptor is quiet again. */
static void events_vanish_with_their_cq(void **state)
{
	struct pair *p = *state;
	struct ibv_cq *second = ibv_create_cq(p->context, 4, NULL, p->channel, 0), *cq;
	struct ibv_cq *first = p->cq;
	void *context;
	int i;

	assert_non_null(second);
	raise_event(p);
	raise_event(p); /* two events wait */
	for (i = 0; i < 2; i++)
		assert_int_equal(ibv_destroy_qp(p->qp[i]), 0);
	assert_int_equal(ibv_destroy_cq(first), 0);
	assert_false(is_readable(p->channel->fd, 0));
	fcntl(p->channel->fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(ibv_get_cq_event(p->channel, &cq, &context), -1);
	p->cq = second;
	for (i = 0; i < 2; i++)
		p->qp[i] = make_qp(p, 0);
}

struct destroyer {
	struct ibv_cq *cq;
	atomic_bool done;
};

static void *destroy_cq(void *argument)
{
	struct destroyer *d = argument;

	assert_int_equal(ibv_destroy_cq(d->cq), 0);
	atomic_store(&d->done, true);
	return NULL;
}

static void destroy_waits_for_acknowledgement(void **state)
{
	struct pair *p = *state;
	struct destroyer d = {.cq = p->cq};
	struct ibv_cq *cq;
	pthread_t thread;
	void *context;
	int i;

	raise_event(p);
	raise_event(p);
	assert_int_equal(ibv_get_cq_event(p->channel, &cq, &context), 0);
	assert_int_equal(ibv_get_cq_event(p->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	p->cq = ibv_create_cq(p->context, 4, NULL, p->channel, 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(p->qp[i]), 0);
		p->qp[i] = make_qp(p, 0);
	}
	pthread_create(&thread, NULL, destroy_cq, &d);
	poll(NULL, 0, 50); /* a chance to go wrong */
	assert_false(atomic_load(&d.done));
	ibv_ack_cq_events(cq, 1);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&d.done));
}

/* --- async events ------------------------------------------------------------------------ */

static void async_events_are_told(void **state)
{
	struct pair *p = *state;
	struct ibv_async_event event;
	struct ibv_wc wc;

	fcntl(p->context->async_fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(ibv_get_async_event(p->context, &event), -1);
	assert_int_equal(errno, EAGAIN);
	/* an rkey of nobody: the responder's QP is told of the access error */
	{
		struct ibv_sge sge = {(uintptr_t)p->memory, 8, p->mr->lkey};
		struct ibv_send_wr wr =
					   {
						   .wr_id = 5,
						   .sg_list = &sge,
						   .num_sge = 1,
						   .opcode = IBV_WR_RDMA_WRITE,
						   .send_flags = IBV_SEND_SIGNALED,
						   .wr.rdma = {(uintptr_t)p->memory,
							       p->mr->rkey ^ 0x80000000u},
					   },
				   *bad;

		assert_int_equal(ibv_post_send(p->qp[0], &wr, &bad), 0);
	}
	wc = await(p->cq);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.wr_id, 5);
	assert_true(is_readable(p->context->async_fd, PATIENCE_MS));
	assert_int_equal(ibv_get_async_event(p->context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(event.element.qp, p->qp[1]);
	ibv_ack_async_event(&event);
	assert_int_equal(p->qp[1]->events_completed, 1);
}

/* --- the ibv_wr_ functions --------------------------------------------------------------- */

static void builder_posts_every_operation(void **state)
{
	struct pair *p = *state;
	uint64_t *word = (uint64_t *)(p->memory + 1024);
	uint8_t text[] = "inline";
	struct ibv_wc wc;

	*word = 40;
	memset(p->memory, 'a', 64);
	ibv_wr_start(p->ex);
	p->ex->wr_flags = IBV_SEND_SIGNALED;
	p->ex->wr_id = 1;
	ibv_wr_rdma_write(p->ex, p->mr->rkey, (uintptr_t)p->memory + 512);
	ibv_wr_set_sge(p->ex, p->mr->lkey, (uintptr_t)p->memory, 64);
	p->ex->wr_id = 2;
	ibv_wr_rdma_read(p->ex, p->mr->rkey, (uintptr_t)p->memory + 512);
	ibv_wr_set_sge(p->ex, p->mr->lkey, (uintptr_t)p->memory + 640, 64);
	p->ex->wr_id = 3;
	ibv_wr_atomic_fetch_add(p->ex, p->mr->rkey, (uintptr_t)word, 2);
	ibv_wr_set_sge(p->ex, p->mr->lkey, (uintptr_t)(word + 1), 8);
	p->ex->wr_id = 4;
	ibv_wr_atomic_cmp_swp(p->ex, p->mr->rkey, (uintptr_t)word, 42, 7);
	ibv_wr_set_sge(p->ex, p->mr->lkey, (uintptr_t)(word + 2), 8);
	assert_int_equal(ibv_wr_complete(p->ex), 0);
	for (uint64_t id = 1; id <= 4; id++) {
		wc = await(p->cq);
		assert_int_equal(wc.wr_id, id);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	assert_memory_equal(p->memory + 512, p->memory, 64);
	assert_memory_equal(p->memory + 640, p->memory, 64);
	assert_int_equal(word[1], 40);
	assert_int_equal(word[2], 42);
	assert_int_equal(word[0], 7);

	post_recv(p, 10);
	ibv_wr_start(p->ex);
	p->ex->wr_id = 5;
	ibv_wr_send_imm(p->ex, htobe32(0x01020304));
	ibv_wr_set_inline_data(p->ex, text, sizeof(text));
	memset(text, 0, sizeof(text)); /* free to be used again at once */
	assert_int_equal(ibv_wr_complete(p->ex), 0);
	for (int i = 0; i < 2; i++) {
		wc = await(p->cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode != IBV_WC_RECV)
			continue;
		assert_int_equal(wc.wr_id, 10);
		assert_int_equal(wc.byte_len, 7);
		assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
		assert_int_equal(wc.imm_data, htobe32(0x01020304));
		assert_string_equal((char *)p->memory + 2048, "inline");
	}
}

static void builder_is_all_or_nothing(void **state)
{
	struct pair *p = *state;
	struct ibv_data_buf huge = {p->memory, SIZE_MAX};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	uint32_t i;

	assert_int_equal(ibv_query_qp(p->qp[0], &attr, 0, &init), 0);
	p->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(p->ex);
	for (i = 0; i <= attr.cap.max_send_wr; i++) {
		ibv_wr_rdma_write(p->ex, p->mr->rkey, (uintptr_t)p->memory);
		ibv_wr_set_sge(p->ex, p->mr->lkey, (uintptr_t)p->memory, 8);
	}
	assert_int_equal(ibv_wr_complete(p->ex), ENOMEM);
	ibv_wr_start(p->ex);
	ibv_wr_send(p->ex);
	ibv_wr_set_inline_data_list(p->ex, 1, &huge);
	assert_int_equal(ibv_wr_complete(p->ex), EINVAL);
	ibv_wr_start(p->ex);
	ibv_wr_set_sge(p->ex, p->mr->lkey, (uintptr_t)p->memory, 8); /* of no request */
	assert_int_equal(ibv_wr_complete(p->ex), EINVAL);
	ibv_wr_start(p->ex);
	ibv_wr_rdma_write(p->ex, p->mr->rkey, (uintptr_t)p->memory);
	ibv_wr_abort(p->ex);
	ibv_wr_start(p->ex);
	assert_int_equal(ibv_wr_complete(p->ex), 0);
	assert_int_equal(ibv_poll_cq(p->cq, 1, &wc), 0);
}

/* --- the extended CQ --------------------------------------------------------------------- */

static void iterator_reads_completions(void **state)
{
	struct pair *p = *state;
	struct ibv_cq_init_attr_ex init = {
		.cqe = 16,
		.channel = p->channel,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(p->context, &init);
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_cq *first = p->cq;
	int error = ENOENT, tries, i;
	uint64_t before;

	assert_non_null(ex);
	p->cq = ibv_cq_ex_to_cq(ex);
	for (i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(p->qp[i]), 0);
		p->qp[i] = make_qp(p, 0);
		to_init(p->qp[i]);
	}
	assert_int_equal(ibv_destroy_cq(first), 0);
	for (i = 0; i < 2; i++)
		to_rts(p->qp[i], p->qp[!i]->qp_num);
	assert_int_equal(ibv_start_poll(ex, &attr), ENOENT);
	post_recv(p, 70);
	assert_int_equal(post_send(p, 71, 100), 0);
	for (i = 0; i < 2; i++) {
		for (tries = 0; tries < PATIENCE_MS && error == ENOENT; tries++) {
			error = ibv_start_poll(ex, &attr);
			if (error)
				poll(NULL, 0, 1);
		}
		assert_int_equal(error, 0);
		assert_int_equal(ex->status, IBV_WC_SUCCESS);
		assert_true(ex->wr_id == 70 || ex->wr_id == 71);
		if (ex->wr_id == 70) {
			assert_int_equal(ibv_wc_read_opcode(ex), IBV_WC_RECV);
			assert_int_equal(ibv_wc_read_byte_len(ex), 100);
			assert_int_equal(ibv_wc_read_qp_num(ex), p->qp[1]->qp_num);
		}
		before = ibv_wc_read_completion_ts(ex);
		assert_true(before > 0);
		error = ENOENT;
		ibv_end_poll(ex);
	}
}

/* --- addresses --------------------------------------------------------------------------- */

static void sender_is_found_in_the_header(void **state)
{
	struct ibv_context *context = open_first();
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
	struct ibv_ah_attr attr;
	union {
		struct ibv_grh grh;
		uint8_t bytes[40];
	} header = {.bytes = {0}};
	/* 10.0.0.9 to 127.0.0.1, UDP, TTL 64, TOS 8, length 84; the checksum by hand */
	static const uint8_t ipv4[20] = {0x45, 8, 0,  84, 0, 0, 0x40, 0, 64, 17,
					 0,    0, 10, 0,  0, 9, 127,  0, 0,  1};
	uint32_t sum = 0;
	int i;

	memcpy(header.bytes + 20, ipv4, 20);
	for (i = 0; i < 20; i += 2)
		sum += (uint32_t)(ipv4[i] << 8 | ipv4[i + 1]);
	sum = 0xffff - ((sum & 0xffff) + (sum >> 16));
	header.bytes[30] = (uint8_t)(sum >> 8);
	header.bytes[31] = (uint8_t)sum;
	assert_int_equal(ibv_init_ah_from_wc(context, 1, &wc, &header.grh, &attr), 0);
	assert_int_equal(attr.is_global, 1);
	assert_int_equal(attr.grh.sgid_index, IPV4_GID);
	assert_int_equal(attr.grh.traffic_class, 8);
	assert_int_equal(attr.grh.dgid.raw[11], 0xff);
	assert_memory_equal(attr.grh.dgid.raw + 12, ipv4 + 12, 4);
	header.bytes[31]++;
	assert_int_equal(ibv_init_ah_from_wc(context, 1, &wc, &header.grh, &attr), -1);
	assert_int_equal(ibv_init_ah_from_wc(context, 2, &wc, &header.grh, &attr), -1);
	wc.wc_flags = 0;
	assert_int_equal(ibv_init_ah_from_wc(context, 1, &wc, NULL, &attr), 0);
	assert_int_equal(attr.is_global, 0);
	assert_int_equal(ibv_close_device(context), 0);
}

/* --- the end ----------------------------------------------------------------------------- */

/* Closing with live objects, and what a program may still do with them. */
static void close_with_live_objects(void **state)
{
	struct pair *p = *state;
	struct ibv_wc wc;
	struct ibv_pd *pd;
	int i;

	post_recv(p, 1);
	assert_int_equal(ibv_close_device(p->context), 0);
	assert_int_equal(post_send(p, 2, 8), EIO);
	assert_true(ibv_poll_cq(p->cq, 1, &wc) < 0);
	assert_int_equal(ibv_req_notify_cq(p->cq, 0), EIO);
	for (i = 0; i < 2; i++)
		assert_int_equal(ibv_destroy_qp(p->qp[i]), 0);
	assert_int_equal(ibv_destroy_cq(p->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(p->channel), 0);
	assert_int_equal(ibv_dereg_mr(p->mr), 0);
	assert_int_equal(ibv_dealloc_pd(p->pd), 0);
	free(p->memory);
	/* the device opens again */
	p->context = open_first();
	pd = ibv_alloc_pd(p->context);
	assert_non_null(pd);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(p->context), 0);
	free(p);
}

/* A child holds nothing of the parent's device, and takes nothing from it. */
static void child_refuses(void **state)
{
	struct pair *p = *state;
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct ibv_wc wc;
		struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
		bool ok = ibv_post_recv(p->qp[1], &wr, &bad) == EIO &&
			  ibv_poll_cq(p->cq, 1, &wc) <= 0 && ibv_destroy_qp(p->qp[0]) == 0;

		_exit(ok ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	post_recv(p, 1);
	assert_int_equal(post_send(p, 2, 8), 0);
	assert_int_equal(await(p->cq).status, IBV_WC_SUCCESS);
	assert_int_equal(await(p->cq).status, IBV_WC_SUCCESS);
}

int main(void)
{
#define CONNECTED(test) cmocka_unit_test_setup_teardown(test, connect_pair, disconnect_pair)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_is_described),
		cmocka_unit_test(gids_are_listed),
		cmocka_unit_test(sender_is_found_in_the_header),
		CONNECTED(regions_refuse),
		CONNECTED(objects_refuse),
		CONNECTED(posts_refuse),
		CONNECTED(query_tells_what_was_set),
		CONNECTED(channel_is_a_descriptor),
		CONNECTED(events_vanish_with_their_cq),
		CONNECTED(destroy_waits_for_acknowledgement),
		CONNECTED(async_events_are_told),
		CONNECTED(builder_posts_every_operation),
		CONNECTED(builder_is_all_or_nothing),
		CONNECTED(iterator_reads_completions),
		CONNECTED(child_refuses),
		cmocka_unit_test_setup(close_with_live_objects, connect_pair),
	};

	setenv("VERBENA_ADDR", "127.0.0.1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
