/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * flow.c - flow steering rules (ibv_create_flow(3)): the specifications behind struct ibv_flow_attr
 * become one match of the core's (wire/frame.h) and what to do with a frame that has it.
 *
 * Values and masks are in network order, as they are in a frame, so that they are copied as bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/raw.h"

#define SAME(core, verbs) _Static_assert((int)(core) == (int)(verbs), #core)
SAME(VB_FLOW_NORMAL, IBV_FLOW_ATTR_NORMAL);
SAME(VB_FLOW_ALL_DEFAULT, IBV_FLOW_ATTR_ALL_DEFAULT);
SAME(VB_FLOW_MC_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT);
SAME(VB_FLOW_SNIFFER, IBV_FLOW_ATTR_SNIFFER);

#define MAX_SPECS 10u /* the kernel's IB_FLOW_SPEC_SUPPORT_LAYERS */
#define MAX_TAG 0xffffffu
#define KNOWN_FLAGS ((uint32_t)(IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS))

/* What the specifications say so far. */
struct reading {
	struct vb_flow_init rule;
	struct vb_face_counters *counters;
	bool has_eth, has_l3, has_l4, has_tag;
};

/* Copies a field's value and mask; what the mask leaves out is zero. */
#define FIELD(reading, field, from, to)                                                            \
	set_field((uint8_t *)&(reading)->rule.match.value.to,                                      \
		  (uint8_t *)&(reading)->rule.match.mask.to, (const uint8_t *)&(from)->val.field,  \
		  (const uint8_t *)&(from)->mask.field, sizeof((from)->val.field))

static void set_field(uint8_t *value, uint8_t *mask, const uint8_t *from_value,
		      const uint8_t *from_mask, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		mask[i] = from_mask[i];
		value[i] = from_value[i] & from_mask[i];
	}
}

static int read_eth(struct reading *r, const struct ibv_flow_spec_eth *spec)
{
	if (r->has_eth)
		return -EINVAL;
	r->has_eth = true;
	FIELD(r, dst_mac, spec, dst);
	FIELD(r, src_mac, spec, src);
	FIELD(r, ether_type, spec, ether_type);
	FIELD(r, vlan_tag, spec, vlan_tag);
	r->rule.match.vlan = spec->mask.vlan_tag != 0;
	return 0;
}

static int begin_l3(struct reading *r, enum vb_frame_l3 l3)
{
	if (r->has_l3)
		return -EINVAL;
	r->has_l3 = true;
	r->rule.match.l3 = (uint8_t)l3;
	return 0;
}

static int read_ipv4(struct reading *r, const struct ibv_flow_spec_ipv4 *spec)
{
	FIELD(r, src_ip, spec, ip_src);
	FIELD(r, dst_ip, spec, ip_dst);
	return begin_l3(r, VB_L3_IPV4);
}

static int read_ipv4_ext(struct reading *r, const struct ibv_flow_spec_ipv4_ext *spec)
{
	FIELD(r, src_ip, spec, ip_src);
	FIELD(r, dst_ip, spec, ip_dst);
	FIELD(r, proto, spec, protocol);
	FIELD(r, tos, spec, traffic_class);
	FIELD(r, ttl, spec, hop_limit);
	FIELD(r, flags, spec, fragment);
	return begin_l3(r, VB_L3_IPV4);
}

static int read_ipv6(struct reading *r, const struct ibv_flow_spec_ipv6 *spec)
{
	FIELD(r, src_ip, spec, ip_src);
	FIELD(r, dst_ip, spec, ip_dst);
	FIELD(r, flow_label, spec, flow_label);
	FIELD(r, next_hdr, spec, protocol);
	FIELD(r, traffic_class, spec, traffic_class);
	FIELD(r, hop_limit, spec, hop_limit);
	return begin_l3(r, VB_L3_IPV6);
}

static int read_l4(struct reading *r, const struct ibv_flow_spec_tcp_udp *spec)
{
	if (r->has_l4)
		return -EINVAL;
	r->has_l4 = true;
	FIELD(r, src_port, spec, src_port);
	FIELD(r, dst_port, spec, dst_port);
	r->rule.match.l4 = spec->type == IBV_FLOW_SPEC_TCP ? VB_L4_TCP : VB_L4_UDP;
	return 0;
}

static int read_tag(struct reading *r, const struct ibv_flow_spec_action_tag *spec)
{
	if (r->has_tag || spec->tag_id > MAX_TAG)
		return -EINVAL;
	r->has_tag = true;
	r->rule.tag = spec->tag_id;
	return 0;
}

static int read_count(struct reading *r, const struct ibv_flow_spec_counter_action *spec,
		      const struct ibv_context *context)
{
	if (r->counters || !spec->counters || spec->counters->context != context)
		return -EINVAL;
	r->counters = vb_container_of(spec->counters, struct vb_face_counters, ibv);
	r->rule.counter = &r->counters->core;
	return 0;
}

/* The bytes that a specification has; 0: not one that there is, or one that is not matched here. */
static size_t size_of(unsigned int type)
{
	switch (type) {
	case IBV_FLOW_SPEC_ETH:
		return sizeof(struct ibv_flow_spec_eth);
	case IBV_FLOW_SPEC_IPV4:
		return sizeof(struct ibv_flow_spec_ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return sizeof(struct ibv_flow_spec_ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		return sizeof(struct ibv_flow_spec_ipv6);
	case IBV_FLOW_SPEC_TCP:
	case IBV_FLOW_SPEC_UDP:
		return sizeof(struct ibv_flow_spec_tcp_udp);
	case IBV_FLOW_SPEC_ACTION_TAG:
		return sizeof(struct ibv_flow_spec_action_tag);
	case IBV_FLOW_SPEC_ACTION_DROP:
		return sizeof(struct ibv_flow_spec_action_drop);
	case IBV_FLOW_SPEC_ACTION_COUNT:
		return sizeof(struct ibv_flow_spec_counter_action);
	default:
		return 0;
	}
}

/* Tunnels, what they carry, IPsec. */
static bool is_beyond_us(unsigned int type)
{
	switch (type) {
	case IBV_FLOW_SPEC_ESP:
	case IBV_FLOW_SPEC_VXLAN_TUNNEL:
	case IBV_FLOW_SPEC_GRE:
	case IBV_FLOW_SPEC_MPLS:
	case IBV_FLOW_SPEC_ACTION_HANDLE:
		return true;
	default:
		return type & IBV_FLOW_SPEC_INNER;
	}
}

static int read_spec(struct reading *r, const struct ibv_flow_spec *spec,
		     const struct ibv_context *context)
{
	switch ((unsigned int)spec->hdr.type) {
	case IBV_FLOW_SPEC_ETH:
		return read_eth(r, &spec->eth);
	case IBV_FLOW_SPEC_IPV4:
		return read_ipv4(r, &spec->ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return read_ipv4_ext(r, &spec->ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		return read_ipv6(r, &spec->ipv6);
	case IBV_FLOW_SPEC_TCP:
	case IBV_FLOW_SPEC_UDP:
		return read_l4(r, &spec->tcp_udp);
	case IBV_FLOW_SPEC_ACTION_TAG:
		return read_tag(r, &spec->flow_tag);
	case IBV_FLOW_SPEC_ACTION_DROP:
		r->rule.drop = true;
		return 0;
	case IBV_FLOW_SPEC_ACTION_COUNT:
		return read_count(r, &spec->flow_count, context);
	default:
		return -EINVAL;
	}
}

/* An Ethernet type that the IP version contradicts is a mistake, not a rule that nothing meets. */
static bool types_agree(const struct vb_frame_match *match)
{
	const uint8_t ipv4[2] = {0x08, 0x00}, ipv6[2] = {0x86, 0xdd};
	const uint8_t *type = match->l3 == VB_L3_IPV4 ? ipv4 : ipv6;

	if (match->l3 == VB_L3_ANY)
		return true;
	for (int i = 0; i < 2; i++)
		if ((match->value.ether_type[i] ^ type[i]) & match->mask.ether_type[i])
			return false;
	return true;
}

static int read_specs(struct reading *r, const struct ibv_flow_attr *attr,
		      const struct ibv_context *context)
{
	const uint8_t *at = (const uint8_t *)(attr + 1);
	int error;

	for (unsigned int i = 0; i < attr->num_of_specs; i++) {
		struct ibv_flow_spec spec;

		memcpy(&spec.hdr, at, sizeof(spec.hdr));
		if (is_beyond_us(spec.hdr.type))
			return -EOPNOTSUPP;
		if (!size_of(spec.hdr.type) || spec.hdr.size != size_of(spec.hdr.type))
			return -EINVAL;
		memcpy(&spec, at, spec.hdr.size);
		error = read_spec(r, &spec, context);
		if (error)
			return error;
		at += spec.hdr.size;
	}
	return types_agree(&r->rule.match) ? 0 : -EINVAL;
}

static int read_attr(struct reading *r, const struct ibv_flow_attr *attr,
		     const struct ibv_context *context)
{
	const bool dont_trap = attr->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;

	if (attr->comp_mask || (unsigned int)attr->type > IBV_FLOW_ATTR_SNIFFER ||
	    attr->flags & ~KNOWN_FLAGS || attr->port != VB_PORT || attr->num_of_specs > MAX_SPECS)
		return -EINVAL;
	if (attr->flags & IBV_FLOW_ATTR_FLAGS_EGRESS)
		return -EOPNOTSUPP;
	if (attr->type != IBV_FLOW_ATTR_NORMAL && (dont_trap || attr->num_of_specs))
		return -EINVAL;
	r->rule.type = (enum vb_flow_type)attr->type;
	r->rule.priority = attr->priority;
	r->rule.dont_trap = dont_trap;
	return read_specs(r, attr, context);
}

/* 0 or -errno, inside the engine. */
static int create_core(struct vb_face_flow *flow, struct vb_face_qp *qp, struct reading *r)
{
	flow->core = vb_flow_create(qp->core, &r->rule);
	if (!flow->core)
		return -errno;
	flow->counters = r->counters;
	if (flow->counters)
		flow->counters->users++;
	return 0;
}

struct ibv_flow *vb_face_create_flow(struct ibv_qp *ibv, struct ibv_flow_attr *attr)
{
	struct vb_face_qp *qp = vb_face_qp(ibv);
	struct reading reading = {0};
	struct vb_face_flow *flow;
	int error = read_attr(&reading, attr, ibv->context);

	/* Adapters steer to datagram queue pairs too; here those have the UDP port alone. */
	if (!error && ibv->qp_type != IBV_QPT_RAW_PACKET)
		error = ibv->qp_type == IBV_QPT_UD ? -EOPNOTSUPP : -EINVAL;
	flow = error ? NULL : calloc(1, sizeof(*flow));
	if (!flow) {
		errno = error ? -error : ENOMEM;
		return NULL;
	}
	error = -EIO;
	if (vb_face_enter(qp->engine)) {
		error = create_core(flow, qp, &reading);
		vb_engine_leave(qp->engine);
	}
	if (error) {
		free(flow);
		errno = -error;
		return NULL;
	}
	flow->ibv.context = ibv->context;
	flow->ibv.handle = vb_face_handle();
	flow->engine = qp->engine;
	vb_face_add(ibv->context, &flow->object, VB_FACE_FLOW);
	return &flow->ibv;
}

void vb_face_flow_close(struct vb_face_flow *flow)
{
	vb_flow_destroy(flow->core);
	if (flow->counters)
		flow->counters->users--;
	flow->core = NULL;
	flow->counters = NULL;
	flow->engine = NULL;
}

int vb_face_destroy_flow(struct ibv_flow *ibv)
{
	struct vb_face_flow *flow = vb_container_of(ibv, struct vb_face_flow, ibv);
	struct vb_engine *engine = flow->engine;

	if (vb_face_enter(engine)) {
		vb_face_flow_close(flow);
		vb_engine_leave(engine);
	}
	vb_face_remove(&flow->object);
	free(flow);
	return 0;
}

void vb_face_flows_close(struct vb_list *objects)
{
	struct vb_list *l, *t;

	vb_list_for_each(l, t, &objects[VB_FACE_FLOW])
		vb_face_flow_close(vb_list_entry(l, struct vb_face_flow, object.link));
	vb_list_for_each(l, t, &objects[VB_FACE_COUNTERS])
		vb_list_entry(l, struct vb_face_counters, object.link)
			->engine = NULL;
}
