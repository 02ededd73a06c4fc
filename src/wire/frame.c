/* SPDX-License-Identifier: BSD-2-Clause */
/* frame.c - see frame.h. Checksums are those of RFC 1071, 768, 9293 and 8200. */
#include "wire/frame.h"

#include <string.h>

#define IPV4_BYTES 20u
#define IPV6_BYTES 40u
#define TCP_BYTES 20u
#define UDP_BYTES 8u
#define TCP_PROTOCOL 6
#define UDP_PROTOCOL 17
#define MAX_TAGS 2 /* VLAN tags that are looked behind */

static uint32_t get16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* --- parsing ----------------------------------------------------------------------------- */

static void parse_l4(struct vb_frame *f, uint32_t at)
{
	const bool tcp = f->key.protocol == TCP_PROTOCOL, udp = f->key.protocol == UDP_PROTOCOL;

	if ((!tcp && !udp) || f->size < at + (tcp ? TCP_BYTES : UDP_BYTES))
		return;
	f->l4 = tcp ? VB_L4_TCP : VB_L4_UDP;
	f->l4_at = at;
	memcpy(f->key.src_port, f->bytes + at, 2);
	memcpy(f->key.dst_port, f->bytes + at + 2, 2);
}

static void parse_ipv4(struct vb_frame *f, uint32_t at)
{
	const uint8_t *ip = f->bytes + at;
	uint32_t header, fragment;

	if (f->size < at + IPV4_BYTES || ip[0] >> 4 != 4)
		return;
	header = (ip[0] & 0xfu) * 4;
	if (header < IPV4_BYTES || f->size < at + header)
		return;
	f->l3 = VB_L3_IPV4;
	f->l3_at = at;
	memcpy(f->key.ip_src, ip + 12, 4);
	memcpy(f->key.ip_dst, ip + 16, 4);
	f->key.traffic_class = ip[1];
	f->key.hop_limit = ip[8];
	f->key.protocol = ip[9];
	fragment = get16(ip + 6);
	f->key.fragment = (uint8_t)((fragment & 0x4000 ? VB_DONT_FRAGMENT : 0) |
				    (fragment & 0x2000 ? VB_MORE_FRAGMENTS : 0));
	if ((fragment & 0x1fff) == 0)
		parse_l4(f, at + header);
}

static void parse_ipv6(struct vb_frame *f, uint32_t at)
{
	const uint8_t *ip = f->bytes + at;

	if (f->size < at + IPV6_BYTES || ip[0] >> 4 != 6)
		return;
	f->l3 = VB_L3_IPV6;
	f->l3_at = at;
	memcpy(f->key.ip_src, ip + 8, 16);
	memcpy(f->key.ip_dst, ip + 24, 16);
	f->key.traffic_class = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
	f->key.flow_label[1] = ip[1] & 0xf;
	f->key.flow_label[2] = ip[2];
	f->key.flow_label[3] = ip[3];
	f->key.protocol = ip[6];
	f->key.hop_limit = ip[7];
	parse_l4(f, at + IPV6_BYTES);
}

bool vb_frame_parse(struct vb_frame *f, const uint8_t *bytes, uint32_t size)
{
	uint32_t at = 2 * VB_MAC_BYTES, type;

	*f = (struct vb_frame){.bytes = bytes, .size = size};
	if (size < VB_ETHERNET_BYTES)
		return false;
	memcpy(f->key.dst, bytes, VB_MAC_BYTES);
	memcpy(f->key.src, bytes + VB_MAC_BYTES, VB_MAC_BYTES);
	type = get16(bytes + at);
	for (int tags = 0; tags < MAX_TAGS && (type == VB_ETHER_VLAN || type == VB_ETHER_QINQ) &&
			   size >= at + VB_VLAN_BYTES + 2;
	     tags++) {
		if (!f->has_vlan)
			memcpy(f->key.vlan_tag, bytes + at + 2, 2);
		f->has_vlan = true;
		at += VB_VLAN_BYTES;
		type = get16(bytes + at);
	}
	put16(f->key.ether_type, type);
	if (type == VB_ETHER_IPV4)
		parse_ipv4(f, at + 2);
	else if (type == VB_ETHER_IPV6)
		parse_ipv6(f, at + 2);
	return true;
}

bool vb_frame_matches(const struct vb_frame *frame, const struct vb_frame_match *match)
{
	const uint8_t *key = (const uint8_t *)&frame->key;
	const uint8_t *value = (const uint8_t *)&match->value;
	const uint8_t *mask = (const uint8_t *)&match->mask;

	if ((match->l3 != VB_L3_ANY && match->l3 != frame->l3) ||
	    (match->l4 != VB_L4_ANY && match->l4 != frame->l4) || (match->vlan && !frame->has_vlan))
		return false;
	for (size_t i = 0; i < sizeof(frame->key); i++)
		if ((key[i] ^ value[i]) & mask[i])
			return false;
	return true;
}

/* --- checksums --------------------------------------------------------------------------- */

static uint64_t sum(uint64_t so_far, const uint8_t *bytes, uint32_t length)
{
	for (uint32_t i = 0; i + 1 < length; i += 2)
		so_far += get16(bytes + i);
	if (length % 2)
		so_far += (uint32_t)bytes[length - 1] << 8;
	return so_far;
}

static uint16_t fold(uint64_t total)
{
	while (total >> 16)
		total = (total & 0xffff) + (total >> 16);
	return (uint16_t)total;
}

/* The bytes from the TCP or UDP header on, without what Ethernet padded; 0: the frame is shorter
 * than it says, or a first fragment, of which no checksum can be taken. */
static uint32_t l4_length(const struct vb_frame *f)
{
	const uint8_t *ip = f->bytes + f->l3_at;
	uint32_t end =
		f->l3_at + (f->l3 == VB_L3_IPV4 ? get16(ip + 2) : IPV6_BYTES + get16(ip + 4));
	uint32_t least = f->l4 == VB_L4_TCP ? TCP_BYTES : UDP_BYTES;

	if (f->key.fragment & VB_MORE_FRAGMENTS || end > f->size || end < f->l4_at + least)
		return 0;
	return end - f->l4_at;
}

static uint64_t l4_sum(const struct vb_frame *f, uint32_t length)
{
	const uint32_t address = f->l3 == VB_L3_IPV4 ? 4 : 16;
	uint64_t total = f->key.protocol + (length >> 16) + (length & 0xffff);

	total = sum(total, f->key.ip_src, address);
	total = sum(total, f->key.ip_dst, address);
	return sum(total, f->bytes + f->l4_at, length);
}

static uint32_t l4_checksum_at(const struct vb_frame *f)
{
	return f->l4_at + (f->l4 == VB_L4_TCP ? 16 : 6);
}

bool vb_frame_checksums_are_right(const struct vb_frame *f, bool l4_known)
{
	const uint8_t *ip = f->bytes + f->l3_at;
	uint32_t length;

	if (f->l3 != VB_L3_IPV4 || fold(sum(0, ip, (ip[0] & 0xfu) * 4)) != 0xffff)
		return false;
	if (f->l4 == VB_L4_ANY)
		return true;
	length = l4_length(f);
	if (length == 0)
		return false;
	if (l4_known || (f->l4 == VB_L4_UDP && get16(f->bytes + l4_checksum_at(f)) == 0))
		return true;
	return fold(l4_sum(f, length)) == 0xffff;
}

void vb_frame_fill_checksums(const struct vb_frame *f, uint8_t *bytes)
{
	uint8_t *ip = bytes + f->l3_at;
	uint32_t length, value;

	VB_ASSERT(f->bytes == bytes);
	if (f->l3 == VB_L3_IPV4) {
		put16(ip + 10, 0);
		put16(ip + 10, (uint16_t)~fold(sum(0, ip, (ip[0] & 0xfu) * 4)));
	}
	length = f->l4 == VB_L4_ANY ? 0 : l4_length(f);
	if (length == 0)
		return;
	put16(bytes + l4_checksum_at(f), 0);
	value = (uint16_t)~fold(l4_sum(f, length));
	/* UDP's 0 would say that there is none (RFC 768). */
	put16(bytes + l4_checksum_at(f), f->l4 == VB_L4_UDP && value == 0 ? 0xffff : value);
}
