/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_direct.c - the initiator's own WRITE and READ: the checks that the peer's responder would
 * make, on what the peer published, and then one copy into or out of its memory.
 *
 *      the peer lives, lets us, and its process is who it says
 *      hazard = {its QP, rkey}                      from here on its owner waits for us
 *      its QP: open, connected to ours, with the right           (IBTA 9.7.4.1.5)
 *      its region: this very rkey, the QP's PD, with the right,
 *      around the range                                          (IBTA 10.6)
 *      target = the range (full barrier); both entries unchanged?
 *      copy, to where target says then; hazard = 0
 *
 * A receiver that fetches what a SEND lent it (vb_local_fetch) is an initiator like any other, but
 * needs no remote right: the region is the sender's own, and it named it.
 *
 * Any doubt is an -errno. The request then goes as packets, and the peer itself judges.
 *
 * Where the whole range is in pages that both have mapped (local_share.c), the copy is memmove(3),
 * and an atomic the processor's own, as it is in the peer's responder. A long access that only
 * partly is goes in pieces.
 *
 * Else the copy is process_vm_writev(2) or process_vm_readv(2), at most VB_LOCAL_DIRECT_MAX bytes a
 * call; of a WRITE the last up to 8 bytes, to an 8-byte boundary, are a piece behind the rest,
 * because programs poll on the last byte. Where the two ends are one process it is memmove(3).
 */
#define _GNU_SOURCE
#include "carrier/local_private.h"

#include <errno.h>
#include <string.h>

/* The remote rights, enum ibv_access_flags. */
#define ACCESS_REMOTE_WRITE (1u << 1)
#define ACCESS_REMOTE_READ (1u << 2)
#define ACCESS_REMOTE_ATOMIC (1u << 3)
#define ACCESS_ON_DEMAND (1u << 6)

#define SNAPSHOT_TRIES 8
#define WORTH_CUTTING 65536u /* bytes of an access: below, one copy by the kernel is as fast */

/* A consistent copy of an entry, or false: it is being changed. T has seq as its first member. */
#define SNAPSHOT(entry, copy)                                                                      \
	({                                                                                         \
		const uint32_t *_seq = &(entry)->seq;                                              \
		bool _good = false;                                                                \
		int _try;                                                                          \
		for (_try = 0; _try < SNAPSHOT_TRIES && !_good; _try++) {                          \
			uint32_t _before = __atomic_load_n(_seq, __ATOMIC_ACQUIRE);                \
			(copy) = *(const volatile __typeof__(copy) *)(entry);                      \
			__atomic_thread_fence(__ATOMIC_ACQUIRE);                                   \
			_good = !(_before & 1) &&                                                  \
				__atomic_load_n(_seq, __ATOMIC_RELAXED) == _before;                \
		}                                                                                  \
		_good;                                                                             \
	})

static bool has_page(const uint64_t *pages, size_t offset)
{
	size_t page = offset / VB_FILE_PAGE;

	return __atomic_load_n(&pages[page / 64], __ATOMIC_ACQUIRE) >> (page % 64) & 1;
}

static void grant_shared(const struct vb_local_mr_entry *mr, uint64_t page,
			 struct vb_local_grant *grant)
{
	if (!(mr->shared & VB_LOCAL_SHARED))
		return;
	grant->shared_from = (mr->addr + page - 1) & ~(page - 1);
	grant->shared_to = (mr->addr + mr->length) & ~(page - 1);
	grant->shared_at = mr->shared & ~VB_LOCAL_SHARED;
}

uint64_t vb_local_check_access(const struct vb_local *local, const struct vb_local_area *area,
			       bool in_place, const struct vb_local_wanted *wanted,
			       struct vb_local_grant *grant)
{
	const uint32_t qp_index = wanted->dest_qpn % VB_LOCAL_QPS;
	const uint32_t mr_index = vb_local_mr_index(wanted->rkey);
	const uint32_t right = wanted->right;
	struct vb_local_qp_entry qp;
	struct vb_local_mr_entry mr;
	uint64_t offset;

	if (!has_page(area->qp_pages, qp_index * sizeof(qp)) ||
	    !has_page(area->mr_pages, mr_index * sizeof(mr)))
		return 0;
	if (!SNAPSHOT(&area->qps[qp_index], qp) || !SNAPSHOT(&area->mrs[mr_index], mr))
		return 0;
	if (qp.qpn != wanted->dest_qpn || qp.open != 1 || qp.dest_qpn != wanted->qpn ||
	    right & ~qp.access)
		return 0;
	if (mr.rkey != wanted->rkey || mr.pd_id != qp.pd_id || right & ~mr.access ||
	    (mr.qpn && mr.qpn != wanted->dest_qpn))
		return 0;
	/* Memory that may be missing: the kernel finds out in the other process, nobody in ours. */
	if (mr.access & ACCESS_ON_DEMAND && in_place)
		return 0;
	offset = wanted->va - mr.iova;
	if (wanted->va < mr.iova || wanted->bytes > mr.length || offset > mr.length - wanted->bytes)
		return 0;
	if (mr.addr == 0 || mr.addr + mr.length < mr.addr)
		return 0;
	*grant = (struct vb_local_grant){
		.qp_now = &area->qps[qp_index].seq,
		.mr_now = &area->mrs[mr_index].seq,
		.qp_seq = qp.seq,
		.mr_seq = mr.seq,
	};
	grant_shared(&mr, local->page, grant);
	return mr.addr + offset;
}

static bool still_granted(const struct vb_local_grant *grant)
{
	return __atomic_load_n(grant->qp_now, __ATOMIC_SEQ_CST) == grant->qp_seq &&
	       __atomic_load_n(grant->mr_now, __ATOMIC_SEQ_CST) == grant->mr_seq;
}

/* The first bytes of the local parts, at most want. Returns the parts used. */
static int take_parts(const struct iovec *from, int count, uint32_t want, struct iovec *to,
		      uint32_t *bytes)
{
	int i, n = 0;

	*bytes = 0;
	for (i = 0; i < count && n < VB_LOCAL_IOVECS && *bytes < want; i++) {
		if (from[i].iov_len == 0)
			continue;
		to[n].iov_base = from[i].iov_base;
		to[n].iov_len = VB_MIN(from[i].iov_len, (size_t)(want - *bytes));
		*bytes += (uint32_t)to[n++].iov_len;
	}
	return n;
}

/* How many bytes at the end of a WRITE to address go last. */
static uint32_t tail_bytes(uint64_t address, uint32_t length)
{
	uint64_t boundary = (address + length - 1) & ~7ull;

	return boundary <= address ? 0 : (uint32_t)(address + length - boundary);
}

void vb_local_copy(bool write, uint8_t *at, const struct iovec *parts, int count, uint32_t bytes)
{
	uint32_t main_left = bytes - (write ? tail_bytes((uintptr_t)at, bytes) : 0);
	int i;

	for (i = 0; i < count; i++) {
		size_t n = parts[i].iov_len, first = VB_MIN(n, (size_t)main_left);

		if (!write) {
			memmove(parts[i].iov_base, at, n);
		} else {
			memmove(at, parts[i].iov_base, first);
			main_left -= (uint32_t)first;
			if (first < n) {
				__atomic_thread_fence(__ATOMIC_RELEASE);
				memmove(at + first, (uint8_t *)parts[i].iov_base + first,
					n - first);
			}
		}
		at += n;
	}
}

/* Bytes moved or -errno; everything or nothing is reported, though part may have been written.
 *
 * Whether the process is the one that it was is asked at each copy: exec keeps the PID, and what
 * lies at the address then belongs to another program. Where no thread says so (local_life.c), the
 * slot's lock does: the kernel takes the old memory away before it frees that, so that a lock still
 * held means that memory or one with nothing at the address yet.
 *
 * The owner may find us stopped, and then makes the lengths in target 0 and waits no longer
 * (local_hazard.c). He takes his entry away first: whoever has not written target by then finds the
 * entry changed, whoever has copies nothing. */
ssize_t vb_local_copy_there(struct vb_local *local, struct vb_local_peer *peer, bool write,
			    uint64_t address, const struct iovec *parts, int count, uint32_t bytes,
			    const struct vb_local_grant *grant)
{
	uint32_t tail = write ? tail_bytes(address, bytes) : 0;
	struct iovec *target = local->bell->target;
	unsigned long pieces = tail ? 2 : 1;
	pid_t thread = vb_local_area_thread(peer->area);
	ssize_t n;

	if (!thread && vb_registry_pid(local->registry, peer->slot) != peer->pid) {
		peer->suspect = true;
		return -ESRCH;
	}
	if (!thread)
		thread = peer->pid;
	target[0] = (struct iovec){(void *)(uintptr_t)address, bytes - tail};
	target[1] = (struct iovec){(void *)(uintptr_t)(address + bytes - tail), tail};
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!still_granted(grant))
		return -EACCES;
	if (write)
		n = process_vm_writev(thread, parts, (unsigned long)count, target, pieces, 0);
	else
		n = process_vm_readv(thread, parts, (unsigned long)count, target, pieces, 0);
	if (n == (ssize_t)bytes)
		return n;
	if (n < 0 && (errno == EPERM || errno == ENOSYS)) {
		peer->direct_forbidden = true;
		return -errno;
	}
	peer->suspect = true;
	return n < 0 ? -errno : -EFAULT;
}

/* Tells the owner, once, to look at our hazard when it takes regions back. */
static void announce(struct vb_local *local, struct vb_local_peer *peer)
{
	__atomic_fetch_or(&peer->bell->accessors[local->slot / 64], 1ull << (local->slot % 64),
			  __ATOMIC_SEQ_CST);
	peer->announced = true;
}

/* How many of the first bytes at the address are all in shared pages, or none is: a long access may
 * be cut where they begin or end. */
static uint32_t first_piece(const struct vb_local_grant *grant, uint64_t address, uint32_t bytes)
{
	uint64_t border = address < grant->shared_from ? grant->shared_from : grant->shared_to;

	if (bytes < WORTH_CUTTING || border <= address || border - address >= bytes)
		return bytes;
	return (uint32_t)(border - address);
}

/* Where the whole range is mapped here; NULL: it is not, or not all of it is in shared pages. */
static uint8_t *shared_range(struct vb_local *local, struct vb_local_peer *peer,
			     const struct vb_local_grant *grant, uint64_t address, uint32_t bytes)
{
	if (address < grant->shared_from || address + bytes > grant->shared_to)
		return NULL;
	return vb_local_shared(local, peer, grant->shared_at + (address - grant->shared_from),
			       bytes);
}

/* An access that is allowed, to or from another process; parts may be cut. */
static ssize_t move(struct vb_local *local, struct vb_local_peer *peer, bool write,
		    uint64_t address, struct iovec *parts, int count, uint32_t bytes,
		    const struct vb_local_grant *grant)
{
	uint8_t *at = NULL;

	if (local->use_shared && grant->shared_to) {
		bytes = first_piece(grant, address, bytes);
		count = take_parts(parts, count, bytes, parts, &bytes);
		at = shared_range(local, peer, grant, address, bytes);
	}
	if (!at) {
		__atomic_store_n(&local->bell->sharing, 0, __ATOMIC_RELAXED);
		return vb_local_copy_there(local, peer, write, address, parts, count, bytes, grant);
	}
	vb_local_copy(write, at, parts, count, bytes);
	local->counters.shared_accesses++;
	return (ssize_t)bytes;
}

void vb_local_set_hazard(struct vb_local *local, uint32_t dest_qpn, uint32_t rkey)
{
	if (local->use_shared)
		__atomic_store_n(&local->bell->sharing, 1, __ATOMIC_RELAXED);
	__atomic_exchange_n(&local->area->hazard, VB_HAZARD_VALID | (uint64_t)dest_qpn << 32 | rkey,
			    __ATOMIC_SEQ_CST);
}

static ssize_t access_peer(struct vb_local *local, struct vb_local_peer *peer,
			   const struct vb_local_wanted *wanted, struct iovec *parts, int count)
{
	const bool write = wanted->right == ACCESS_REMOTE_WRITE;
	const bool in_place = peer->slot == local->slot;
	struct vb_local_grant grant;
	uint64_t address;
	ssize_t n = -EACCES;

	vb_local_set_hazard(local, wanted->dest_qpn, wanted->rkey);
	address = vb_local_check_access(local, peer->area, in_place, wanted, &grant);
	if (!address) {
		;
	} else if (vb_local_is_closed(peer->segment)) {
		n = -EHOSTUNREACH; /* the slot has another owner */
	} else if (in_place) {
		vb_local_copy(write, (uint8_t *)(uintptr_t)address, parts, count, wanted->bytes);
		n = (ssize_t)wanted->bytes;
	} else if (!wanted->right && count == 1 && !(local->use_shared && grant.shared_to)) {
		n = vb_local_copy_together(local, peer, wanted, address, parts, &grant);
	} else {
		n = move(local, peer, write, address, parts, count, wanted->bytes, &grant);
	}
	__atomic_store_n(&local->area->hazard, 0, __ATOMIC_RELEASE);
	return n;
}

struct vb_local_peer *vb_local_accessible(struct vb_local *local, uint32_t dest_qpn, ssize_t *why)
{
	unsigned int slot = (dest_qpn & VB_QPN_MASK) >> VB_SLOT_SHIFT;
	struct vb_local_peer *peer = NULL;

	*why = -EHOSTUNREACH;
	if (slot != 0 && slot < VB_REGISTRY_SLOTS && dest_qpn <= VB_QPN_MASK)
		peer = vb_local_peer(local, slot);
	if (!peer)
		return NULL;
	*why = 0;
	/* A copy by the kernel asks besides whether it lives. */
	if (local->use_shared || ++peer->access_count % VB_LOCAL_CLOCK_EVERY == 0 ||
	    !vb_local_peer_is_good(peer))
		*why = vb_local_peer_refresh(local, peer);
	if (*why == 0 && (peer->direct_forbidden || peer->pid <= 0))
		*why = -EPERM;
	if (*why)
		return NULL;
	if (!peer->announced)
		announce(local, peer);
	return peer;
}

ssize_t vb_local_direct(struct vb_carrier *carrier, bool write, uint32_t qpn, uint32_t dest_qpn,
			uint32_t rkey, uint64_t va, const struct iovec *local_parts, int parts,
			uint32_t length)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	struct vb_local_wanted wanted = {
		.right = write ? ACCESS_REMOTE_WRITE : ACCESS_REMOTE_READ,
		.qpn = qpn,
		.dest_qpn = dest_qpn,
		.rkey = rkey,
		.va = va,
	};
	struct iovec piece[VB_LOCAL_IOVECS];
	ssize_t n;
	int count = take_parts(local_parts, parts, VB_MIN(length, VB_LOCAL_DIRECT_MAX), piece,
			       &wanted.bytes);
	struct vb_local_peer *peer = vb_local_accessible(local, dest_qpn, &n);

	if (peer && wanted.bytes == 0)
		n = -EINVAL; /* an empty WRITE or READ needs no region, but a good QP: the peer's to
				say */
	else if (peer)
		n = access_peer(local, peer, &wanted, piece, count);
	if (n < 0)
		local->counters.direct_refused++;
	else if (write)
		local->counters.direct_writes++;
	else
		local->counters.direct_reads++;
	return n;
}

/* --- what the peer lent -------------------------------------------------------------------- */

/* Where the next byte goes. */
struct place {
	const struct iovec *to;
	int parts;
	size_t used; /* bytes of to[0] */
};

static void go_on(struct place *place, size_t bytes)
{
	for (place->used += bytes; place->parts && place->used >= place->to->iov_len;
	     place->parts--)
		place->used -= place->to++->iov_len;
}

/* The next bytes of the place, at most want. Returns the parts used. */
static int next_parts(const struct place *place, uint32_t want, struct iovec *out, uint32_t *bytes)
{
	int n = take_parts(place->to, place->parts, want + (uint32_t)place->used, out, bytes);

	if (n) {
		out[0].iov_base = (uint8_t *)out[0].iov_base + place->used;
		out[0].iov_len -= place->used;
		*bytes -= (uint32_t)place->used;
	}
	return n;
}

static ssize_t fetch_part(struct vb_local *local, struct vb_local_peer *peer,
			  struct vb_local_wanted *wanted, uint32_t length, struct place *place)
{
	struct iovec piece[VB_LOCAL_IOVECS];

	while (length > 0) {
		int count = next_parts(place, length, piece, &wanted->bytes);
		ssize_t n = -EINVAL;

		if (wanted->bytes)
			n = access_peer(local, peer, wanted, piece, count);
		if (n <= 0)
			return n;
		go_on(place, (size_t)n);
		wanted->va += (uint64_t)n;
		length -= (uint32_t)n;
	}
	return 0;
}

int vb_local_fetch(struct vb_carrier *carrier, uint32_t qpn, uint32_t dest_qpn,
		   const struct vb_lent *lent, const struct iovec *to, int parts)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	struct vb_local_wanted wanted = {.qpn = qpn, .dest_qpn = dest_qpn};
	struct place place = {.to = to, .parts = parts};
	ssize_t n;
	struct vb_local_peer *peer = vb_local_accessible(local, dest_qpn, &n);

	for (uint32_t i = 0; peer && n == 0 && i < lent->count; i++) {
		wanted.rkey = lent->parts[i].rkey;
		wanted.va = lent->parts[i].va;
		n = fetch_part(local, peer, &wanted, lent->parts[i].length, &place);
	}
	local->counters.fetched += n == 0;
	local->counters.fetch_refused += n != 0;
	return (int)n;
}

/* --- atomics ------------------------------------------------------------------------------ */

static uint64_t do_atomic(uint64_t *word, const struct vb_local_atomic *op)
{
	uint64_t before = op->compare;

	if (!op->swap)
		return __atomic_fetch_add(word, op->swap_add, __ATOMIC_SEQ_CST);
	/* on a mismatch the builtin leaves the word's value in before */
	__atomic_compare_exchange_n(word, &before, op->swap_add, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	return before;
}

static int atomic_at_peer(struct vb_local *local, struct vb_local_peer *peer,
			  const struct vb_local_atomic *op, uint64_t *before)
{
	const struct vb_local_wanted wanted = {
		.right = ACCESS_REMOTE_ATOMIC,
		.qpn = op->qpn,
		.dest_qpn = op->dest_qpn,
		.rkey = op->rkey,
		.va = op->va,
		.bytes = sizeof(*before),
	};
	struct vb_local_grant grant;
	uint64_t address;
	uint8_t *at = NULL;

	vb_local_set_hazard(local, op->dest_qpn, op->rkey);
	address = vb_local_check_access(local, peer->area, false, &wanted, &grant);
	if (address && address % sizeof(*before) == 0 && !vb_local_is_closed(peer->segment))
		at = shared_range(local, peer, &grant, address, sizeof(*before));
	if (at)
		*before = do_atomic((uint64_t *)(void *)at, op);
	__atomic_store_n(&local->area->hazard, 0, __ATOMIC_RELEASE);
	return at ? 0 : -EACCES;
}

int vb_local_atomic(struct vb_carrier *carrier, const struct vb_local_atomic *op, uint64_t *before)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	struct vb_local_peer *peer;
	ssize_t n = -EACCES;

	/* the peer's to say what is wrong, and to do what it can do itself */
	if (!local->use_shared || op->va % sizeof(*before))
		return -EACCES;
	peer = vb_local_accessible(local, op->dest_qpn, &n);
	if (!peer)
		return (int)n;
	if (peer->slot == local->slot)
		return -EACCES;
	n = atomic_at_peer(local, peer, op, before);
	local->counters.shared_atomics += n == 0;
	return (int)n;
}
