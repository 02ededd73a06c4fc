/* SPDX-License-Identifier: BSD-2-Clause */
/* flow.c - rules, and what becomes of a frame that comes. See raw.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/raw.h"
#include "core/transport.h"
#include "wire/packet.h"

/* Where a type of rule stands in the list. */
static int rank(const struct vb_flow_init *rule)
{
	switch (rule->type) {
	case VB_FLOW_SNIFFER:
		return -1;
	case VB_FLOW_NORMAL:
		return rule->priority;
	case VB_FLOW_ALL_DEFAULT:
	case VB_FLOW_MC_DEFAULT:
		return UINT16_MAX + 1;
	}
	return 0;
}

static void insert(struct vb_list *flows, struct vb_flow *flow)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp,
			 flows) if (rank(&vb_list_entry(link, struct vb_flow, link)->rule) >
				    rank(&flow->rule)) break;
	vb_list_append(link, &flow->link); /* before that one, or at the end */
}

static int listen_anew(struct vb_nic *nic)
{
	struct vb_raw *raw = nic->raw;
	const struct vb_frame_match **matches =
		calloc(VB_MAX(raw->flow_count, 1u), sizeof(*matches));
	struct vb_raw_wanted wanted = {.matches = matches};
	struct vb_list *link, *tmp;
	int rc;

	if (!matches)
		return -ENOMEM;
	vb_list_for_each(link, tmp, &raw->flows)
	{
		const struct vb_flow_init *rule = &vb_list_entry(link, struct vb_flow, link)->rule;

		if (rule->type == VB_FLOW_NORMAL)
			matches[wanted.count++] = &rule->match;
		else
			wanted.everything = true;
	}
	rc = nic->ops.raw_listen(nic->env, &wanted);
	free(matches);
	return rc;
}

struct vb_flow *vb_flow_create(struct vb_qp *qp, const struct vb_flow_init *init)
{
	struct vb_nic *nic = qp->nic;
	struct vb_flow *flow;
	int rc;

	if (qp->type != VB_QPT_RAW_PACKET) {
		errno = EINVAL;
		return NULL;
	}
	rc = vb_raw_allowed(nic);
	if (rc < 0) {
		errno = -rc;
		return NULL;
	}
	if (nic->raw->flow_count >= VB_MAX_FLOWS) {
		errno = ENOMEM;
		return NULL;
	}
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return NULL;
	flow->qp = qp;
	flow->rule = *init;
	insert(&nic->raw->flows, flow);
	nic->raw->flow_count++;
	rc = listen_anew(nic);
	if (rc < 0) {
		vb_list_remove(&flow->link);
		nic->raw->flow_count--;
		free(flow);
		errno = -rc;
		return NULL;
	}
	qp->flows++;
	return flow;
}

void vb_flow_destroy(struct vb_flow *flow)
{
	struct vb_nic *nic;

	if (!flow)
		return;
	nic = flow->qp->nic;
	flow->qp->flows--;
	vb_list_remove(&flow->link);
	nic->raw->flow_count--;
	/* Where that fails, more is heard than is wanted. */
	(void)listen_anew(nic);
	free(flow);
}

/* --- a frame comes ----------------------------------------------------------------------- */

static bool is_roce(const struct vb_frame *frame)
{
	return frame->l4 == VB_L4_UDP && frame->key.dst_port[0] == VB_ROCE_PORT >> 8 &&
	       frame->key.dst_port[1] == (VB_ROCE_PORT & 0xff);
}

struct visit {
	struct vb_frame frame;
	bool l4_known;
	bool wide;  /* for others than sniffers too */
	bool group; /* to a group, or to all */
	enum { UNKNOWN, RIGHT, WRONG } checksums;
	const struct vb_flow *taken_by; /* a normal rule, unless it does not trap */
};

static bool says_the_same(const struct vb_flow *a, const struct vb_flow *b)
{
	return a->rule.priority == b->rule.priority &&
	       memcmp(&a->rule.match, &b->rule.match, sizeof(a->rule.match)) == 0;
}

static bool wants(const struct vb_flow *flow, const struct visit *v)
{
	const struct vb_flow_init *rule = &flow->rule;

	switch (rule->type) {
	case VB_FLOW_SNIFFER:
		return true;
	case VB_FLOW_NORMAL:
		return v->wide && (!v->taken_by || says_the_same(flow, v->taken_by)) &&
		       vb_frame_matches(&v->frame, &rule->match);
	case VB_FLOW_ALL_DEFAULT:
		return v->wide && !v->taken_by && !is_roce(&v->frame);
	case VB_FLOW_MC_DEFAULT:
		return v->wide && !v->taken_by && v->group && !is_roce(&v->frame);
	}
	return false;
}

static void act(struct vb_flow *flow, struct visit *v)
{
	const struct vb_flow_init *rule = &flow->rule;

	if (rule->counter) {
		rule->counter->packets++;
		rule->counter->bytes += v->frame.size;
	}
	if (rule->type == VB_FLOW_NORMAL && !rule->dont_trap && !v->taken_by)
		v->taken_by = flow;
	if (rule->drop)
		return;
	if (v->checksums == UNKNOWN)
		v->checksums = vb_frame_checksums_are_right(&v->frame, v->l4_known) ? RIGHT : WRONG;
	vb_raw_give(flow->qp, &v->frame, rule->tag, v->checksums == RIGHT);
}

void vb_nic_raw_rx(struct vb_nic *nic, const uint8_t *bytes, uint32_t size,
		   enum vb_raw_source source, bool l4_known, uint64_t now_ns)
{
	struct visit v = {.l4_known = l4_known};
	struct vb_list *link, *tmp;

	nic->now_ns = now_ns;
	if (!nic->raw || !vb_frame_parse(&v.frame, bytes, size))
		return;
	nic->counters.rx_packets++;
	v.group = vb_frame_is_group(bytes);
	v.wide = source == VB_RAW_RECEIVED || v.group ||
		 memcmp(bytes, nic->raw->port.mac, VB_MAC_BYTES) == 0;
	vb_list_for_each(link, tmp, &nic->raw->flows)
	{
		struct vb_flow *flow = vb_list_entry(link, struct vb_flow, link);

		if (wants(flow, &v))
			act(flow, &v);
	}
}
