/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * frame.h - Ethernet frames: what is in one, whether it matches, its checksums.
 *
 *      dst 6 | src 6 | VLAN tag 4, perhaps two | ether type 2 | IPv4, IPv6 | TCP, UDP | ...
 *
 * A key holds the fields that one can match on, as bytes in network order, so that matching is
 * a comparison of bytes under a mask. What a frame does not have is zero in its key.
 */
#ifndef VB_WIRE_FRAME_H
#define VB_WIRE_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define VB_MAC_BYTES 6u
#define VB_ETHERNET_BYTES 14u
#define VB_VLAN_BYTES 4u
#define VB_ETHER_IPV4 0x0800
#define VB_ETHER_IPV6 0x86dd
#define VB_ETHER_VLAN 0x8100
#define VB_ETHER_QINQ 0x88a8

enum vb_frame_l3 { VB_L3_ANY, VB_L3_IPV4, VB_L3_IPV6 };
enum vb_frame_l4 { VB_L4_ANY, VB_L4_TCP, VB_L4_UDP };

struct vb_frame_key {
	uint8_t dst[VB_MAC_BYTES], src[VB_MAC_BYTES];
	uint8_t ether_type[2];		/* behind the last VLAN tag */
	uint8_t vlan_tag[2];		/* of the first: priority 3 bits, CFI 1, VLAN 12 */
	uint8_t ip_src[16], ip_dst[16]; /* IPv4: the first four bytes */
	uint8_t protocol;		/* IPv4; IPv6: next header */
	uint8_t traffic_class;		/* IPv4: type of service */
	uint8_t hop_limit;		/* IPv4: time to live */
	uint8_t fragment;		/* IPv4: enum vb_frame_fragment */
	uint8_t flow_label[4];		/* IPv6 */
	uint8_t src_port[2], dst_port[2];
};

/* numerically equal to the kernel's enum ib_ipv4_flags */
enum vb_frame_fragment { VB_DONT_FRAGMENT = 2, VB_MORE_FRAGMENTS = 4 };

struct vb_frame {
	struct vb_frame_key key;
	const uint8_t *bytes;
	uint32_t size;
	uint32_t l3_at, l4_at; /* where the headers begin, when the frame has them */
	uint8_t l3, l4;	       /* enum vb_frame_l3, vb_frame_l4; ANY: none of these */
	bool has_vlan;
};

/* What a frame must have. All fields of value are zero where mask is. */
struct vb_frame_match {
	uint8_t l3, l4; /* ANY: whatever it is */
	bool vlan;	/* it must have a VLAN tag */
	struct vb_frame_key value, mask;
};

/* The interface that raw packets use, at the time of opening. */
struct vb_raw_port {
	uint8_t mac[VB_MAC_BYTES];
	uint32_t mtu; /* bytes behind the Ethernet header */
	bool returns; /* what is sent comes back as received: a loopback interface */
};

/* What is to be heard. Each frame that one of the matches wants; more is allowed. */
struct vb_raw_wanted {
	bool everything;
	uint32_t count;
	const struct vb_frame_match *const *matches;
};

/* vb_frame_parse - false: there is no room for an Ethernet header. A header that is cut short, and
 * what lies behind a later fragment's IP header, is as if it were not there. */
bool vb_frame_parse(struct vb_frame *frame, const uint8_t *bytes, uint32_t size);

bool vb_frame_matches(const struct vb_frame *frame, const struct vb_frame_match *match);

/* vb_frame_is_group - broadcast or multicast. */
static inline bool vb_frame_is_group(const uint8_t *bytes)
{
	return bytes[0] & 1;
}

/* vb_frame_checksums_are_right - IPv4 with a right header checksum, and, for TCP and UDP, a right
 * one there (which UDP may leave out). l4_known: the kernel vouches for that. */
bool vb_frame_checksums_are_right(const struct vb_frame *frame, bool l4_known);

/* vb_frame_fill_checksums - IPv4's header, TCP, UDP; bytes are those that were parsed. */
void vb_frame_fill_checksums(const struct vb_frame *frame, uint8_t *bytes);

#endif
