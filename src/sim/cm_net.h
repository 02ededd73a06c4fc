/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_net.h - connection managers on a simulated network.
 *
 *      vb_cm of a node -> send -> [rules] -> loss, duplicate, late -> delay -> vb_cm_rx of another
 *
 * A MAD is the unit: 256 bytes that arrive whole, twice, late or not at all. Rules name messages by
 * sender, kind and number and say what becomes of them; random faults touch the rest. A message
 * that is repeated (same sender, kind and communication IDs) is lost at most `lost_in_a_row` times
 * one after the other when that is set, so that a simulation can promise what retries must achieve.
 *
 * A node runs its manager at the manager's deadline or a little later. It can stop as a program
 * that ends does (vb_cm_destroy, its last messages leave) or crash (nothing leaves), and start
 * again with the same GUID; a message knows the incarnation that it came from.
 */
#ifndef VB_SIM_CM_NET_H
#define VB_SIM_CM_NET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "cm/cm.h"
#include "sim/sim.h"

#define VB_CM_NODES 5
#define VB_CM_RULES 8
#define VB_CM_STREAMS                                                                              \
	8192 /* a power of two, more than a world has streams of repeated messages                 \
	      */
#define VB_CM_ANY_NODE UINT32_MAX

/* The nine messages that we speak, in the order of their attribute IDs from 0x0010 on. */
enum vb_cm_kind {
	VB_CM_KIND_REQ,
	VB_CM_KIND_MRA,
	VB_CM_KIND_REJ,
	VB_CM_KIND_REP,
	VB_CM_KIND_RTU,
	VB_CM_KIND_DREQ,
	VB_CM_KIND_DREP,
	VB_CM_KIND_SIDR_REQ,
	VB_CM_KIND_SIDR_REP,
	VB_CM_KINDS,
};

enum vb_cm_fate { VB_CM_PASS, VB_CM_LOSE, VB_CM_TWICE, VB_CM_LATE };

/* The messages number `first` to `first + count - 1` of this kind from this node. */
struct vb_cm_rule {
	uint32_t from; /* VB_CM_ANY_NODE: all */
	enum vb_cm_kind kind;
	uint32_t first, count;
	enum vb_cm_fate fate;
	uint64_t late_ns; /* VB_CM_LATE: so much later; VB_CM_TWICE: the second one */
	uint32_t met;	  /* such messages so far */
};

struct vb_cm_faults { /* chances in a million messages */
	uint32_t loss, duplicate, late;
	uint64_t late_ns;	/* at most so much later */
	uint32_t lost_in_a_row; /* 0: no limit */
};

struct vb_cm_net;
struct vb_cm_net_node;

/* A message on its way; what the hooks see of it. */
struct vb_cm_mad {
	struct vb_cm_net_node *from, *to;
	uint32_t incarnation; /* of from */
	enum vb_cm_kind kind;
	uint32_t local_id, remote_id; /* as they stand in it; SIDR: the request's ID, 0 */
	struct vb_cm_path path;	      /* from's choice */
	uint8_t bytes[VB_MAD_BYTES];
};

struct vb_cm_hooks {
	/* event - as vb_cm_ops.event. NULL: refuses all requests. */
	bool (*event)(void *env, struct vb_cm_net_node *node, const struct vb_cm_event *event);
	void (*sent)(void *env, const struct vb_cm_mad *mad, enum vb_cm_fate fate);
	void (*arrives)(void *env, const struct vb_cm_mad *mad); /* before vb_cm_rx */
	void (*entered)(void *env, struct vb_cm_net_node *node); /* after each call into it */
};

struct vb_cm_net_node {
	struct vb_cm_net *net;
	uint32_t index, incarnation;
	struct in6_addr gid;
	struct vb_cm_config config;
	struct vb_cm *cm; /* NULL: down */
	bool mute;	  /* what it sends is gone: it crashes */
	bool ends;	  /* inside vb_cm_destroy */
	bool inside;	  /* its event callback runs */
	bool wanted;	  /* a wake-up is on its way, at wake_ns */
	uint64_t wake_ns;
	uint64_t tx, rx; /* messages of this incarnation */
};

struct vb_cm_net {
	struct vb_sim sim;
	uint32_t node_count;
	struct vb_cm_net_node nodes[VB_CM_NODES];
	uint64_t delay_ns, jitter_ns; /* of every way */
	uint64_t run_delay_ns;	      /* a manager runs at most so much after its deadline */
	struct vb_cm_faults faults;
	bool faulty; /* random faults are on */
	bool cut[VB_CM_NODES][VB_CM_NODES];
	struct vb_cm_rule rules[VB_CM_RULES];
	uint32_t rule_count;
	struct vb_cm_hooks hooks;
	void *env;
	const struct vb_cm_mad *arriving; /* inside vb_cm_rx */
	uint32_t in_flight;
	struct {
		uint64_t key;
		uint32_t lost;
	} streams[VB_CM_STREAMS];
	struct {
		uint64_t sent, lost, duplicated, late, delivered;
		uint64_t kinds[VB_CM_KINDS];
	} count;
};

/* vb_cm_net_init - nodes that are down, on a network without faults. */
void vb_cm_net_init(struct vb_cm_net *net, uint64_t seed, uint32_t node_count,
		    const struct vb_cm_hooks *hooks, void *env);
/* vb_cm_net_finish - stops the nodes that are still up. */
void vb_cm_net_finish(struct vb_cm_net *net);
/* vb_cm_net_rule - one more rule. Returns it, to look whether it was met. */
struct vb_cm_rule *vb_cm_net_rule(struct vb_cm_net *net, uint32_t from, enum vb_cm_kind kind,
				  uint32_t first, uint32_t count, enum vb_cm_fate fate,
				  uint64_t late_ns);

/* vb_cm_net_start - a manager with no connections. */
void vb_cm_net_start(struct vb_cm_net_node *node);
/* vb_cm_net_stop - ends it; crash: without a word. */
void vb_cm_net_stop(struct vb_cm_net_node *node, bool crash);
/* vb_cm_net_entered - to be called after each call into node->cm: it may have a new deadline. */
void vb_cm_net_entered(struct vb_cm_net_node *node);
/* vb_cm_net_path - the way from the node to another. */
struct vb_cm_path vb_cm_net_path(const struct vb_cm_net_node *node,
				 const struct vb_cm_net_node *to);
/* vb_cm_net_inject - these bytes arrive now, from another node's address. */
void vb_cm_net_inject(struct vb_cm_net_node *node, const struct vb_cm_net_node *from,
		      const uint8_t *bytes, size_t size);

const char *vb_cm_kind_name(enum vb_cm_kind kind);
/* vb_cm_time - what a 5 bit exponent of the messages means, in nanoseconds: 4.096 us * 2^exponent.
 */
static inline uint64_t vb_cm_time(uint8_t exponent)
{
	return 4096ull << exponent;
}

#endif
