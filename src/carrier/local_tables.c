/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_tables.c - the owner's side of direct access: what peers may reach.
 *
 * A region or window stands where its rkey says and a queue pair where its number does, so that an
 * initiator needs one load to find either. An entry changes under its sequence number; only its
 * owner writes it.
 *
 * Taking it back is to make the entry nothing and to wait for those who saw it (local_hazard.c).
 */
#include "carrier/local_private.h"

#include <errno.h>

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

static void publish_arena(struct vb_local_area *area, const struct vb_local_arena *arena)
{
	STORE(area->arena_fd, (uint64_t)arena->fd);
	STORE(area->arena_device, arena->device);
	STORE(area->arena_inode, arena->inode);
	__atomic_store_n(&area->arena_bytes, arena->bytes, __ATOMIC_RELEASE);
}

int vb_local_publish_mr(struct vb_carrier *carrier, const struct vb_local_mr *mr)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	struct vb_local_mr_entry *entry = &local->area->mrs[vb_local_mr_index(mr->rkey)];
	int r;

	pthread_mutex_lock(&local->tables_lock);
	r = reserve_page(local, entry, local->area->mrs, local->area->mr_pages);
	if (mr->shared)
		publish_arena(local->area, &mr->arena);
	if (r == 0) {
		begin_change(&entry->seq);
		STORE(entry->rkey, mr->rkey);
		STORE(entry->pd_id, mr->pd_id);
		STORE(entry->access, mr->access);
		STORE(entry->addr, mr->addr);
		STORE(entry->iova, mr->iova);
		STORE(entry->length, mr->length);
		STORE(entry->qpn, mr->qpn);
		STORE(entry->shared, mr->shared ? mr->shared_at | VB_LOCAL_SHARED : 0);
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

int vb_local_withdraw_shared_mr(struct vb_carrier *carrier, uint32_t rkey, bool *worn)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);
	struct vb_local_mr_entry *entry = &local->area->mrs[vb_local_mr_index(rkey)];
	size_t page = vb_local_mr_index(rkey) * sizeof(*entry) / VB_FILE_PAGE;
	bool there = false, is_shared = false, unused;

	pthread_mutex_lock(&local->tables_lock);
	if (local->area->mr_pages[page / 64] & 1ull << (page % 64)) {
		is_shared = entry->shared & VB_LOCAL_SHARED;
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
	/* Who was stopped before it knew that the region is not shared copies nothing by itself. */
	return vb_local_wait_for_hazards(local, VB_HAZARD_VALID | UINT32_MAX | VB_HAZARD_SLOT,
					 VB_HAZARD_VALID | rkey | vb_local_hazard_slot(local->slot),
					 is_shared ? worn : &unused);
}

int vb_local_withdraw_mr(struct vb_carrier *carrier, uint32_t rkey)
{
	return vb_local_withdraw_shared_mr(carrier, rkey, NULL);
}

int vb_local_quiesce_qp(struct vb_carrier *carrier, uint32_t qpn)
{
	struct vb_local *local = vb_container_of(carrier, struct vb_local, base);

	qpn &= VB_QPN_MASK;
	return vb_local_wait_for_hazards(local, VB_HAZARD_VALID | (uint64_t)VB_QPN_MASK << 32,
					 VB_HAZARD_VALID | (uint64_t)qpn << 32, NULL);
}
