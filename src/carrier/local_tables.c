/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_tables.c - the owner's side of direct access: what peers may reach, and taking it back.
 *
 * A region or window stands where its rkey says and a queue pair where its number does, so that an
 * initiator needs one load to find either. An entry changes under its sequence number; only its
 * owner writes it.
 *
 * Taking back (the initiator's side is in local_direct.c):
 *
 *      initiator                                owner
 *      hazard = {QP, rkey}   (full barrier)     entry = nothing
 *      entry still right? -> copy               full barrier
 *      hazard = 0                               every accessor's hazard: not this one, or dead, or
 * wait
 *
 * Either the initiator sees that the entry is gone, or the owner sees the hazard. A process that
 * dies with a hazard set holds no slot any more and is skipped: the kernel frees its slot only
 * after its last thread, and with it a copy under way, has ended. One that was stopped in the
 * middle is waited for, VB_LOCAL_WITHDRAW_MS long, and then the owner is told -EBUSY.
 */
#include "carrier/local_private.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "carrier/clock.h"

/* Backs the table's page with memory once. */
static int reserve_page(struct vb_local *local, const void *entry, const void *table,
			uint64_t *pages)
{
	size_t offset = (size_t)((const uint8_t *)entry - (const uint8_t *)table);
	size_t page = offset / VB_FILE_PAGE;
	size_t table_at = VB_FILE_PAGE + (size_t)((const uint8_t *)table - (uint8_t *)local->area);
	int r;

	if (pages[page / 64] & 1ull << (page % 64))
		return 0;
	r = vb_registry_reserve(local->registry, table_at + page * VB_FILE_PAGE, VB_FILE_PAGE);
	if (r == 0)
		__atomic_fetch_or(&pages[page / 64], 1ull << (page % 64), __ATOMIC_SEQ_CST);
	return r;
}

static void begin_change(uint32_t *seq)
{
	__atomic_store_n(seq, *seq | 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static void end_change(uint32_t *seq)
{
	__atomic_store_n(seq, *seq + 1, __ATOMIC_RELEASE);
}

#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

int vb_local_publish_mr(struct vb_carrier *carrier, const struct vb_local_mr *mr)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	struct vb_local_mr_entry *entry = &local->area->mrs[vb_local_mr_index(mr->rkey)];
	int r;

	pthread_mutex_lock(&local->tables_lock);
	r = reserve_page(local, entry, local->area->mrs, local->area->mr_pages);
	if (r == 0) {
		begin_change(&entry->seq);
		STORE(entry->rkey, mr->rkey);
		STORE(entry->pd_id, mr->pd_id);
		STORE(entry->access, mr->access);
		STORE(entry->addr, mr->addr);
		STORE(entry->iova, mr->iova);
		STORE(entry->length, mr->length);
		STORE(entry->qpn, mr->qpn);
		end_change(&entry->seq);
	}
	pthread_mutex_unlock(&local->tables_lock);
	return r ? -ENOSPC : 0;
}

void vb_local_publish_qp(struct vb_carrier *carrier, const struct vb_local_qp *qp)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	struct vb_local_qp_entry *entry = &local->area->qps[qp->qpn % VB_LOCAL_QPS];

	pthread_mutex_lock(&local->tables_lock);
	/* Without memory for its page it stays unknown, and is reached by packets. */
	if (reserve_page(local, entry, local->area->qps, local->area->qp_pages) == 0) {
		begin_change(&entry->seq);
		STORE(entry->qpn, qp->qpn);
		STORE(entry->dest_qpn, qp->dest_qpn);
		STORE(entry->pd_id, qp->pd_id);
		STORE(entry->access, qp->access);
		STORE(entry->open, qp->open);
		end_change(&entry->seq);
	}
	pthread_mutex_unlock(&local->tables_lock);
}

/* Maps the part of a peer's segment with the hazard. -ENOENT: there is no segment, so no access. */
static int open_watch(struct vb_local *local, unsigned int slot, struct vb_local_watch *watch)
{
	struct vb_file_header header;
	void *map;
	int r, fd = vb_registry_file_open(local->registry, VB_FILE_SEGMENT, (uint16_t)slot, 0,
					  VB_SEGMENT_BYTES, false, &header);

	if (fd < 0)
		return fd;
	r = vb_file_map(fd, VB_LOCAL_WATCH_BYTES, false, &map);
	close(fd);
	if (r == 0)
		watch->segment = map;
	return r;
}

/* Whether the process of slot is, as far as can be known, accessing what (mask, value) names. */
static bool is_accessing(struct vb_local *local, unsigned int slot, uint64_t mask, uint64_t value)
{
	struct vb_local_watch *watch = &local->watch[slot];
	const struct vb_local_area *area;
	bool found = true;
	int r = 0;

	pthread_mutex_lock(&local->watch_lock);
	if (watch->segment && vb_local_is_closed(watch->segment)) {
		munmap((void *)(uintptr_t)watch->segment, VB_LOCAL_WATCH_BYTES);
		watch->segment = NULL;
	}
	if (!watch->segment)
		r = open_watch(local, slot, watch);
	if (watch->segment) {
		area = (const void *)((const uint8_t *)watch->segment + VB_FILE_PAGE);
		found = (__atomic_load_n(&area->hazard, __ATOMIC_SEQ_CST) & mask) == value;
	}
	pthread_mutex_unlock(&local->watch_lock);
	if (r == -ENOENT)
		return false;
	return found && vb_registry_is_alive(local->registry, (uint16_t)slot);
}

/* Waits until no process that ever accessed our memory has such a hazard set. */
static int wait_for_hazards(struct vb_local *local, uint64_t mask, uint64_t value)
{
	uint64_t end_ns = vb_clock_ns() + VB_LOCAL_WITHDRAW_MS * 1000000ull;
	unsigned int w;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (w = 0; w < 8; w++) {
		uint64_t slots = __atomic_load_n(&local->bell->accessors[w], __ATOMIC_SEQ_CST);

		for (; slots; slots &= slots - 1) {
			unsigned int slot = w * 64 + (unsigned int)__builtin_ctzll(slots);
			const struct timespec pause = {0, 20000};

			while (is_accessing(local, slot, mask, value)) {
				if (vb_clock_ns() > end_ns)
					return -EBUSY;
				nanosleep(&pause, NULL);
			}
		}
	}
	return 0;
}

int vb_local_withdraw_mr(struct vb_carrier *carrier, uint32_t rkey)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	struct vb_local_mr_entry *entry = &local->area->mrs[vb_local_mr_index(rkey)];
	size_t page = vb_local_mr_index(rkey) * sizeof(*entry) / VB_FILE_PAGE;
	bool there = false;

	pthread_mutex_lock(&local->tables_lock);
	if (local->area->mr_pages[page / 64] & 1ull << (page % 64)) {
		/* A second attempt after -EBUSY finds it empty, and still waits. */
		there = entry->rkey == rkey;
		if (there) {
			begin_change(&entry->seq);
			STORE(entry->length, 0);
			end_change(&entry->seq);
		}
	}
	pthread_mutex_unlock(&local->tables_lock);
	if (!there)
		return 0;
	return wait_for_hazards(local, VB_HAZARD_VALID | UINT32_MAX | VB_HAZARD_SLOT,
				VB_HAZARD_VALID | rkey | vb_local_hazard_slot(local->slot));
}

int vb_local_quiesce_qp(struct vb_carrier *carrier, uint32_t qpn)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);

	qpn &= VB_QPN_MASK;
	return wait_for_hazards(local, VB_HAZARD_VALID | (uint64_t)VB_QPN_MASK << 32,
				VB_HAZARD_VALID | (uint64_t)qpn << 32);
}
