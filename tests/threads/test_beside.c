/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_beside.c - threads that post beside the NIC and poll beside it (core/beside.h, core/cq.h),
 * while it runs, fails their queue pairs and gets and loses others.
 *
 * The core, the lock and the pump are the real ones; below is a wire that ends where it began:
 * queue pairs are connected to themselves. Each thread checks that everything it posted completes,
 * once and in order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "carrier/local.h"
#include "carrier/raw.h"
#include "host/engine.h"
#include "wire/packet.h"

#define WORKERS 3u
#define MESSAGES 3000u
#define FAILURES 60u /* of the queue pair that is failed */
#define DEPTH 4u
#define BYTES 32u
#define WIRE 64u /* packets on their way */
#define PATIENCE_NS (60ull * 1000000000)

/* --- what the pump calls beside the core ------------------------------------------------- */

uint64_t vb_engine_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void vb_engine_leave(struct vb_engine *engine)
{
	vb_thread_notice(engine);
	vb_engine_unlock(engine);
}

void vb_thread_wake(struct vb_engine *engine)
{
}

atomic_bool vb_end_is_heard;

/* There is no background thread here: nobody is told to rely on it. */
void vb_thread_alarm(struct vb_engine *engine, uint64_t now_ns)
{
	fail();
}

void vb_thread_summon(struct vb_engine *engine)
{
	fail();
}

uint64_t vb_gsi_deadline(const struct vb_engine *engine)
{
	return VB_NEVER;
}

void vb_gsi_run(struct vb_engine *engine)
{
}

void vb_traffic_publish(struct vb_engine *engine)
{
}

int vb_raw_poll(struct vb_raw_socket *raw, int budget, bool *room)
{
	return 0;
}

/* --- a wire ------------------------------------------------------------------------------ */

static struct {
	uint32_t head, tail;
	uint32_t size[WIRE];
	uint8_t bytes[WIRE][VB_HEADERS_MAX + BYTES];
} wire; /* under the engine's lock */

static int wire_tx(void *env, const struct vb_path *path, const struct vb_tx *tx)
{
	uint8_t *to = wire.bytes[wire.head % WIRE];
	int used = vb_headers_encode(tx->headers, to, VB_HEADERS_MAX);

	assert_true(used > 0 && tx->payload_bytes <= BYTES);
	if (wire.head - wire.tail == WIRE)
		return -EAGAIN;
	for (int i = 0; i < tx->payload_parts; i++) {
		memcpy(to + used, tx->payload[i].iov_base, tx->payload[i].iov_len);
		used += (int)tx->payload[i].iov_len;
	}
	wire.size[wire.head++ % WIRE] = (uint32_t)used;
	return 0;
}

static int wire_poll(struct vb_carrier *carrier, int budget, bool *room)
{
	struct vb_engine *engine = carrier->env;
	int got = 0;

	while (got < budget && wire.tail != wire.head) {
		struct vb_rx rx = {.data = wire.bytes[wire.tail % WIRE],
				   .size = wire.size[wire.tail % WIRE]};

		wire.tail++;
		vb_nic_rx(engine->nic, &rx, engine->nic->now_ns);
		got++;
	}
	*room = got > 0;
	return got;
}

bool vb_local_is_worth_a_look(struct vb_carrier *carrier)
{
	return wire.tail != wire.head;
}

bool vb_local_has_something(const struct vb_carrier *carrier)
{
	return wire.tail != wire.head;
}

void vb_local_note_look(struct vb_carrier *carrier, int packets, uint64_t now_ns)
{
}

static void wire_flush(struct vb_carrier *carrier)
{
}

static int wire_resolve(void *env, const struct vb_ah_attr *ah, struct vb_path *path)
{
	*path = (struct vb_path){.segment_max = VB_MAX_PATH_MTU};
	return 0;
}

static void on_event(void *env, const struct vb_event *event)
{
}

static void on_cq_event(void *env, struct vb_cq *cq)
{
}

static uint32_t count_up(void *env)
{
	static uint32_t last;

	return last += 7;
}

static const struct vb_nic_ops ops = {
	.tx = wire_tx,
	.resolve = wire_resolve,
	.event = on_event,
	.cq_event = on_cq_event,
	.random = count_up,
};
static const struct vb_carrier_ops carrier_ops = {.poll = wire_poll, .flush = wire_flush};

static struct vb_carrier carrier = {.ops = &carrier_ops};
static struct vb_engine engine;

/* --- what a thread has ------------------------------------------------------------------- */

struct worker {
	struct vb_pd *pd;
	struct vb_cq *cq;
	struct vb_srq *srq;
	struct vb_qp *qp;
	struct vb_mr *mr;
	struct vb_ah *ah;
	uint8_t memory[4 * DEPTH * BYTES];
	pthread_t thread;
	bool ok;
	atomic_bool done;
	atomic_uint failures; /* that it has recovered from */
};

static void bring_up(struct vb_qp *qp)
{
	const bool ud = qp->type == VB_QPT_UD;
	struct vb_qp_attr attr = {
		.qp_state = VB_QPS_INIT,
		.port_num = 1,
		.path_mtu = VB_MTU_1024,
		.dest_qpn = qp->qpn,
		.ah = {.is_global = true, .port_num = 1},
	};

	assert_int_equal(vb_qp_modify(qp, &attr,
				      VB_QP_STATE | VB_QP_PKEY_INDEX | VB_QP_PORT |
					      (ud ? VB_QP_QKEY : VB_QP_ACCESS_FLAGS)),
			 0);
	attr.qp_state = VB_QPS_RTR;
	assert_int_equal(
		vb_qp_modify(qp, &attr,
			     VB_QP_STATE | (ud ? 0
					       : VB_QP_AV | VB_QP_PATH_MTU | VB_QP_DEST_QPN |
							    VB_QP_RQ_PSN)),
		0);
	attr.qp_state = VB_QPS_RTS;
	assert_int_equal(vb_qp_modify(qp, &attr, VB_QP_STATE | VB_QP_SQ_PSN), 0);
}

static void make(struct worker *w, enum vb_qp_type type, bool with_srq)
{
	const struct vb_ah_attr to = {.is_global = true, .port_num = 1};
	struct vb_qp_init init = {.type = type, .cap = {DEPTH, DEPTH, 1, 2, BYTES}, .single = true};

	assert_true(vb_engine_lock(&engine));
	w->pd = vb_pd_create(engine.nic);
	w->cq = vb_cq_create(engine.nic, 4 * DEPTH, NULL);
	w->cq->single = true;
	w->srq = with_srq ? vb_srq_create(w->pd, DEPTH, 2, 0, NULL) : NULL;
	init.send_cq = init.recv_cq = w->cq;
	init.srq = w->srq;
	w->qp = vb_qp_create(w->pd, &init);
	w->ah = vb_ah_create(w->pd, &to);
	w->mr = vb_mr_create(w->pd, w->memory, sizeof(w->memory), (uintptr_t)w->memory,
			     VB_ACCESS_LOCAL_WRITE);
	bring_up(w->qp);
	vb_engine_unlock(&engine);
}

static void destroy(struct worker *w)
{
	assert_true(vb_engine_lock(&engine));
	vb_ah_destroy(w->ah);
	vb_qp_destroy(w->qp);
	assert_int_equal(vb_srq_destroy(w->srq), 0);
	assert_int_equal(vb_cq_destroy(w->cq), 0);
	vb_mr_destroy(w->mr);
	assert_int_equal(vb_pd_destroy(w->pd), 0);
	vb_engine_unlock(&engine);
}

/* --- what it does ------------------------------------------------------------------------ */

static int post(struct worker *w, uint32_t number)
{
	uint8_t *from = w->memory + number % DEPTH * BYTES;
	const struct vb_sge sge = {(uintptr_t)from, BYTES, w->mr->lkey};
	const struct vb_send_wr wr = {
		.wr_id = number,
		.sges = &sge,
		.num_sge = 1,
		.opcode = VB_WR_SEND,
		.flags = VB_SEND_SIGNALED | (number % 3 ? 0 : VB_SEND_INLINE),
		.ah = w->ah,
		.remote_qpn = w->qp->qpn,
	};
	int rc;

	memset(from, (int)number, BYTES);
	rc = vb_qp_post_send_beside(w->qp, &wr);
	vb_engine_hand_over(&engine, w->qp);
	return rc;
}

/* What UD has in front of a message lies apart. */
static int post_recv(struct worker *w, uint32_t number)
{
	uint8_t *to = w->memory + (DEPTH + number % DEPTH) * BYTES;
	const bool ud = w->qp->type == VB_QPT_UD;
	const struct vb_sge sges[2] = {
		{(uintptr_t)w->memory + 2 * DEPTH * BYTES, ud ? 40 : 0, w->mr->lkey},
		{(uintptr_t)to, BYTES, w->mr->lkey}};
	const struct vb_recv_wr wr = {.wr_id = number, .sges = sges, .num_sge = 2};
	int rc;

	if (w->srq) {
		rc = vb_srq_post(w->srq, &wr);
		vb_engine_hand_over(&engine, NULL);
	} else {
		rc = vb_qp_post_recv_beside(w->qp, &wr);
		vb_engine_hand_over(&engine, w->qp);
	}
	return rc;
}

static bool arrived_whole(const struct worker *w, uint32_t number)
{
	const uint8_t *at = w->memory + (DEPTH + number % DEPTH) * BYTES;

	return at[0] == (uint8_t)number && at[BYTES - 1] == (uint8_t)number;
}

/* A window of messages to itself, the next posted as soon as one has come. */
static void *stream(void *argument)
{
	struct worker *w = argument;
	const uint64_t until = vb_engine_now() + PATIENCE_NS;
	uint32_t posted = 0, sent = 0, received = 0;
	struct vb_cqe cqe;

	w->ok = true;
	while (w->ok && received < MESSAGES) {
		if (posted < MESSAGES && posted - received < DEPTH && posted - sent < DEPTH) {
			w->ok = post_recv(w, posted) == 0 && post(w, posted) == 0;
			posted++;
			continue;
		}
		if (vb_engine_poll_cq(&engine, w->cq, &cqe, 1) == 0) {
			w->ok = vb_engine_now() < until;
			continue;
		}
		w->ok = cqe.status == VB_WC_SUCCESS;
		if (cqe.opcode == VB_WC_RECV)
			w->ok &= cqe.wr_id == received && arrived_whole(w, received++);
		else
			w->ok &= cqe.wr_id == sent++;
	}
	atomic_store(&w->done, true);
	return NULL;
}

/* Its queue pair fails again and again: what was posted until it was noticed completes all the
 * same. */
static void *fail_and_recover(void *argument)
{
	struct worker *w = argument;
	const uint64_t until = vb_engine_now() + PATIENCE_NS;
	uint32_t posted = 0, completed = 0, receives = 0, received = 0;
	bool failed = false;
	struct vb_cqe cqe;

	w->ok = true;
	while (w->ok && atomic_load(&w->failures) < FAILURES) {
		if (failed && posted == completed && receives == received) {
			failed = false;
			w->ok = vb_engine_lock(&engine);
			vb_qp_set_state(w->qp, VB_QPS_RESET);
			bring_up(w->qp);
			vb_engine_unlock(&engine);
			posted = completed = receives = received = 0;
			atomic_fetch_add(&w->failures, 1);
		}
		if (!failed && receives - received < DEPTH)
			w->ok = post_recv(w, receives++) == 0;
		if (!failed && posted - completed < DEPTH)
			w->ok &= post(w, posted++) == 0;
		if (vb_engine_poll_cq(&engine, w->cq, &cqe, 1) == 0) {
			w->ok &= vb_engine_now() < until;
			continue;
		}
		failed |= cqe.status != VB_WC_SUCCESS;
		w->ok &= cqe.wr_id == (cqe.is_send ? completed++ : received++);
	}
	atomic_store(&w->done, true);
	return NULL;
}

/* The NIC's own doing: a queue pair fails, while others are made, rung and destroyed. */
static void disturb(struct worker *victim)
{
	for (uint32_t failures = 0; !atomic_load(&victim->done);) {
		struct worker passing = {0};

		make(&passing, VB_QPT_UD, false);
		for (uint32_t i = 0; i < DEPTH; i++)
			assert_int_equal(post(&passing, i), 0);
		destroy(&passing);
		if (atomic_load(&victim->failures) != failures)
			continue;
		assert_true(vb_engine_lock(&engine));
		vb_qp_set_state(victim->qp, VB_QPS_ERR);
		vb_engine_unlock(&engine);
		failures++;
	}
}

static void threads_beside_the_nic(void **state)
{
	const struct vb_nic_config config = {.qpn_base = 0x18000};
	struct worker workers[WORKERS] = {0}, victim = {0};

	carrier.env = &engine;
	engine.udp = &carrier;
	engine.local = &carrier;
	engine.traffic.due_ns = VB_NEVER;
	engine.nic = vb_nic_create(&ops, &engine, &config);
	assert_non_null(engine.nic);
	for (uint32_t i = 0; i < WORKERS; i++)
		make(&workers[i], i == 1 ? VB_QPT_UD : VB_QPT_UC, i == 1);
	make(&victim, VB_QPT_UC, false);
	for (uint32_t i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_create(&workers[i].thread, NULL, stream, &workers[i]), 0);
	assert_int_equal(pthread_create(&victim.thread, NULL, fail_and_recover, &victim), 0);
	disturb(&victim);
	assert_int_equal(pthread_join(victim.thread, NULL), 0);
	assert_true(victim.ok);
	for (uint32_t i = 0; i < WORKERS; i++) {
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		assert_true(workers[i].ok);
		destroy(&workers[i]);
	}
	destroy(&victim);
	assert_false(vb_nic_is_rung(engine.nic));
	vb_nic_destroy(engine.nic);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_beside_the_nic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
