/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * icrc.c - the invariant CRC of RoCEv2 (IBTA annex A17.3.3) over ISA-L's CRC-32.
 *
 * ISA-L's crc32_gzip_refl() inverts its seed on the way in and its result on the way out, as zlib's
 * crc32() does: the value of one call is the seed of the next, the first seed is 0, and the value
 * after the last byte is the CRC. So a state here is such a value and nothing is inverted by us.
 *
 * The pseudo packet begins with eight bytes of ones (where an InfiniBand packet has its LRH); their
 * CRC is a constant. Behind them stand the headers with the fields that routers change set to ones:
 *
 *      IPv4    45 FF len len | id id flags frag | FF 11 FF FF | source | destination
 *      IPv6    6F FF FF FF | len len 11 FF | source | destination
 *      UDP     source port, destination port, length, FF FF
 */
#include "wire/icrc.h"

#include <errno.h>
#include <string.h>

#include <isa-l/crc.h>

#include "base/macros.h"
#include "wire/cursor.h"
#include "wire/packet.h"

#define LRH_STATE 0x2144df1cu /* the CRC of eight bytes of ones */
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define UDP_BYTES 8
#define UDP_PAYLOAD_MAX (UINT16_MAX - IPV4_BYTES - UDP_BYTES)
#define PSEUDO_MAX (IPV6_BYTES + UDP_BYTES)
#define FUSED_MAX ((size_t)128) /* bytes that are copied to be summed in one call */
#define IPV4_DF 0x4000
#define BTH_FECN_BYTE 4
#define ID_OFFSET 4 /* of the IPv4 identification in its header */
_Static_assert(PSEUDO_MAX <= VB_ICRC_ROOM, "room for the masked headers");

static size_t put_ipv4(uint8_t *p, const struct vb_icrc_ip *ip, size_t udp_bytes)
{
	p[0] = 0x45;
	p[1] = 0xff;
	vb_store_be16(p + 2, (uint16_t)(IPV4_BYTES + udp_bytes));
	vb_store_be16(p + 4, ip->ip_id);
	vb_store_be16(p + 6, ip->dont_fragment ? IPV4_DF : 0);
	p[8] = 0xff;
	p[9] = IPPROTO_UDP;
	p[10] = p[11] = 0xff;
	memcpy(p + 12, &ip->src.s6_addr[12], 4);
	memcpy(p + 16, &ip->dst.s6_addr[12], 4);
	return IPV4_BYTES;
}

static size_t put_ipv6(uint8_t *p, const struct vb_icrc_ip *ip, size_t udp_bytes)
{
	vb_store_be32(p, 0x6fffffff);
	vb_store_be16(p + 4, (uint16_t)udp_bytes);
	p[6] = IPPROTO_UDP;
	p[7] = 0xff;
	memcpy(p + 8, &ip->src, 16);
	memcpy(p + 24, &ip->dst, 16);
	return IPV6_BYTES;
}

/* put_ip_udp - the masked IP and UDP headers; returns their bytes, at most PSEUDO_MAX. */
static size_t put_ip_udp(uint8_t *p, const struct vb_icrc_ip *ip, size_t udp_payload_bytes)
{
	size_t udp_bytes = UDP_BYTES + udp_payload_bytes;
	size_t n;

	if (IN6_IS_ADDR_V4MAPPED(&ip->dst))
		n = put_ipv4(p, ip, udp_bytes);
	else
		n = put_ipv6(p, ip, udp_bytes);
	vb_store_be16(p + n, ip->src_port);
	vb_store_be16(p + n + 2, ip->dst_port);
	vb_store_be16(p + n + 4, (uint16_t)udp_bytes);
	vb_store_be16(p + n + 6, 0xffff);
	return n + UDP_BYTES;
}

/* add_masked - put[0..filled) and then the packet, through put, so that the many small packets
 * cost one call of the CRC, whose price for a short buffer is that of the call. */
static uint32_t add_masked(uint32_t state, uint8_t put[FUSED_MAX], size_t filled,
			   const uint8_t *packet, size_t bytes)
{
	size_t n = VB_MIN(bytes, FUSED_MAX - filled);

	VB_ASSERT(bytes >= VB_BTH_BYTES);
	memcpy(put + filled, packet, n);
	put[filled + BTH_FECN_BYTE] = 0xff;
	state = crc32_gzip_refl(state, put, filled + n);
	return bytes > n ? crc32_gzip_refl(state, packet + n, bytes - n) : state;
}

uint32_t vb_icrc_begin(const struct vb_icrc_ip *ip, size_t udp_payload_bytes)
{
	uint8_t put[PSEUDO_MAX];

	return crc32_gzip_refl(LRH_STATE, put, put_ip_udp(put, ip, udp_payload_bytes));
}

uint32_t vb_icrc_begin_bth(const struct vb_icrc_ip *ip, size_t udp_payload_bytes,
			   const uint8_t *packet, size_t bytes)
{
	uint8_t put[FUSED_MAX];

	return add_masked(LRH_STATE, put, put_ip_udp(put, ip, udp_payload_bytes), packet, bytes);
}

/* The masked headers stand before the packet for the time of one call of the CRC. */
uint32_t vb_icrc_in_place(const struct vb_icrc_ip *ip, uint8_t *packet, size_t udp_payload_bytes)
{
	const uint8_t congestion = packet[BTH_FECN_BYTE];
	uint8_t kept[VB_ICRC_ROOM];
	size_t n;
	uint32_t icrc;

	VB_ASSERT(udp_payload_bytes >= VB_BTH_BYTES + VB_ICRC_BYTES);
	memcpy(kept, packet - VB_ICRC_ROOM, VB_ICRC_ROOM);
	n = IN6_IS_ADDR_V4MAPPED(&ip->dst) ? IPV4_BYTES + UDP_BYTES : IPV6_BYTES + UDP_BYTES;
	put_ip_udp(packet - n, ip, udp_payload_bytes);
	packet[BTH_FECN_BYTE] = 0xff;
	icrc = crc32_gzip_refl(LRH_STATE, packet - n, n + udp_payload_bytes - VB_ICRC_BYTES);
	memcpy(packet - VB_ICRC_ROOM, kept, VB_ICRC_ROOM);
	packet[BTH_FECN_BYTE] = congestion;
	return icrc;
}

uint32_t vb_icrc_add_bth(uint32_t state, const uint8_t *headers, size_t bytes)
{
	uint8_t put[FUSED_MAX];

	return add_masked(state, put, 0, headers, bytes);
}

uint32_t vb_icrc_add(uint32_t state, const void *data, size_t bytes)
{
	return crc32_gzip_refl(state, data, bytes);
}

void vb_icrc_store(uint8_t out[4], uint32_t icrc)
{
	icrc = htole32(icrc);
	memcpy(out, &icrc, sizeof(icrc));
}

uint32_t vb_icrc_load(const uint8_t in[4])
{
	uint32_t icrc;

	memcpy(&icrc, in, sizeof(icrc));
	return le32toh(icrc);
}

/*
 * Solving for the identification.
 *
 * A CRC register is a polynomial over GF(2) modulo P = 0xedb88320 (bit 31 is x^0). Reading a zero
 * byte multiplies it by x^8; reading a byte adds that byte to the low bits first. So two packets
 * that differ in the two bytes of the identification only, with n bytes behind them, have CRCs
 * whose difference is
 *
 *      d = (b0 + b1 * 256) * x^(8 * (n + 2))  mod P
 *
 * since both bytes may as well be added before the first of them is read. Hence d * x^(-8 * (n +
 * 2)) is the difference of the identifications itself, byte-swapped, and any bit above the low 16
 * says that no identification explains the CRC. x has an inverse because P's constant term is 1.
 */
#define POLYNOMIAL 0xedb88320u

/* unshift[k] = x^(-8 * 2^k) mod P; enough for every datagram */
static const uint32_t unshift[] = {
	0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b, 0x12a59a49, 0x8df9403d,
	0x5139de12, 0xba340226, 0x29c45641, 0x12fbc105, 0xecd30c55, 0x3755ebd8,
	0x24ee460c, 0x23783fcf, 0x479933fc, 0xa39442a5,
};

static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (int bit = 31; bit >= 0; bit--) {
		product ^= b & -(a >> bit & 1);
		b = b >> 1 ^ (POLYNOMIAL & -(b & 1));
	}
	return product;
}

/* undo_bytes - the register that n bytes of zeros turned into state. */
static uint32_t undo_bytes(uint32_t state, size_t n)
{
	for (size_t k = 0; n; k++, n >>= 1) {
		if (n & 1)
			state = multiply(state, unshift[k]);
	}
	return state;
}

int vb_icrc_solve_ip_id(uint32_t wrong, uint32_t right, const struct vb_icrc_ip *ip,
			size_t udp_payload_bytes, uint16_t *ip_id)
{
	size_t id_to_end = IPV4_BYTES - ID_OFFSET + UDP_BYTES + udp_payload_bytes - VB_ICRC_BYTES;
	uint32_t difference;

	if (udp_payload_bytes < VB_BTH_BYTES + VB_ICRC_BYTES || udp_payload_bytes > UDP_PAYLOAD_MAX)
		return -EBADMSG;
	if (!IN6_IS_ADDR_V4MAPPED(&ip->dst))
		return -EBADMSG;
	difference = undo_bytes(wrong ^ right, id_to_end);
	if (difference > UINT16_MAX)
		return -EBADMSG;
	*ip_id = ip->ip_id ^ (uint16_t)__builtin_bswap16((uint16_t)difference);
	return 0;
}
