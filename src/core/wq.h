/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wq.h - receive work queues of their own, tables of them, and how a frame's hash chooses one
 * (receive-side scaling).
 *
 *      frame -> rule -> RSS queue pair -> Toeplitz hash -> table[hash mod size] -> WQ -> its CQ
 */
#ifndef VB_CORE_WQ_H
#define VB_CORE_WQ_H

#include <stdbool.h>
#include <stdint.h>

#include "core/cq.h"
#include "core/reason.h"
#include "core/rq.h"
#include "wire/frame.h"

#define VB_RSS_KEY_BYTES 40u

/* enum vb_wq_state - numerically equal to enum ibv_wq_state. */
enum vb_wq_state { VB_WQS_RESET, VB_WQS_RDY, VB_WQS_ERR };

struct vb_wq {
	struct vb_nic *nic;
	struct vb_pd *pd;
	struct vb_cq *cq;
	void *user;
	uint32_t number;
	uint32_t users; /* places in tables */
	enum vb_wq_state state;
	bool strip_vlan;
	struct vb_rq rq;
	struct vb_recv_wqe taken; /* the request that a frame is being placed into */
	struct vb_sge *taken_sges;
};

struct vb_wq_table {
	struct vb_nic *nic;
	uint32_t users; /* queue pairs */
	uint32_t mask;	/* size - 1 */
	struct vb_wq *wqs[];
};

/* numerically equal to enum ibv_rx_hash_fields */
enum vb_rss_fields {
	VB_RSS_SRC_IPV4 = 1 << 0,
	VB_RSS_DST_IPV4 = 1 << 1,
	VB_RSS_SRC_IPV6 = 1 << 2,
	VB_RSS_DST_IPV6 = 1 << 3,
	VB_RSS_SRC_PORT_TCP = 1 << 4,
	VB_RSS_DST_PORT_TCP = 1 << 5,
	VB_RSS_SRC_PORT_UDP = 1 << 6,
	VB_RSS_DST_PORT_UDP = 1 << 7,
	VB_RSS_ALL = (1 << 8) - 1,
};

struct vb_rss {
	struct vb_wq_table *table;
	uint32_t fields; /* enum vb_rss_fields; 0: no hash, the table's first */
	uint8_t key[VB_RSS_KEY_BYTES];
};

/* vb_wq_create - in RESET. NULL with errno EINVAL: a limit is exceeded; ENOMEM. */
struct vb_wq *vb_wq_create(struct vb_pd *pd, struct vb_cq *cq, uint32_t max_wr, uint32_t max_sge,
			   bool strip_vlan, void *user);
/* vb_wq_destroy - 0, or -EBUSY while a table names it. NULL is accepted. */
int vb_wq_destroy(struct vb_wq *wq);
/* vb_wq_set_state - -EINVAL: RESET leads to RDY, RDY to ERR, and both back to RESET. */
int vb_wq_set_state(struct vb_wq *wq, enum vb_wq_state state);
/* vb_wq_post - 0; -EINVAL: in RESET, or too many SGEs or bytes; -ENOMEM: no place. In ERR the
 * request is flushed. */
int vb_wq_post(struct vb_wq *wq, const struct vb_recv_wr *wr);
/* vb_wq_fail - the request that was taken completes with status; the rest is flushed. */
void vb_wq_fail(struct vb_wq *wq, enum vb_status status, const struct vb_reason *reason);

/* vb_wq_table_create - 2^log_size places, each with a WQ of this NIC. NULL with errno EINVAL or
 * ENOMEM. */
struct vb_wq_table *vb_wq_table_create(struct vb_nic *nic, struct vb_wq *const *wqs,
				       uint32_t log_size);
/* vb_wq_table_destroy - 0, or -EBUSY while a queue pair uses it. NULL is accepted. */
int vb_wq_table_destroy(struct vb_wq_table *table);

/* vb_rss_hash - over the fields that the frame has and rss names: source address, destination
 * address, source port, destination port. */
uint32_t vb_rss_hash(const struct vb_rss *rss, const struct vb_frame *frame);
/* vb_rss_fields_are_valid - known ones; IPv4 not with IPv6, TCP not with UDP. */
bool vb_rss_fields_are_valid(uint64_t fields);

#endif
