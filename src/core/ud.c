/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ud.c - the receiving side of an unreliable datagram QP (IBTA 9.8.3, annex A17.4).
 *
 * The receive buffer begins with 40 bytes for the GRH. Over IPv6 it is the IPv6 header; over IPv4
 * bytes 0-19 are undefined (here zero) and 20-39 hold the IPv4 header, with a right checksum.
 */
#include <arpa/inet.h>
#include <string.h>

#include "core/transport.h"

#define UDP_PROTOCOL 17
#define IPV4_DF 0x4000

static void put16(uint8_t *out, uint16_t value)
{
	out[0] = (uint8_t)(value >> 8);
	out[1] = (uint8_t)value;
}

static uint16_t ipv4_checksum(const uint8_t header[20])
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void build_ipv4(uint8_t out[20], const struct vb_rx *rx, uint16_t udp_bytes)
{
	memset(out, 0, 20);
	out[0] = 0x45;
	out[1] = rx->traffic_class;
	put16(out + 2, (uint16_t)(udp_bytes + 20));
	put16(out + 6, IPV4_DF);
	out[8] = rx->hop_limit;
	out[9] = UDP_PROTOCOL;
	memcpy(out + 12, &rx->src.s6_addr[12], 4);
	memcpy(out + 16, &rx->dst.s6_addr[12], 4);
	put16(out + 10, ipv4_checksum(out));
}

static void build_ipv6(uint8_t out[40], const struct vb_rx *rx, uint16_t udp_bytes)
{
	memset(out, 0, 40);
	out[0] = (uint8_t)(0x60 | rx->traffic_class >> 4);
	out[1] = (uint8_t)(rx->traffic_class << 4);
	put16(out + 4, udp_bytes);
	out[6] = UDP_PROTOCOL;
	out[7] = rx->hop_limit;
	memcpy(out + 8, &rx->src, 16);
	memcpy(out + 24, &rx->dst, 16);
}

static void build_grh(uint8_t out[VB_GRH_BYTES], const struct vb_rx *rx)
{
	const uint16_t udp_bytes = (uint16_t)(8 + rx->size + VB_ICRC_BYTES);

	memset(out, 0, VB_GRH_BYTES);
	if (IN6_IS_ADDR_V4MAPPED(&rx->src))
		build_ipv4(out + 20, rx, udp_bytes);
	else
		build_ipv6(out, rx, udp_bytes);
}

void vb_ud_on_packet(struct vb_qp *qp, const struct vb_headers *h, const uint8_t *payload,
		     uint32_t bytes, const struct vb_rx *rx)
{
	struct vb_responder *resp = &qp->resp;
	struct vb_reason reason = vb_qp_reason(qp, VB_CHECK_RECV_TOO_SHORT);
	uint8_t grh[VB_GRH_BYTES];

	if (h->deth.qkey != qp->attr.qkey) {
		qp->nic->counters.rx_wrong_qkey++;
		return;
	}
	if (!resp->recv_held && !vb_qp_take_recv(qp)) {
		qp->nic->counters.rx_no_receive++;
		return;
	}
	reason.peer = rx->src;
	reason.peer_qpn = h->deth.src_qpn;
	if (VB_GRH_BYTES + bytes > resp->recv.length) {
		qp->nic->counters.rx_too_long++;
		reason.value[0] = VB_GRH_BYTES + bytes;
		reason.value[1] = resp->recv.length;
		vb_qp_fail_recv(qp, VB_WC_LOC_LEN_ERR, &reason, VB_EVENT_QP_REQ_ERR);
		return;
	}
	build_grh(grh, rx);
	if (!vb_scatter_recv(qp, 0, grh, sizeof(grh), &reason) ||
	    !vb_scatter_recv(qp, VB_GRH_BYTES, payload, bytes, &reason)) {
		vb_qp_fail_recv(qp, VB_WC_LOC_PROT_ERR, &reason, VB_EVENT_QP_FATAL);
		return;
	}
	vb_qp_complete_datagram(qp, VB_GRH_BYTES + bytes, h, rx);
}
