/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hold.h - when something that would leave by UDP waits a moment for company.
 *
 * A datagram costs a system call and the receiver's half of the kernel's path, whatever is in it.
 * Two things may wait, each a bet on what the program does next:
 *
 *      an answer   The program is given a message, and owes nothing but its acknowledgement. The
 *                  bet: it posts to the same queue pair within VB_HOLD_NS, before anything else.
 *      posts       It posts small requests in a row, without a poll in between and with others
 *                  under way. The bet: the next post, or the poll that ends the row, comes within
 *                  VB_ROW_NS. VB_ROW_WIN posts of a row are a win, and so is its end in time. The
 *                  first VB_ROW_FREE posts are no row yet, unless the program is steady.
 *
 *      message --> NONE --> AWAITED or HELD --- the post, in time ---> NONE, a hit
 *                                           --- anything else -------> NONE, a miss
 *
 * Nothing is held for a program that has not won the bet VB_STEADY times lately; where it is not
 * steady the answer goes at once and what it does next is only watched. A miss takes half of that
 * away, so that a program that does so now and then has one answer in five late at worst, and one
 * that exchanges a few messages none. Only the thread, which looks again VB_HOLD_NS later, tries
 * one answer in VB_TRY_EVERY all the same: a program that spins on its memory is slower than the
 * bet while the thread has its processor.
 *
 * What waits leaves with whatever comes next: the post, a poll, any other call into the engine,
 * fork, the process's end; or the thread's next look (thread.c): a millisecond later at most where
 * it is an answer, VB_ALARM_NS where it is posts, for which a timer is set: that costs a system
 * call, which a row of posts is worth. Nothing waits while the thread sleeps without an end.
 *
 * Here is what is known and decided, without I/O; pump.c asks and acts. All under the engine's
 * lock; the two atomics may be looked at without it, as a hint.
 */
#ifndef VB_HOST_HOLD_H
#define VB_HOST_HOLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define VB_HOLD_NS (20u * 1000)
#define VB_STEADY 8u
#define VB_TRY_EVERY 8u
#define VB_ROW_FREE 4u /* posts that are no row yet, where the program is not known for rows */
#define VB_ROW_WIN 16u
#define VB_ROW_NS (100u * 1000)
#define VB_ALARM_NS (200u * 1000)
#define VB_HOLD_POSTS 64u /* that wait at most: a train */

struct vb_rhythm {
	uint32_t hits; /* 0 to VB_STEADY */
};

enum vb_answer { VB_ANSWER_NONE, VB_ANSWER_AWAITED, VB_ANSWER_HELD };

struct vb_hold {
	_Atomic bool waits;    /* an answer or posts */
	_Atomic bool row_open; /* the next poll says how the row ended */
	enum vb_answer answer;
	uint32_t qpn;	   /* of the answer */
	uint64_t since_ns; /* of the message */
	uint32_t tries;	   /* answers that the thread did not hold */
	uint32_t posts;	   /* that wait */
	uint32_t row;	   /* posts since a poll or a pause */
	uint32_t polls;	   /* the program's, at the last post */
	uint64_t posted_ns;
	struct vb_rhythm answers, rows;
};

static inline bool vb_rhythm_is_steady(const struct vb_rhythm *rhythm)
{
	return rhythm->hits >= VB_STEADY;
}

static inline void vb_rhythm_note(struct vb_rhythm *rhythm, bool hit)
{
	rhythm->hits = hit ? VB_MIN(rhythm->hits + 1, VB_STEADY) : rhythm->hits / 2;
}

static inline bool vb_hold_waits(const struct vb_hold *hold)
{
	return atomic_load_explicit(&hold->waits, memory_order_relaxed);
}

static inline bool vb_hold_row_is_open(const struct vb_hold *hold)
{
	return atomic_load_explicit(&hold->row_open, memory_order_relaxed);
}

/* vb_hold_message - the program is being given a message on the queue pair, which owes the
 * acknowledgement alone, by the thread or in its own call. True: that waits. */
static inline bool vb_hold_message(struct vb_hold *hold, uint32_t qpn, uint64_t now_ns,
				   bool by_thread)
{
	if (hold->answer != VB_ANSWER_NONE)
		vb_rhythm_note(&hold->answers, false);
	hold->qpn = qpn;
	hold->since_ns = now_ns;
	if (!vb_rhythm_is_steady(&hold->answers) &&
	    (!by_thread || ++hold->tries % VB_TRY_EVERY != 0)) {
		hold->answer = VB_ANSWER_AWAITED;
		return false;
	}
	hold->answer = VB_ANSWER_HELD;
	atomic_store_explicit(&hold->waits, true, memory_order_relaxed);
	return true;
}

/* vb_hold_is_row - the posts since a poll or a pause are a row, or the beginning of one: of a
 * program that has shown that it posts in rows, the first. */
static inline bool vb_hold_is_row(const struct vb_hold *hold)
{
	return hold->row > (vb_rhythm_is_steady(&hold->rows) ? 0 : VB_ROW_FREE);
}

/* vb_hold_went - what did not wait has been sent, which took its time: the program's begins now. */
static inline void vb_hold_went(struct vb_hold *hold, uint64_t now_ns)
{
	if (hold->answer == VB_ANSWER_AWAITED)
		hold->since_ns = now_ns;
	if (vb_hold_is_row(hold))
		hold->posted_ns = now_ns;
}

/* vb_hold_answered - the program posted to the queue pair. True: an acknowledgement waited, and
 * goes now. */
static inline bool vb_hold_answered(struct vb_hold *hold, uint32_t qpn, uint64_t now_ns)
{
	const bool held = hold->answer == VB_ANSWER_HELD;
	const bool hit = hold->qpn == qpn && now_ns - hold->since_ns < VB_HOLD_NS;

	if (hold->answer == VB_ANSWER_NONE)
		return false;
	vb_rhythm_note(&hold->answers, hit);
	if (hit && held) /* be it a try */
		hold->answers.hits = VB_STEADY;
	hold->answer = VB_ANSWER_NONE;
	return held;
}

/* vb_hold_polled - the program polls, and nothing is there for it: it did not answer. */
static inline void vb_hold_polled(struct vb_hold *hold)
{
	if (hold->answer == VB_ANSWER_NONE)
		return;
	vb_rhythm_note(&hold->answers, false);
	hold->answer = VB_ANSWER_NONE;
}

/* vb_hold_post - the program posted what may wait, or not; polls: its polls so far. True: it waits.
 */
static inline bool vb_hold_post(struct vb_hold *hold, bool may_wait, uint32_t polls,
				uint64_t now_ns)
{
	const bool late = now_ns - hold->posted_ns >= VB_ROW_NS;

	if (late || polls != hold->polls) {
		if (late && vb_hold_is_row(hold))
			vb_rhythm_note(&hold->rows, false);
		hold->row = 0;
	}
	hold->polls = polls;
	hold->posted_ns = now_ns;
	hold->row++;
	if (!vb_hold_is_row(hold))
		return false;
	atomic_store_explicit(&hold->row_open, true, memory_order_relaxed);
	if (hold->row % VB_ROW_WIN == 0)
		vb_rhythm_note(&hold->rows, true);
	if (!may_wait || !vb_rhythm_is_steady(&hold->rows) || hold->posts >= VB_HOLD_POSTS)
		return false;
	hold->posts++;
	atomic_store_explicit(&hold->waits, true, memory_order_relaxed);
	return true;
}

/* vb_hold_row_ends - the program polls, or calls something else. */
static inline void vb_hold_row_ends(struct vb_hold *hold, uint64_t now_ns)
{
	if (vb_hold_is_row(hold))
		vb_rhythm_note(&hold->rows, now_ns - hold->posted_ns < VB_ROW_NS);
	hold->row = 0;
	atomic_store_explicit(&hold->row_open, false, memory_order_relaxed);
}

/* vb_hold_end - all that waits leaves now. */
static inline void vb_hold_end(struct vb_hold *hold)
{
	if (!vb_hold_waits(hold))
		return;
	if (hold->answer == VB_ANSWER_HELD) {
		vb_rhythm_note(&hold->answers, false);
		hold->answer = VB_ANSWER_NONE;
	}
	hold->posts = 0;
	atomic_store_explicit(&hold->waits, false, memory_order_relaxed);
}

/* vb_hold_is_young - what waits came so lately that it may go on. */
static inline bool vb_hold_is_young(const struct vb_hold *hold, uint64_t now_ns)
{
	return vb_hold_waits(hold) &&
	       (hold->answer != VB_ANSWER_HELD || now_ns - hold->since_ns < VB_HOLD_NS) &&
	       (hold->posts == 0 || now_ns - hold->posted_ns < VB_HOLD_NS);
}

#endif
