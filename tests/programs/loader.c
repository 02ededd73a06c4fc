/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * loader.c - comes to the verbs as NCCL does: linked with no verbs library, it opens libibverbs.so
 * by name, takes each function at its node, and posts and polls through the context's table.
 * Between the first and the last device it writes with immediate data, as NCCL's transport does.
 *
 *      loader PATH       PATH: the library that must be what was opened
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#undef ibv_reg_mr
#undef ibv_query_port

#define PATIENCE_S 30
#define PIECES 64u
#define PIECE 65536u
#define DEPTH 16u

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "loader.c:%d: %s (errno %d)\n", __LINE__, #condition,      \
				errno);                                                            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* What NCCL 2.x takes, and where. */
#define SYMBOLS(X)                                                                                 \
	X(ibv_get_device_list, "IBVERBS_1.1")                                                      \
	X(ibv_free_device_list, "IBVERBS_1.1")                                                     \
	X(ibv_get_device_name, "IBVERBS_1.1")                                                      \
	X(ibv_open_device, "IBVERBS_1.1")                                                          \
	X(ibv_close_device, "IBVERBS_1.1")                                                         \
	X(ibv_get_async_event, "IBVERBS_1.1")                                                      \
	X(ibv_ack_async_event, "IBVERBS_1.1")                                                      \
	X(ibv_query_device, "IBVERBS_1.1")                                                         \
	X(ibv_query_port, "IBVERBS_1.1")                                                           \
	X(ibv_query_gid, "IBVERBS_1.1")                                                            \
	X(ibv_query_qp, "IBVERBS_1.1")                                                             \
	X(ibv_alloc_pd, "IBVERBS_1.1")                                                             \
	X(ibv_dealloc_pd, "IBVERBS_1.1")                                                           \
	X(ibv_reg_mr, "IBVERBS_1.1")                                                               \
	X(ibv_reg_mr_iova2, "IBVERBS_1.8")                                                         \
	X(ibv_reg_dmabuf_mr, "IBVERBS_1.12")                                                       \
	X(ibv_dereg_mr, "IBVERBS_1.1")                                                             \
	X(ibv_create_cq, "IBVERBS_1.1")                                                            \
	X(ibv_destroy_cq, "IBVERBS_1.1")                                                           \
	X(ibv_create_qp, "IBVERBS_1.1")                                                            \
	X(ibv_modify_qp, "IBVERBS_1.1")                                                            \
	X(ibv_destroy_qp, "IBVERBS_1.1")                                                           \
	X(ibv_fork_init, "IBVERBS_1.1")                                                            \
	X(ibv_event_type_str, "IBVERBS_1.1")                                                       \
	X(ibv_query_ece, "IBVERBS_1.10")                                                           \
	X(ibv_set_ece, "IBVERBS_1.10")

#define MEMBER(name, node) __typeof__(name) *name;
static struct {
	SYMBOLS(MEMBER)
} verbs;

static void load(const char *expected)
{
	void *library = dlopen("libibverbs.so", RTLD_NOW);
	char wanted[4096], got[4096];
	Dl_info info;

	if (!library)
		library = dlopen("libibverbs.so.1", RTLD_NOW);
	CHECK(library);
#define TAKE(name, node)                                                                           \
	*(void **)&verbs.name = dlvsym(library, #name, node);                                      \
	CHECK(verbs.name);
	SYMBOLS(TAKE)
	CHECK(dladdr((void *)(uintptr_t)verbs.ibv_open_device, &info));
	CHECK(realpath(expected, wanted) && realpath(info.dli_fname, got));
	CHECK(strcmp(wanted, got) == 0);
}

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	uint8_t *memory;
};

static void open_end(struct end *end, struct ibv_device *device)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {2 * DEPTH, DEPTH, 1, 1, 16},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_port_attr port;
	struct ibv_device_attr caps;

	end->context = verbs.ibv_open_device(device);
	CHECK(end->context);
	CHECK(verbs.ibv_query_device(end->context, &caps) == 0);
	memset(&port, 0, sizeof(port));
	CHECK(verbs.ibv_query_port(end->context, 1, (struct _compat_ibv_port_attr *)&port) == 0);
	CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(verbs.ibv_query_gid(end->context, 1, 1, &end->gid) == 0);
	end->pd = verbs.ibv_alloc_pd(end->context);
	CHECK(end->pd);
	end->memory = aligned_alloc(4096, PIECES * PIECE);
	CHECK(end->memory);
	end->mr = verbs.ibv_reg_mr_iova2(
		end->pd, end->memory, PIECES * PIECE, (uintptr_t)end->memory,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_RELAXED_ORDERING);
	CHECK(end->mr);
	end->cq = verbs.ibv_create_cq(end->context, 3 * DEPTH, NULL, NULL, 0);
	CHECK(end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = verbs.ibv_create_qp(end->pd, &init);
	CHECK(end->qp);
	CHECK(verbs.ibv_modify_qp(end->qp, &attr,
				  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					  IBV_QP_ACCESS_FLAGS) == 0);
}

/* One side proposes what it has, the other takes what it can of it. */
static void agree(struct end *from, struct end *to)
{
	struct ibv_ece ece;

	CHECK(verbs.ibv_query_ece(from->qp, &ece) == 0);
	CHECK(ece.comp_mask == 0);
	ece.options = 0xffff;
	CHECK(verbs.ibv_set_ece(to->qp, &ece) == 0);
	CHECK(ece.options == 0);
	ece.comp_mask = 1;
	CHECK(verbs.ibv_set_ece(to->qp, &ece) == EINVAL);
}

static void connect_to(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 20,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = peer->gid, .sgid_index = 1, .hop_limit = 255}},
	};

	CHECK(verbs.ibv_modify_qp(end->qp, &attr,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					  IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(verbs.ibv_modify_qp(end->qp, &attr,
				  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					  IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void post_receive(struct end *end)
{
	struct ibv_recv_wr *bad, wr = {0};

	CHECK(end->context->ops.post_recv(end->qp, &wr, &bad) == 0);
}

/* A piece, then its number as immediate data of an empty WRITE behind it: one list, one signal. */
static void write_piece(struct end *from, const struct end *to, uint32_t piece)
{
	const uint64_t at = (uint64_t)piece * PIECE;
	struct ibv_sge sge = {(uintptr_t)from->memory + at, PIECE, from->mr->lkey};
	struct ibv_send_wr *bad, with_imm = {
					 .wr_id = piece,
					 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
					 .send_flags = IBV_SEND_SIGNALED,
					 .imm_data = htobe32(piece),
				 };
	struct ibv_send_wr data = {
		.next = &with_imm,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {(uintptr_t)to->memory + at, to->mr->rkey},
	};

	CHECK(from->context->ops.post_send(from->qp, &data, &bad) == 0);
}

static struct ibv_wc wait_for(struct end *end)
{
	const time_t until = time(NULL) + PATIENCE_S;
	struct ibv_wc wc;
	int got;

	while ((got = end->context->ops.poll_cq(end->cq, 1, &wc)) == 0)
		CHECK(time(NULL) < until);
	CHECK(got == 1);
	CHECK(wc.status == IBV_WC_SUCCESS);
	return wc;
}

static void move(struct end *from, struct end *to)
{
	uint32_t posted = 0, done = 0;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < PIECES * PIECE; i++) {
		from->memory[i] = (uint8_t)(i * 2654435761u >> 13);
		to->memory[i] = 0;
	}
	for (uint32_t i = 0; i < DEPTH; i++)
		post_receive(to);
	while (done < PIECES) {
		while (posted < PIECES && posted - done < DEPTH / 2)
			write_piece(from, to, posted++);
		wc = wait_for(to);
		CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags & IBV_WC_WITH_IMM);
		CHECK(be32toh(wc.imm_data) == done);
		CHECK(memcmp(to->memory + done * PIECE, from->memory + done * PIECE, PIECE) == 0);
		post_receive(to);
		wc = wait_for(from);
		CHECK(wc.opcode == IBV_WC_RDMA_WRITE && wc.wr_id == done);
		done++;
	}
}

static void close_end(struct end *end)
{
	CHECK(verbs.ibv_destroy_qp(end->qp) == 0);
	CHECK(verbs.ibv_destroy_cq(end->cq) == 0);
	CHECK(verbs.ibv_dereg_mr(end->mr) == 0);
	CHECK(verbs.ibv_dealloc_pd(end->pd) == 0);
	CHECK(verbs.ibv_close_device(end->context) == 0);
	free(end->memory);
}

int main(int argc, char **argv)
{
	struct ibv_device **list;
	struct end a, b;
	int count = 0;

	CHECK(argc == 2);
	load(argv[1]);
	CHECK(verbs.ibv_fork_init() == 0);
	list = verbs.ibv_get_device_list(&count);
	CHECK(list && count > 0);
	CHECK(verbs.ibv_get_device_name(list[0])[0]);
	open_end(&a, list[0]);
	open_end(&b, list[count - 1]);
	verbs.ibv_free_device_list(list);
	agree(&a, &b);
	connect_to(&a, &b);
	connect_to(&b, &a);
	move(&a, &b);
	close_end(&a);
	close_end(&b);
	printf("%u pieces of %u bytes\n", PIECES, PIECE);
	return 0;
}
