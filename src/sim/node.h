/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * node.h - NICs on a simulated network.
 *
 * A node is one core NIC with what it asks of its surroundings: packets go as bytes with an ICRC
 * over a link, so that a bit error is found and dropped as a real carrier does; paths are found by
 * GID; random numbers come from the seed; now and then the carrier has no room (-EAGAIN) and the
 * initiator's own copy (vb_nic_ops.direct) is refused or moves only a part.
 *
 * The NIC runs some time after something happened to it, and at its deadline. After each entry into
 * a NIC vb_qp_check() looks at all its QPs.
 */
#ifndef VB_SIM_NODE_H
#define VB_SIM_NODE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/nic.h"
#include "sim/link.h"
#include "sim/sim.h"

#define VB_NET_NODES 3
#define VB_NODE_QPS 32

struct vb_net;

struct vb_node {
	struct vb_net *net;
	uint32_t index;
	struct in6_addr gid;
	struct vb_nic *nic;
	bool dead;	  /* its process was killed: nothing comes out of it */
	uint64_t wake_ns; /* when it runs next; VB_NEVER */
	bool unblock_waits;
	struct vb_qp *qps[VB_NODE_QPS]; /* to check */
	uint32_t qp_count;
	int paths; /* resolved and not yet released */
	/* habits */
	uint64_t run_delay_ns; /* it runs at most so much later */
	uint32_t again_ppm;    /* tx: -EAGAIN */
	uint32_t refuse_ppm;   /* direct: refused */
	uint32_t forge_ppm;    /* so many of its RC and UC packets are followed by a forgery */
	/* who wants to know; called inside the NIC, must not call back into it */
	void *env;
	void (*on_event)(void *env, struct vb_node *node, const struct vb_event *event);
	void (*on_cq_event)(void *env, struct vb_node *node, struct vb_cq *cq);
	void (*on_tx)(void *env, struct vb_node *node, const struct vb_path *path,
		      const struct vb_tx *tx);
	struct {
		uint64_t bad_icrc, again, direct, forged;
	} count;
};

/* What is the same in both directions between two nodes, or one with itself. */
struct vb_way {
	uint32_t segment_max, window, train;
	bool own_segment, direct;
};

struct vb_net {
	struct vb_sim sim;
	uint32_t node_count;
	struct vb_node nodes[VB_NET_NODES];
	struct vb_link links[VB_NET_NODES][VB_NET_NODES]; /* [from][to] */
	struct vb_way ways[VB_NET_NODES][VB_NET_NODES];	  /* [lower index][higher index] */
};

/* vb_net_init - nodes with addresses (IPv6 or IPv4) on links of 10 Gbit/s and 5 us without faults.
 */
void vb_net_init(struct vb_net *net, uint64_t seed, uint32_t node_count, bool ipv6,
		 const struct vb_nic_config *config);
/* vb_net_finish - destroys the NICs; all objects in them are gone already. */
void vb_net_finish(struct vb_net *net);
void vb_net_set_faulty(struct vb_net *net, bool faulty);
struct vb_way *vb_net_way(struct vb_net *net, uint32_t a, uint32_t b);
/* vb_net_in_flight - packets that are going to be delivered. */
uint32_t vb_net_in_flight(const struct vb_net *net);

/* vb_node_watch - has the QP checked from now on; vb_node_unwatch ends it. */
void vb_node_watch(struct vb_node *node, struct vb_qp *qp);
void vb_node_unwatch(struct vb_node *node, struct vb_qp *qp);
/* vb_node_kick - something was posted, polled or changed: the NIC runs soon. Checks the QPs. */
void vb_node_kick(struct vb_node *node);
/* vb_node_deliver - a packet arrives; for the links. */
void vb_node_deliver(struct vb_node *node, const struct vb_sim_packet *packet);
/* vb_node_kill - from now on nothing comes out of it and nothing gets in. */
void vb_node_kill(struct vb_node *node);

#endif
