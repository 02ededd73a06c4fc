/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_together.c - what a SEND lent, copied by both processes at once: the receiver takes
 * from the front by process_vm_readv(2), and its sender, if it happens to poll, from the back by
 * process_vm_writev(2), half of what is left each time, until they meet. Each processor then always
 * has the same part of the two buffers in its cache.
 *
 *      receiver (its bell page)                  sender
 *
 *      fetch = {job, rkey, va, to, ...}
 *      claim = job | back = units | front = 0    polls: a job? hazard = {receiver's QP}
 *      claim.front += n, copy, ...               claim.back -= n, job unchanged? copy, ...
 *      front == back: all helped?                hazard = 0
 *      job = 0, claim = 0
 *
 * A claim names its job and is made by compare and swap, so that none is made of a job that has
 * ended. The receiver waits for the helper's last copy alone. A helper that died, was stopped or
 * may not write leaves it to the receiver; so that it does not write later, it is then waited for
 * as one that accesses a region which is taken back (local_hazard.c), with job in place of the
 * entry.
 *
 * The sender's region stays registered meanwhile: the receiver's own hazard names it. The helper
 * looks the region up itself, and writes nothing else, to where the receiver asks for it.
 */
#include "carrier/local_private.h"

#include <errno.h>

#define UNIT 65536u
#define PATIENCE 20000u /* looks for the helper's last copy before it is asked after */

#define FRONT(claim) ((uint32_t)(claim)&0xffff)
#define BACK(claim) ((uint32_t)(claim) >> 16)
#define FAILED 0x10000u

static inline void relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

static uint32_t units_of(uint32_t bytes)
{
	return (bytes - 1) / UNIT + 1;
}

/* Bytes of the units [first, first + count) of so many. */
static uint32_t bytes_of(uint32_t total, uint32_t first, uint32_t count)
{
	return VB_MIN(count * UNIT, total - first * UNIT);
}

/* Takes half of what is left, from the front or from the back: a long call costs least a byte, and
 * short ones at the end let both end together. Returns the units, from *first on; 0: none of this
 * job is left. */
static uint32_t claim(uint64_t *word, uint32_t job, bool front, uint32_t *first)
{
	uint64_t now = __atomic_load_n(word, __ATOMIC_ACQUIRE), next;
	uint32_t count;

	do {
		if (now >> 32 != job || FRONT(now) >= BACK(now))
			return 0;
		count = (BACK(now) - FRONT(now) + 1) / 2;
		*first = front ? FRONT(now) : BACK(now) - count;
		next = front ? now + count : now - ((uint64_t)count << 16);
	} while (!__atomic_compare_exchange_n(word, &now, next, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_ACQUIRE));
	return count;
}

/* --- the receiver ------------------------------------------------------------------------- */

/* What the copy needs at hand. */
struct fetching {
	struct vb_local *local;
	struct vb_local_peer *peer;
	const struct vb_local_grant *grant;
	const struct vb_local_wanted *wanted;
	uint64_t from;
	uint8_t *to;
	uint32_t job;
};

static void open_job(const struct fetching *f)
{
	struct vb_local_bell *bell = f->local->bell;

	bell->fetch.bytes = f->wanted->bytes;
	bell->fetch.qpn = f->wanted->qpn;
	bell->fetch.dest_qpn = f->wanted->dest_qpn;
	bell->fetch.rkey = f->wanted->rkey;
	bell->fetch.va = f->wanted->va;
	bell->fetch.to = (uint64_t)(uintptr_t)f->to;
	__atomic_store_n(&bell->fetch.job, f->job, __ATOMIC_RELEASE);
	__atomic_store_n(&bell->fetch_claim,
			 (uint64_t)f->job << 32 | units_of(f->wanted->bytes) << 16,
			 __ATOMIC_RELEASE);
}

static void close_job(struct vb_local_bell *bell)
{
	__atomic_store_n(&bell->fetch.job, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&bell->fetch_claim, 0, __ATOMIC_SEQ_CST);
}

static ssize_t copy_units(const struct fetching *f, uint32_t first, uint32_t count)
{
	const uint32_t bytes = bytes_of(f->wanted->bytes, first, count);
	const struct iovec to = {f->to + first * UNIT, bytes};

	return vb_local_copy_there(f->local, f->peer, false, f->from + first * UNIT, &to, 1, bytes,
				   f->grant);
}

/* How many of the units from the back on are there for good; those of the count that were claimed
 * and are not, nobody writes any more. */
static uint32_t wait_for_helper(const struct fetching *f, uint32_t claimed)
{
	const uint64_t *helped = &f->local->bell->fetch_helped;
	const uint64_t all = (uint64_t)f->job << 32 | claimed;
	uint64_t now = 0;

	for (uint32_t looks = 0; claimed && looks < PATIENCE; looks++) {
		now = __atomic_load_n(helped, __ATOMIC_ACQUIRE);
		if (now == all || (now >> 32 == f->job && now & FAILED))
			break;
		relax();
	}
	close_job(f->local->bell);
	if (claimed && now != all)
		(void)vb_local_quiesce_qp(&f->local->base, f->wanted->qpn);
	now = __atomic_load_n(helped, __ATOMIC_ACQUIRE);
	return now >> 32 == f->job ? VB_MIN((uint32_t)now & 0xffff, claimed) : 0;
}

ssize_t vb_local_copy_together(struct vb_local *local, struct vb_local_peer *peer,
			       const struct vb_local_wanted *wanted, uint64_t address,
			       const struct iovec *to, const struct vb_local_grant *grant)
{
	const uint32_t bytes = wanted->bytes;
	const struct fetching f = {
		.local = local,
		.peer = peer,
		.grant = grant,
		.wanted = wanted,
		.from = address,
		.to = to->iov_base,
		.job = local->fetch_job + 1,
	};
	const uint32_t units = units_of(bytes);
	uint32_t first, count, done, left;
	ssize_t n = 0;

	local->fetch_job = f.job;
	__atomic_store_n(&local->bell->sharing, 0, __ATOMIC_RELAXED);
	if (units < 2 || f.job == 0)
		return vb_local_copy_there(local, peer, false, address, to, 1, bytes, grant);
	open_job(&f);
	while (n >= 0 && (count = claim(&local->bell->fetch_claim, f.job, true, &first)) > 0 &&
	       first + count <= units)
		n = copy_units(&f, first, count);
	if (n < 0) {
		/* The helper may claim until the job is closed. */
		close_job(local->bell);
		(void)vb_local_quiesce_qp(&local->base, wanted->qpn);
		return n;
	}
	left = BACK(__atomic_load_n(&local->bell->fetch_claim, __ATOMIC_ACQUIRE));
	left = VB_MIN(left, units);
	done = wait_for_helper(&f, units - left);
	if (left < units - done)
		n = copy_units(&f, left, units - done - left);
	return n < 0 ? n : (ssize_t)bytes;
}

/* --- the sender --------------------------------------------------------------------------- */

/* What the peer fetches, as it says. Where it may be taken from is for our own tables to say. */
static uint64_t judge_job(const struct vb_local *local, const struct vb_local_bell *bell,
			  struct vb_local_wanted *wanted)
{
	struct vb_local_grant unused;

	*wanted = (struct vb_local_wanted){
		.qpn = bell->fetch.qpn,
		.dest_qpn = bell->fetch.dest_qpn,
		.rkey = bell->fetch.rkey,
		.va = bell->fetch.va,
		.bytes = bell->fetch.bytes,
	};
	if (wanted->bytes == 0 || wanted->bytes > VB_LENT_BYTES)
		return 0;
	return vb_local_check_access(local, local->area, false, wanted, &unused);
}

static void help_with(struct vb_local *local, struct vb_local_peer *peer, uint32_t job,
		      uint64_t from, uint64_t to, uint32_t bytes)
{
	struct vb_local_bell *bell = peer->bell;
	const struct vb_local_grant grant = {
		.qp_now = &bell->fetch.job,
		.mr_now = &bell->fetch.job,
		.qp_seq = job,
		.mr_seq = job,
	};
	const uint64_t name = (uint64_t)job << 32;
	uint32_t first, count, done = 0;

	while ((count = claim(&bell->fetch_claim, job, false, &first)) > 0 &&
	       first + count <= units_of(bytes)) {
		const uint32_t n = bytes_of(bytes, first, count);
		const struct iovec part = {(void *)(uintptr_t)(from + first * UNIT), n};

		if (vb_local_copy_there(local, peer, true, to + first * UNIT, &part, 1, n, &grant) <
		    0) {
			__atomic_store_n(&bell->fetch_helped, name | FAILED | done,
					 __ATOMIC_RELEASE);
			return;
		}
		done += count;
		__atomic_store_n(&bell->fetch_helped, name | done, __ATOMIC_RELEASE);
		local->counters.helped++;
	}
}

void vb_local_help(struct vb_local *local)
{
	struct vb_local_peer *peer = local->peers[local->lent_to];
	struct vb_local_wanted wanted;
	uint64_t now, from, to;
	uint32_t qpn;
	ssize_t why;

	local->lent_looks--;
	if (!peer || peer->slot == local->slot || peer->direct_forbidden ||
	    !vb_local_peer_is_good(peer))
		return;
	now = __atomic_load_n(&peer->bell->fetch_claim, __ATOMIC_ACQUIRE);
	if (FRONT(now) >= BACK(now))
		return;
	qpn = peer->bell->fetch.qpn;
	if (vb_local_accessible(local, qpn, &why) != peer)
		return;
	local->lent_looks = VB_LOCAL_LENT_LOOKS;
	vb_local_set_hazard(local, qpn, 0);
	__atomic_store_n(&local->bell->sharing, 0, __ATOMIC_RELAXED);
	from = judge_job(local, peer->bell, &wanted);
	to = peer->bell->fetch.to;
	if (from && wanted.qpn == qpn)
		help_with(local, peer, (uint32_t)(now >> 32), from, to, wanted.bytes);
	__atomic_store_n(&local->area->hazard, 0, __ATOMIC_RELEASE);
}
