/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw.h - raw packet queue pairs: whole Ethernet frames, and the rules that say who gets which.
 *
 *      send request -> frame(s) -> ops.raw_tx                                      raw.c
 *      frame -> rules, in order -> queue pair, or RSS and a work queue             flow.c
 *
 * A frame that comes is looked at by
 *
 *      sniffers           each gets a copy of everything
 *      normal rules       by priority, then age; the first that matches has the frame, and so have
 *                         rules that say the very same; DONT_TRAP lets it go on
 *      default rules      what no rule took: groups for MC_DEFAULT and ALL_DEFAULT, the rest for
 *                         ALL_DEFAULT; not RoCE's own packets, which are queue pairs'
 *
 * What this host sends is heard too where the interface does not bring it back by itself: as in an
 * adapter's internal switch by sniffers, and by all others when it is to a group or to the
 * interface's own address.
 */
#ifndef VB_CORE_RAW_H
#define VB_CORE_RAW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "wire/frame.h"

struct vb_nic;
struct vb_qp;
struct vb_send_wqe;

/* enum vb_flow_type - numerically equal to enum ibv_flow_attr_type. */
enum vb_flow_type {
	VB_FLOW_NORMAL,
	VB_FLOW_ALL_DEFAULT,
	VB_FLOW_MC_DEFAULT,
	VB_FLOW_SNIFFER,
};

struct vb_flow_counter {
	uint64_t packets, bytes;
};

struct vb_flow_init {
	enum vb_flow_type type;
	uint16_t priority;
	bool dont_trap, drop;
	uint32_t tag;
	struct vb_flow_counter *counter; /* of the caller, who keeps it as long; NULL */
	struct vb_frame_match match;	 /* NORMAL */
};

struct vb_flow {
	struct vb_list link; /* in raw->flows */
	struct vb_qp *qp;
	struct vb_flow_init rule;
};

/* All that a NIC has for raw packets, while it has such queue pairs. */
struct vb_raw {
	uint32_t users; /* queue pairs */
	struct vb_raw_port port;
	struct vb_list flows; /* sniffers, normal rules in order, default rules */
	uint32_t flow_count;
	uint32_t frame_bytes; /* room in frame */
	uint8_t *frame;	      /* the one being sent */
};

/* vb_raw_get, vb_raw_put - a raw packet queue pair begins and ends. get: 0; -EOPNOTSUPP: the
 * surroundings have no raw packets; -EPERM and others from ops.raw_open; -ENOMEM. */
int vb_raw_get(struct vb_nic *nic) VB_MUST_USE;
void vb_raw_put(struct vb_nic *nic);
/* vb_raw_allowed - each queue pair and each rule asks, as with an adapter's driver: the program may
 * have given its capability away since the first. 0, -EPERM. */
int vb_raw_allowed(struct vb_nic *nic) VB_MUST_USE;

/* vb_raw_frame_max - the longest frame that can be sent; with a VLAN tag four more. */
uint32_t vb_raw_frame_max(const struct vb_nic *nic);
/* vb_raw_run - the send queue's turn. True: there is more to send at once. */
bool vb_raw_run(struct vb_qp *qp);
/* vb_raw_give - places a frame into the next receive request. tag: of the rule. */
void vb_raw_give(struct vb_qp *qp, const struct vb_frame *frame, uint32_t tag,
		 bool checksums_right);

/* vb_flow_create - a rule for qp. NULL with errno EINVAL: not a raw packet queue pair; -ENOMEM;
 * what ops.raw_listen said. -EPERM: vb_raw_allowed(). */
struct vb_flow *vb_flow_create(struct vb_qp *qp, const struct vb_flow_init *init);
/* vb_flow_destroy - NULL is accepted. */
void vb_flow_destroy(struct vb_flow *flow);

enum vb_raw_source {
	VB_RAW_RECEIVED,
	VB_RAW_SENT, /* by this host */
};

/* vb_nic_raw_rx - a frame came. l4_known: the kernel vouches for its TCP or UDP checksum. */
void vb_nic_raw_rx(struct vb_nic *nic, const uint8_t *bytes, uint32_t size,
		   enum vb_raw_source source, bool l4_known, uint64_t now_ns);

#endif
