/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pump.c - packets in, the core's turn, packets out.
 *
 * Looking at the local carrier's rings costs a few nanoseconds, looking at a socket a system call.
 * So the rings are looked at each time, the sockets as often as they lately had something: always
 * while packets come, then one poll in 4, then in 32; not at all where nothing is connected over
 * UDP, which leaves strays and the like to the thread. An empty poll of a spinning program thereby
 * costs tens of nanoseconds on either path, and the next packet is found at most 32 of them late.
 *
 * For the same reason an empty poll reads the clock only one time in 32, and a post looks at
 * nothing but one time in 16, or where a timer would run out: it sends what was posted, and the
 * program's polls, or the thread, take what came. More comes of one look then, and is answered by
 * one acknowledgement. Nor does a post read the clock where the timer runs already for what was
 * sent before.
 *
 * A call that makes no system call goes without the shield against cancellation, which costs as
 * much as the lock: a poll that finds a completion or nothing at all, and what is posted to a peer
 * of this host.
 *
 * What leaves by UDP costs a system call, whether one packet or sixty. So answers, and posts in a
 * row, may wait a moment for company: hold.h says when, and when that ends.
 *
 * A program that polls in vain for long gives the processor away now and then: what it waits for is
 * made by another process or thread, which may have no other processor to run on.
 */
#include <errno.h>
#include <sched.h>

#include "carrier/local.h"
#include "carrier/raw.h"
#include "core/transport.h"
#include "host/engine.h"

#define LOCAL_BUDGET 256 /* packets a look */
#define UDP_BUDGET 128	 /* two trains: their sender may go on before more is looked at */
#define ROUNDS 8	 /* of one vb_engine_run */
#define LATE_ROUNDS 64	 /* of looks before a timer runs out */
#define HOT_LOOKS 64	 /* empty looks at the sockets before looking less often */
#define WARM_LOOKS 1024
#define WARM_EVERY 4
#define COLD_EVERY 32
#define PUMP_EVERY 16 /* posts that look at nothing: polls will */
#define CLOCK_EVERY 32
#define ANSWERS 8	   /* turns for what others post meanwhile, at the end of a call */
#define YIELD_EVERY_LOOK 8 /* beside a system call a look, a yield is cheap */
#define YIELD_AFTER 512	   /* tens of microseconds of looking at rings alone */
#define YIELD_EVERY 64
#define HOLD_BYTES 1024u /* longer messages go at once */
#define HOLD_WANTED 16u	 /* posts that leave with one that completes visibly */

/* after_look - got packets were delivered; room: what was refused may be taken now. */
static int after_look(struct vb_engine *engine, int got, bool room)
{
	if (room && !vb_list_is_empty(&engine->nic->blocked)) {
		vb_nic_unblock(engine->nic);
		got++;
	}
	return got;
}

static int look(struct vb_engine *engine, struct vb_carrier *carrier, int budget)
{
	bool room = false;
	int got = carrier->ops->poll(carrier, budget, &room);

	return after_look(engine, got, room);
}

static int look_at_raw(struct vb_engine *engine)
{
	bool room = false;
	int got = vb_raw_poll(engine->raw, UDP_BUDGET, &room);

	return after_look(engine, got, room);
}

/* The sockets: those of RoCE, and the one of raw packets. */
static int look_at_udp(struct vb_engine *engine)
{
	int got;

	vb_engine_shield(engine);
	got = look(engine, engine->udp, UDP_BUDGET);

	if (engine->raw)
		got += look_at_raw(engine);
	engine->udp_skipped = 0;
	atomic_store_explicit(&engine->udp_looks,
			      atomic_load_explicit(&engine->udp_looks, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (got > 0)
		engine->udp_quiet = 0;
	else if (engine->udp_quiet < UINT32_MAX)
		engine->udp_quiet++;
	return got;
}

static bool may_come_by_udp(const struct vb_engine *engine)
{
	return engine->udp_paths > 0 || engine->ud_qps > 0 || engine->raw;
}

static bool udp_is_due(struct vb_engine *engine)
{
	uint32_t every = engine->udp_quiet < HOT_LOOKS	  ? 1
			 : engine->udp->looks_cheaply	  ? 1
			 : engine->udp_quiet < WARM_LOOKS ? WARM_EVERY
							  : COLD_EVERY;

	if (!may_come_by_udp(engine))
		return false;
	return ++engine->udp_skipped >= every;
}

static bool is_due(const struct vb_engine *engine)
{
	return vb_engine_due(engine) <= engine->nic->now_ns;
}

static void tell_time(struct vb_engine *engine)
{
	if (!engine->now_is_fresh)
		vb_engine_refresh(engine);
}

/* answer_is_due - a timer would run out. */
static inline bool answer_is_due(const struct vb_engine *engine)
{
	const uint64_t now_ns = engine->nic->now_ns;

	return (vb_nic_deadline(engine->nic) <= now_ns &&
		vb_nic_answer_is_due(engine->nic, now_ns)) ||
	       (engine->gsi_busy && vb_gsi_deadline(engine) <= now_ns);
}

/* A timer that is due must not run out on an answer that came in time and lies in a ring or a
 * socket, with much before it perhaps: the process may have been stopped, or without a processor,
 * for longer than that. The connection manager's answers come by UDP although nothing else may. */
static int look_before_timers(struct vb_engine *engine, bool looked_at_udp)
{
	bool with_udp = (!looked_at_udp || engine->udp->has_more) &&
			(may_come_by_udp(engine) || engine->gsi_busy);
	int got = 0, local = 1;

	vb_engine_shield(engine);
	for (int round = 0; round < LATE_ROUNDS && (local > 0 || with_udp) && answer_is_due(engine);
	     round++) {
		local = engine->local ? look(engine, engine->local, LOCAL_BUDGET) : 0;
		got += local;
		if (with_udp)
			got += look_at_udp(engine);
		with_udp = with_udp && engine->udp->has_more;
	}
	return got;
}

/* The core's turn; the time was told. */
static int run_core(struct vb_engine *engine, bool looked_at_udp)
{
	const int got = answer_is_due(engine) ? look_before_timers(engine, looked_at_udp) : 0;

	if (engine->gsi_busy && vb_gsi_deadline(engine) <= engine->nic->now_ns) {
		vb_engine_shield(engine);
		vb_gsi_run(engine);
	}
	vb_nic_run(engine->nic, engine->nic->now_ns);
	if (engine->nic->now_ns >= engine->traffic.due_ns)
		vb_traffic_publish(engine);
	return got;
}

static void flush(struct vb_engine *engine)
{
	vb_engine_shield(engine);
	if (engine->local)
		engine->local->ops->flush(engine->local);
	engine->udp->ops->flush(engine->udp);
}

void vb_engine_run(struct vb_engine *engine, bool with_udp)
{
	vb_engine_shield(engine);
	vb_hold_end(&engine->hold);
	for (int round = 0; round < ROUNDS; round++) {
		int got = 0;

		if (engine->local)
			got += look(engine, engine->local, LOCAL_BUDGET);
		if (with_udp)
			got += look_at_udp(engine);
		if (round > 0 && got == 0 && !is_due(engine))
			return;
		tell_time(engine);
		got += run_core(engine, with_udp);
		flush(engine);
		with_udp = with_udp && got > 0;
		engine->now_is_fresh = false;
	}
}

/* is_time_for_sockets - one call in PUMP_EVERY, and polls count as well. */
static bool is_time_for_sockets(struct vb_engine *engine)
{
	return may_come_by_udp(engine) && ++engine->udp_skipped >= PUMP_EVERY;
}

/* --- what waits for company (hold.h) ----------------------------------------------------- */

static bool thread_looks_soon(const struct vb_engine *engine)
{
	return engine->thread.started &&
	       atomic_load_explicit(&engine->thread.state, memory_order_relaxed) !=
		       VB_THREAD_BLOCKED;
}

/* owes_one_answer - the queue pair that owes its peer the acknowledgement of what just came, where
 * that is all that is to be sent. */
static const struct vb_qp *owes_one_answer(const struct vb_engine *engine)
{
	const struct vb_list *ready = &engine->nic->ready;
	const struct vb_qp *qp;

	if (vb_list_is_empty(ready) || ready->next != ready->prev || !thread_looks_soon(engine) ||
	    !atomic_load_explicit(&vb_end_is_heard, memory_order_relaxed))
		return NULL;
	qp = vb_list_entry(ready->next, struct vb_qp, ready_link);
	if (qp->type != VB_QPT_RC || qp->state != VB_QPS_RTS || qp->path.carrier != engine->udp ||
	    qp->sq_next != qp->sq_head || !vb_rc_owes_ack_alone(qp))
		return NULL;
	return qp;
}

bool vb_engine_look(struct vb_engine *engine, bool *again)
{
	const struct vb_qp *qp;
	int got = 0, by_udp;

	if (engine->local)
		got = look(engine, engine->local, LOCAL_BUDGET);
	by_udp = look_at_udp(engine);
	*again = by_udp > 0;
	/* More than a message and an acknowledgement: a stream, which waits for its answers. */
	if (got > 0 || by_udp < 1 || by_udp > 2)
		return false;
	qp = owes_one_answer(engine);
	return qp && vb_hold_message(&engine->hold, qp->qpn, vb_engine_now(), true);
}

bool vb_engine_holds(const struct vb_engine *engine)
{
	return vb_hold_is_young(&engine->hold, vb_engine_now());
}

void vb_engine_release(struct vb_engine *engine)
{
	vb_hold_polled(&engine->hold);
	if (vb_hold_row_is_open(&engine->hold))
		vb_hold_row_ends(&engine->hold, vb_engine_now());
	if (vb_hold_waits(&engine->hold))
		vb_engine_run(engine, false);
}

/* The row is the engine's: posts to several queue pairs leave in one train as well, and what is
 * under way on another of them will be heard of, too. */
static bool may_wait(const struct vb_engine *engine, const struct vb_qp *qp)
{
	const struct vb_send_wqe *last = vb_qp_wqe(qp, qp->sq_head - 1);

	/* What is to be heard of, perhaps after many that are not, is what the program waits for.
	 */
	if (last->flags & VB_SEND_SIGNALED && engine->hold.posts >= HOLD_WANTED)
		return false;
	return qp->type == VB_QPT_RC && qp->sq_next != qp->sq_head &&
	       (qp->req.una_psn != qp->req.end_psn || engine->nic->awaiting > 0) &&
	       last->length <= HOLD_BYTES && thread_looks_soon(engine);
}

static inline void pump_sends(struct vb_engine *engine, const struct vb_qp *qp)
{
	struct vb_hold *hold = &engine->hold;
	uint64_t now_ns;
	uint32_t polls;
	bool answered;

	if (qp->path.carrier != engine->udp) {
		vb_engine_pump_posts(engine);
		return;
	}
	tell_time(engine);
	now_ns = engine->nic->now_ns;
	answered = vb_hold_answered(hold, qp->qpn, now_ns);
	polls = atomic_load_explicit(&engine->polls, memory_order_relaxed);
	if (vb_hold_post(hold, !answered && may_wait(engine, qp), polls, now_ns)) {
		vb_engine_shield(engine);
		vb_thread_alarm(engine, now_ns);
		return;
	}
	vb_engine_pump_posts(engine);
	if (vb_hold_is_row(hold))
		vb_hold_went(hold, vb_engine_now());
}

static inline void pump_receives(struct vb_engine *engine)
{
	if (!vb_hold_waits(&engine->hold)) {
		/* What came by the rings is left to the polls: a program that is slower than its
		 * peer would get more completions with each of its receives than it takes out, and
		 * run out of them. */
		if (may_come_by_udp(engine) || !vb_list_is_empty(&engine->nic->ready))
			vb_engine_pump_posts(engine);
		return;
	}
	tell_time(engine);
	if (!vb_hold_is_young(&engine->hold, engine->nic->now_ns))
		vb_engine_pump(engine);
}

void vb_engine_leave_sends(struct vb_engine *engine, const struct vb_qp *qp)
{
	pump_sends(engine, qp);
	vb_engine_notice_and_unlock(engine);
}

void vb_engine_leave_receives(struct vb_engine *engine)
{
	pump_receives(engine);
	vb_engine_notice_and_unlock(engine);
}

void vb_engine_pump(struct vb_engine *engine)
{
	vb_engine_run(engine, is_time_for_sockets(engine));
}

/* may_have_come - but for the sockets, whose time is_time_for_sockets() knows. */
static bool may_have_come(const struct vb_engine *engine)
{
	return !engine->local || vb_local_has_something(engine->local) || may_come_by_udp(engine);
}

void vb_engine_pump_posts(struct vb_engine *engine)
{
	const bool with_udp = is_time_for_sockets(engine);

	if (with_udp || (++engine->pumps % PUMP_EVERY == 0 && may_have_come(engine))) {
		vb_engine_run(engine, with_udp);
		return;
	}
	/* Receive requests alone, or all has left; what left may have a timer to start. */
	if (vb_list_is_empty(&engine->nic->ready) ||
	    (!engine->nic->ready_soon && thread_looks_soon(engine)))
		return;
	vb_hold_end(&engine->hold);
	if (vb_nic_needs_time(engine->nic))
		tell_time(engine);
	run_core(engine, false);
	if (may_come_by_udp(engine))
		flush(engine);
	if (!vb_list_is_empty(&engine->nic->ready))
		vb_engine_run(engine, false);
}

/* --- what was posted beside the NIC ------------------------------------------------------ */

bool vb_engine_is_alive(const struct vb_engine *engine)
{
	return vb_engine_lives(engine);
}

/* Bounded: others may post as fast as this thread works it off, and it has something else to do.
 * The background thread has not. */
void vb_engine_answer(struct vb_engine *engine)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	for (int i = 0; vb_nic_is_rung(engine->nic) && vb_engine_lives(engine); i++) {
		if (i == ANSWERS && engine->thread.started) {
			vb_thread_summon(engine);
			break;
		}
		if (!vb_lock_try(&engine->lock))
			break;
		vb_engine_took_lock(engine);
		if (vb_engine_lives(engine)) {
			vb_engine_refresh(engine);
			vb_nic_answer(engine->nic);
			vb_engine_pump(engine);
			vb_thread_notice(engine);
		}
		engine->shielded = false;
		vb_lock_give(&engine->lock);
	}
	pthread_setcancelstate(state, NULL);
}

void vb_engine_hand_over(struct vb_engine *engine, struct vb_qp *qp)
{
	bool rang = false;

	if (!vb_engine_try_bare(engine)) {
		if (!qp)
			return;
		vb_qp_ring(qp);
		rang = true;
		if (!vb_engine_try_bare(engine))
			return;
	}
	vb_engine_refresh(engine);
	if (qp && !rang)
		vb_qp_take_posted(qp);
	if (vb_nic_is_rung(engine->nic)) {
		vb_nic_answer(engine->nic);
		vb_engine_pump(engine);
	} else if (qp && qp->sq_next != qp->sq_head) {
		pump_sends(engine, qp);
	} else {
		pump_receives(engine);
	}
	vb_engine_leave(engine);
}

/* --- polling ----------------------------------------------------------------------------- */

/* After a poll in vain. */
static bool should_yield(const struct vb_engine *engine)
{
	uint32_t quiet = engine->quiet_polls;

	if (may_come_by_udp(engine) && engine->udp_skipped == 0 && !engine->udp->looks_cheaply)
		return engine->udp_quiet % YIELD_EVERY_LOOK == 0; /* it was a system call */
	if (may_come_by_udp(engine))
		return quiet % 128 == 127;
	return quiet >= YIELD_AFTER && quiet % YIELD_EVERY == 0;
}

/* look_around - what an empty poll does. False: there is nothing to do. */
static bool look_around(struct vb_engine *engine, bool *by_udp)
{
	bool with_udp = udp_is_due(engine);
	int got = 0;

	*by_udp = with_udp;
	if (engine->local && vb_local_is_worth_a_look(engine->local)) {
		vb_engine_shield(engine);
		got += look(engine, engine->local, LOCAL_BUDGET);
		if (got > 0 && engine->now_is_fresh) /* packets, and not room alone */
			vb_local_note_look(engine->local, got, engine->nic->now_ns);
	}
	if (with_udp)
		got += look_at_udp(engine);
	if (got == 0 && vb_list_is_empty(&engine->nic->ready)) {
		if (++engine->quiet_polls % CLOCK_EVERY != 0 || vb_engine_due(engine) == VB_NEVER)
			return false;
		vb_engine_refresh(engine);
		if (!is_due(engine))
			return false;
	}
	engine->quiet_polls = 0;
	return true;
}

static void work(struct vb_engine *engine, bool looked_at_udp)
{
	vb_hold_end(&engine->hold);
	vb_engine_shield(engine);
	tell_time(engine);
	run_core(engine, looked_at_udp);
	flush(engine);
	if (engine->hold.answer == VB_ANSWER_AWAITED)
		vb_hold_went(&engine->hold, vb_engine_now());
}

static void count_poll(struct vb_engine *engine)
{
	atomic_store_explicit(&engine->polls,
			      atomic_load_explicit(&engine->polls, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* What a poll finds when it may not go in. */
static int not_alive(const struct vb_engine *engine)
{
	switch ((enum vb_life)atomic_load_explicit(&engine->life, memory_order_relaxed)) {
	case VB_ALIVE: /* another thread is inside, and moves on what this one waits for */
	case VB_AT_EXIT:
		return 0;
	case VB_IN_CHILD:
		break;
	}
	return -EIO;
}

/* Another gets the processor, and may keep it for long; the background thread has it meanwhile,
 * too. What that has found is the poll's: a program that polls, finds nothing and then takes an
 * event of its peer's leaving may close the queue pair, and lose what came long before. */
static int yield_and_poll(struct vb_engine *engine, struct vb_cq *cq, struct vb_cqe *out, int n)
{
	int got;

	sched_yield();
	if (!vb_engine_lock_bare(engine))
		return not_alive(engine);
	got = vb_cq_poll(cq, out, n);
	vb_engine_unlock(engine);
	return got;
}

/* Before an empty poll looks around: the program has nothing to answer, and posts no more. */
static void end_bets(struct vb_engine *engine)
{
	vb_hold_polled(&engine->hold);
	if (vb_hold_row_is_open(&engine->hold))
		vb_hold_row_ends(&engine->hold, vb_engine_now());
}

/* Inside, after a look into the CQ in vain; gives the lock back. */
static int pump_and_poll(struct vb_engine *engine, struct vb_cq *cq, struct vb_cqe *out, int n)
{
	const struct vb_qp *qp = NULL;
	bool yield = false, by_udp;
	int got = 0;

	end_bets(engine);
	if (look_around(engine, &by_udp)) {
		if (by_udp)
			qp = owes_one_answer(engine);
		if (qp)
			got = vb_cq_poll(cq, out, n);
		if (got == 0 || !vb_hold_message(&engine->hold, qp->qpn, vb_engine_now(), false)) {
			work(engine, by_udp);
			vb_thread_notice(engine);
		}
		if (got == 0)
			got = vb_cq_poll(cq, out, n);
	} else {
		yield = should_yield(engine);
	}
	vb_engine_unlock(engine);
	return yield ? yield_and_poll(engine, cq, out, n) : got;
}

/* look_once - returns whether to yield. */
static bool look_once(struct vb_engine *engine, bool (*found)(void *arg), void *arg)
{
	const struct vb_qp *qp = NULL;
	bool yield = false, by_udp;

	if (!vb_engine_try_bare(engine))
		return true;
	vb_engine_shield(engine);
	count_poll(engine);
	end_bets(engine);
	if (look_around(engine, &by_udp)) {
		if (by_udp && found(arg))
			qp = owes_one_answer(engine);
		if (!qp || !vb_hold_message(&engine->hold, qp->qpn, vb_engine_now(), false)) {
			work(engine, by_udp);
			vb_thread_notice(engine);
		}
	} else {
		yield = should_yield(engine);
	}
	vb_engine_unlock(engine);
	return yield;
}

bool vb_engine_look_for(struct vb_engine *engine, bool (*found)(void *arg), void *arg, uint64_t ns)
{
	const uint64_t until = vb_engine_now() + ns;
	bool yield;

	do {
		yield = look_once(engine, found, arg);
		if (found(arg))
			return true;
		if (yield)
			sched_yield();
	} while (vb_engine_now() < until &&
		 atomic_load_explicit(&engine->life, memory_order_relaxed) == VB_ALIVE);
	return false;
}

/* end_row - at a poll that has found something: posts that wait go, an acknowledgement need not. */
static void end_row(struct vb_engine *engine)
{
	vb_hold_row_ends(&engine->hold, vb_engine_now());
	if (engine->hold.posts == 0)
		return;
	engine->now_is_fresh = false;
	work(engine, false);
	vb_thread_notice(engine);
}

static int poll_single(struct vb_engine *engine, struct vb_cq *cq, struct vb_cqe *out, int n)
{
	int got;

	count_poll(engine);
	got = vb_cq_poll(cq, out, n);
	if (got == 0)
		return vb_engine_try_bare(engine) ? pump_and_poll(engine, cq, out, n)
						  : not_alive(engine);
	if (vb_hold_row_is_open(&engine->hold) && vb_engine_try_bare(engine)) {
		end_row(engine);
		vb_engine_unlock(engine);
	}
	return got;
}

int vb_engine_poll_cq(struct vb_engine *engine, struct vb_cq *cq, struct vb_cqe *out, int n)
{
	int got;

	if (atomic_load_explicit(&engine->life, memory_order_relaxed) == VB_IN_CHILD)
		return -EIO;
	if (cq->single)
		return poll_single(engine, cq, out, n);
	if (!vb_engine_lock_bare(engine))
		return not_alive(engine);
	count_poll(engine);
	got = vb_cq_poll(cq, out, n);
	if (got == 0)
		return pump_and_poll(engine, cq, out, n);
	if (vb_hold_row_is_open(&engine->hold))
		end_row(engine);
	vb_engine_unlock(engine);
	return got;
}
