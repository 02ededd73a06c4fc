/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ah.c - address handles, and finding a sender's address in what it sent.
 *
 * A UD receive buffer begins with 40 bytes for a global route header. With RoCE v2 over IPv6 they
 * are the IPv6 header; over IPv4 the header fills their last 20 bytes:
 *
 *      0                  20                  40
 *      | undefined        | IPv4 header       |
 *      | IPv6 header                          |
 */
#include <endian.h>
#include <errno.h>
#include <netinet/ip.h>
#include <stdlib.h>
#include <string.h>

#include "host/address.h"
#include "host/neighbour.h"
#include "verbs/face.h"

#define VB_IPV4_AT 20
/* IBTA 13.5.4.3: a reply crosses as many routers as it needs. */
#define VB_REPLY_HOP_LIMIT 0xff
#define VB_NAMED_GID 1 /* of the address in VERBENA_ADDR */

/* With VERBENA_LID=1: what names a port of the same subnet. */
static void gid_from_lid(const struct vb_device *host, struct vb_ah_attr *ah)
{
	ah->is_global = true;
	ah->sgid_index = VB_NAMED_GID;
	ah->dgid = host->gids[VB_NAMED_GID].gid;
	ah->dgid.s6_addr[14] = (uint8_t)(ah->dlid >> 8);
	ah->dgid.s6_addr[15] = (uint8_t)ah->dlid;
}

void vb_face_ah_attr_to_core(const struct vb_device *host, const struct ibv_ah_attr *from,
			     struct vb_ah_attr *to)
{
	*to = (struct vb_ah_attr){
		.flow_label = from->grh.flow_label,
		.sgid_index = from->grh.sgid_index,
		.hop_limit = from->grh.hop_limit,
		.traffic_class = from->grh.traffic_class,
		.sl = from->sl,
		.port_num = from->port_num,
		.src_path_bits = from->src_path_bits,
		.static_rate = from->static_rate,
		.dlid = from->dlid,
		.is_global = from->is_global != 0,
	};
	memcpy(&to->dgid, from->grh.dgid.raw, sizeof(to->dgid));
	if (!to->is_global && to->dlid && host->lid)
		gid_from_lid(host, to);
}

void vb_face_ah_attr_from_core(const struct vb_ah_attr *from, struct ibv_ah_attr *to)
{
	*to = (struct ibv_ah_attr){
		.grh =
			{
				.flow_label = from->flow_label,
				.sgid_index = from->sgid_index,
				.hop_limit = from->hop_limit,
				.traffic_class = from->traffic_class,
			},
		.dlid = from->dlid,
		.sl = from->sl,
		.src_path_bits = from->src_path_bits,
		.static_rate = from->static_rate,
		.is_global = from->is_global,
		.port_num = from->port_num,
	};
	memcpy(to->grh.dgid.raw, &from->dgid, sizeof(from->dgid));
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *ibv_pd, struct ibv_ah_attr *attr)
{
	struct vb_face_pd *pd = vb_face_pd(ibv_pd);
	struct vb_ah_attr core_attr;
	struct vb_face_ah *ah;
	int error;

	if (attr->port_num != VB_PORT) {
		errno = EINVAL;
		return NULL;
	}
	ah = calloc(1, sizeof(*ah));
	if (!ah) {
		errno = ENOMEM;
		return NULL;
	}
	if (!vb_face_enter(pd->engine)) {
		free(ah);
		errno = EIO;
		return NULL;
	}
	vb_face_ah_attr_to_core(vb_face_host_device(ibv_pd->context), attr, &core_attr);
	ah->core = vb_ah_create(pd->core, &core_attr);
	error = errno;
	vb_engine_leave(pd->engine);
	if (!ah->core) {
		free(ah);
		errno = error;
		return NULL;
	}
	ah->engine = pd->engine;
	ah->ibv.context = ibv_pd->context;
	ah->ibv.pd = ibv_pd;
	ah->ibv.handle = vb_face_handle();
	vb_face_add(ibv_pd->context, &ah->object, VB_FACE_AH);
	return &ah->ibv;
}

int ibv_destroy_ah(struct ibv_ah *ibv)
{
	struct vb_face_ah *ah = vb_container_of(ibv, struct vb_face_ah, ibv);

	if (vb_face_enter(ah->engine)) {
		vb_ah_destroy(ah->core);
		vb_engine_leave(ah->engine);
	}
	vb_face_remove(&ah->object);
	free(ah);
	return 0;
}

void vb_face_ah_close(struct vb_face_ah *ah)
{
	vb_ah_destroy(ah->core);
	ah->core = NULL;
	ah->engine = NULL;
}

/* --- the address in a received header ---------------------------------------------------- */

static bool is_ipv4(const uint8_t *header)
{
	uint32_t sum = 0;
	int i;

	if (header[0] != 0x45)
		return false;
	for (i = 0; i < 20; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

static void map_ipv4(const uint8_t address[4], union ibv_gid *gid)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	memcpy(gid->raw, prefix, sizeof(prefix));
	memcpy(gid->raw + sizeof(prefix), address, 4);
}

/* The index of the GID, or of the address in the IP header behind a GID; -1. */
static int find_gid(const struct vb_device *host, const union ibv_gid *gid)
{
	unsigned int i;

	for (i = 0; i < host->gid_count; i++)
		if (!memcmp(&host->gids[i].gid, gid->raw, sizeof(gid->raw)))
			return (int)i;
	for (i = 0; i < host->gid_count; i++)
		if (!memcmp(&host->gids[i].address, gid->raw, sizeof(gid->raw)))
			return (int)i;
	return -1;
}

static int init_route(const struct vb_device *host, const struct ibv_grh *grh,
		      struct ibv_global_route *route)
{
	const uint8_t *bytes = (const uint8_t *)grh, *ip = bytes + VB_IPV4_AT;
	union ibv_gid own;
	int index;

	if (is_ipv4(ip)) {
		map_ipv4(ip + 12, &route->dgid);
		map_ipv4(ip + 16, &own);
		route->traffic_class = ip[1];
	} else if (bytes[0] >> 4 == 6) {
		uint32_t word = be32toh(grh->version_tclass_flow);

		route->dgid = grh->sgid;
		own = grh->dgid;
		route->traffic_class = word >> 20 & 0xff;
		route->flow_label = word & 0xfffff;
	} else {
		return -EPROTONOSUPPORT;
	}
	index = find_gid(host, &own);
	if (index < 0)
		return -ENODATA;
	route->sgid_index = (uint8_t)index;
	route->hop_limit = VB_REPLY_HOP_LIMIT;
	return 0;
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	int error;

	if (port_num != VB_PORT) {
		errno = EINVAL;
		return -1;
	}
	*attr = (struct ibv_ah_attr){
		.dlid = wc->slid,
		.sl = wc->sl,
		.src_path_bits = wc->dlid_path_bits,
		.port_num = port_num,
	};
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	error = init_route(vb_face_host_device(context), grh, &attr->grh);
	if (error) {
		errno = -error;
		return -1;
	}
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

/* --- Ethernet ---------------------------------------------------------------------------- */

/* 0 or -errno, unlike most verbs. A program that builds frames wants the address of the next hop.
 */
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	const struct vb_device *host = vb_face_host_device(context);
	struct vb_neighbour neighbour;
	struct in6_addr gid, to;
	const struct vb_gid *from;
	int rc;

	if (attr->port_num != VB_PORT || attr->grh.sgid_index >= host->gid_count)
		return -EINVAL;
	from = &host->gids[attr->grh.sgid_index];
	memcpy(&gid, attr->grh.dgid.raw, sizeof(gid));
	to = vb_gid_to_address(&gid);
	if (IN6_IS_ADDR_UNSPECIFIED(&to) ||
	    vb_address_is_ipv4(&to) != vb_address_is_ipv4(&from->address))
		return -EINVAL;
	rc = vb_neighbour_find(&to, from->ifindex, &neighbour);
	if (rc)
		return rc;
	memcpy(eth_mac, neighbour.mac, ETHERNET_LL_SIZE);
	if (vid)
		*vid = neighbour.vlan;
	return 0;
}
