/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_ring_filter.c - which datagrams are the ring's: one question, asked at two places.
 *
 *      of the ring      from the link's header on   yes: everything | no: nothing
 *      of a UDP socket  from the UDP header on      yes: nothing    | no: everything
 *
 * What lies behind the UDP header may be in pages that only offsets from the start reach; the IP
 * header may be had by SKF_NET_OFF, and only so at a socket.
 *
 * Interfaces whose frames do not begin as Ethernet's are left to the sockets, as are fragments, IP
 * options, and what is not for the host by its link address.
 */
#include <linux/if_packet.h>
#include <net/if_arp.h>

#include "carrier/filter.h"
#include "carrier/udp_ring.h"
#include "registry/registry.h"
#include "wire/packet.h"

#define EVERYTHING UINT32_MAX
#define NOTHING 0u
#define LINK_BYTES 14u
#define IP_BYTES 20u
#define UDP_BYTES 8u
#define IPV4_PLAIN 0x45u      /* no options */
#define FRAGMENT_BITS 0x3fffu /* more fragments, and the offset */
#define PROTOCOL_UDP 17u

unsigned int vb_udp_ring_filter(const struct vb_udp_ring_config *config, bool of_ring,
				struct sock_filter *code)
{
	const uint32_t ip = of_ring ? LINK_BYTES : (uint32_t)SKF_NET_OFF;
	const uint32_t udp = of_ring ? LINK_BYTES + IP_BYTES : 0;
	struct vb_filter f = {.code = code, .room = VB_UDP_RING_FILTER_MAX};

	vb_filter_load(&f, BPF_H, (uint32_t)(SKF_AD_OFF + SKF_AD_HATYPE));
	vb_filter_ask(&f, BPF_JEQ, ARPHRD_ETHER, 1, 0);
	vb_filter_must_be(&f, ARPHRD_LOOPBACK);
	vb_filter_load(&f, BPF_H, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE));
	vb_filter_must_be(&f, PACKET_HOST);
	vb_filter_load(&f, BPF_B, ip);
	vb_filter_must_be(&f, IPV4_PLAIN);
	vb_filter_load(&f, BPF_B, ip + 9);
	vb_filter_must_be(&f, PROTOCOL_UDP);
	vb_filter_load(&f, BPF_H, ip + 6);
	vb_filter_ask(&f, BPF_JSET, FRAGMENT_BITS, VB_FILTER_NO, 0);
	vb_filter_load(&f, BPF_H, udp + 2);
	vb_filter_must_be(&f, VB_ROCE_PORT);
	vb_filter_load(&f, BPF_H, udp + 4);
	vb_filter_ask(&f, BPF_JGT, VB_UDP_RING_SHORT + UDP_BYTES, VB_FILTER_NO, 0);
	vb_filter_ask(&f, BPF_JGE, UDP_BYTES + VB_BTH_BYTES, 0, VB_FILTER_NO);
	vb_filter_load(&f, BPF_H, udp + UDP_BYTES + 5); /* the upper bits of the QPN */
	vb_filter_add(&f,
		      (struct sock_filter)BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, VB_SLOT_SHIFT - 8));
	vb_filter_must_be(&f, config->slot);
	vb_filter_load(&f, BPF_W, ip + 16);
	for (unsigned int i = 0; i < config->address_count; i++)
		vb_filter_ask(&f, BPF_JEQ, ntohl(config->addresses[i].s_addr), VB_FILTER_YES, 0);
	vb_filter_return(&f, of_ring ? NOTHING : EVERYTHING);
	vb_filter_return(&f, of_ring ? EVERYTHING : NOTHING);
	vb_filter_land(&f, f.length - 2, f.length - 1);
	return f.length;
}
