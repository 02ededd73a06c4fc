/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * icrc.h - the invariant CRC of RoCEv2 (IBTA annex A17.3.3).
 *
 * CRC-32 (the Ethernet polynomial) over eight bytes of ones, the IP header, the UDP header, the BTH
 * with its extended headers, the payload and the pad; fields that a router may change count as
 * ones: IPv4 TOS, TTL, header checksum; IPv6 traffic class, flow label, hop limit; the UDP
 * checksum; and the BTH's byte with FECN and BECN. The result goes on the wire least significant
 * byte first.
 *
 * The IPv4 identification and fragment fields do count, although a UDP socket does not show them.
 */
#ifndef VB_WIRE_ICRC_H
#define VB_WIRE_ICRC_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the ICRC covers of the IP and UDP headers. Addresses are IPv6; an IPv4 one is mapped
 * (::ffff:a.b.c.d), and both ends are of one kind. */
struct vb_icrc_ip {
	struct in6_addr src, dst;
	uint16_t src_port, dst_port; /* host order */
	uint16_t ip_id;		     /* IPv4 identification; IPv6 ignores it */
	bool dont_fragment;	     /* IPv4 DF */
};

/* vb_icrc_begin - the CRC state after the masked IP and UDP headers of a packet whose UDP payload
 * (BTH to ICRC, both included) has udp_payload_bytes. */
uint32_t vb_icrc_begin(const struct vb_icrc_ip *ip, size_t udp_payload_bytes);

/* vb_icrc_add_bth - continues over the headers, bytes >= 12, with the BTH's FECN/BECN byte masked.
 */
uint32_t vb_icrc_add_bth(uint32_t state, const uint8_t *headers, size_t bytes);

/* vb_icrc_begin_bth - vb_icrc_begin() and vb_icrc_add_bth() in one, cheaper than the two: packet is
 * the headers (>= 12 bytes) or everything before the ICRC where that lies in one piece. */
uint32_t vb_icrc_begin_bth(const struct vb_icrc_ip *ip, size_t udp_payload_bytes,
			   const uint8_t *packet, size_t bytes);

/* vb_icrc_in_place - the ICRC of a packet of udp_payload_bytes, its last four the field itself, in
 * writable memory with VB_ICRC_ROOM bytes before it: these, and the packet, are as they were
 * afterwards. The cheapest way for a long packet. */
#define VB_ICRC_ROOM 48
uint32_t vb_icrc_in_place(const struct vb_icrc_ip *ip, uint8_t *packet, size_t udp_payload_bytes);

/* vb_icrc_add - continues over payload or pad. The state is the value of the field itself: what
 * stands after the last byte is the ICRC. */
uint32_t vb_icrc_add(uint32_t state, const void *data, size_t bytes);

/* vb_icrc_store, vb_icrc_load - the ICRC field's four bytes. */
void vb_icrc_store(uint8_t out[4], uint32_t icrc);
uint32_t vb_icrc_load(const uint8_t in[4]);

/* vb_icrc_solve_ip_id - which IPv4 identification makes this packet's ICRC right. wrong is the
 * CRC computed with ip->ip_id, right the received field, bytes the UDP payload's length. Returns 0
 * and the identification, or -EBADMSG when none does. The CRC is affine in those 16 bits. This is
 * a weaker check (a random error passes with 2^-16): count its uses. */
int vb_icrc_solve_ip_id(uint32_t wrong, uint32_t right, const struct vb_icrc_ip *ip,
			size_t udp_payload_bytes, uint16_t *ip_id);

#endif
