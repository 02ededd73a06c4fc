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

struct program {
	struct sock_filter *code;
	unsigned int length;
};

static void add(struct program *p, struct sock_filter instruction)
{
	VB_ASSERT(p->length < VB_UDP_RING_FILTER_MAX);
	p->code[p->length++] = instruction;
}

static void load(struct program *p, uint16_t size, uint32_t at)
{
	add(p, (struct sock_filter)BPF_STMT(BPF_LD | size | BPF_ABS, at));
}

#define TO_NO 0xff /* of a jump, until it is known where that is */
#define TO_YES 0xfe

static void must_be(struct program *p, uint32_t value)
{
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, TO_NO));
}

static void must_not(struct program *p, uint16_t test, uint32_t value)
{
	add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, value, TO_NO, 0));
}

static uint8_t resolve(uint8_t jump, unsigned int from, unsigned int no)
{
	if (jump < TO_YES)
		return jump;
	return (uint8_t)(no - from - (jump == TO_NO ? 1 : 0));
}

unsigned int vb_udp_ring_filter(const struct vb_udp_ring_config *config, bool of_ring,
				struct sock_filter *code)
{
	const uint32_t ip = of_ring ? LINK_BYTES : (uint32_t)SKF_NET_OFF;
	const uint32_t udp = of_ring ? LINK_BYTES + IP_BYTES : 0;
	struct program p = {.code = code};
	unsigned int no;

	load(&p, BPF_H, (uint32_t)(SKF_AD_OFF + SKF_AD_HATYPE));
	add(&p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARPHRD_ETHER, 1, 0));
	must_be(&p, ARPHRD_LOOPBACK);
	load(&p, BPF_H, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE));
	must_be(&p, PACKET_HOST);
	load(&p, BPF_B, ip);
	must_be(&p, IPV4_PLAIN);
	load(&p, BPF_B, ip + 9);
	must_be(&p, PROTOCOL_UDP);
	load(&p, BPF_H, ip + 6);
	must_not(&p, BPF_JSET, FRAGMENT_BITS);
	load(&p, BPF_H, udp + 2);
	must_be(&p, VB_ROCE_PORT);
	load(&p, BPF_H, udp + 4);
	must_not(&p, BPF_JGT, VB_UDP_RING_SHORT + UDP_BYTES);
	add(&p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, UDP_BYTES + VB_BTH_BYTES, 0,
					     TO_NO));
	load(&p, BPF_H, udp + UDP_BYTES + 5); /* the upper bits of the QPN */
	add(&p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, VB_SLOT_SHIFT - 8));
	must_be(&p, config->slot);
	load(&p, BPF_W, ip + 16);
	for (unsigned int i = 0; i < config->address_count; i++)
		add(&p,
		    (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
						 ntohl(config->addresses[i].s_addr), TO_YES, 0));
	no = p.length;
	add(&p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, of_ring ? NOTHING : EVERYTHING));
	add(&p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, of_ring ? EVERYTHING : NOTHING));
	for (unsigned int i = 0; i < no; i++) {
		if (BPF_CLASS(code[i].code) != BPF_JMP)
			continue;
		code[i].jt = resolve(code[i].jt, i, no);
		code[i].jf = resolve(code[i].jf, i, no);
	}
	return p.length;
}
