/* SPDX-License-Identifier: BSD-2-Clause */
/* ah.h - address handles: how a program names a peer, resolved once into a path (IBTA 11.2.2). */
#ifndef VB_CORE_AH_H
#define VB_CORE_AH_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/path.h"

struct vb_nic;
struct vb_pd;

/* struct vb_ah_attr - how a program names a peer (IBTA 11.2.2, struct ibv_ah_attr). RoCE always has
 * a GRH. */
struct vb_ah_attr {
	struct in6_addr dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t sl;
	uint8_t port_num;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint16_t dlid;
	bool is_global;
};

struct vb_ah {
	struct vb_nic *nic;
	struct vb_pd *pd;
	struct vb_ah_attr attr;
	struct vb_path path;
	uint32_t refs; /* the program's and one for each send request that waits */
};

/* vb_ah_attr_is_valid - what can be said of an address before it is resolved. */
bool vb_ah_attr_is_valid(const struct vb_ah_attr *attr);
/* vb_ah_create - resolves the address. NULL with errno EINVAL, ENETUNREACH, ENOMEM. */
struct vb_ah *vb_ah_create(struct vb_pd *pd, const struct vb_ah_attr *attr);
struct vb_ah *vb_ah_get(struct vb_ah *ah);
/* vb_ah_destroy - gives the program's reference back. What was posted beside the NIC has its own by
 * then. */
void vb_ah_destroy(struct vb_ah *ah);
/* vb_ah_put - gives a reference back; the last one frees it. NULL is accepted. */
void vb_ah_put(struct vb_ah *ah);

#endif
