/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw_filter.c - see raw_filter.h.
 *
 *      shorter than the headers that are looked at? pass
 *      rule:  compare, compare, ...    a mismatch goes to the next rule
 *             pass
 *      rule:  ...
 *      drop
 *
 * A rule's jumps are short (8 bits): each has its own end. What a rule asks and the program does
 * not look at is asked again by core/flow.c, as everything is.
 */
#include "carrier/raw_filter.h"

#include <stddef.h>
#include <string.h>

#include "carrier/filter.h"

#define HEADERS 58u /* Ethernet, IPv6, two ports: every offset below is inside */
#define RULE_MAX 128u
#define IPV4_PLAIN 0x45 /* no options */
#define PASS UINT32_MAX
#define UNSURE VB_FILTER_YES

#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17

/* The part of the key at value and mask, length bytes of it, lies at this place of the frame. */
static void compare(struct vb_filter *r, const uint8_t *value, const uint8_t *mask, uint32_t length,
		    uint32_t at)
{
	static const uint16_t sizes[] = {[1] = BPF_B, [2] = BPF_H, [4] = BPF_W};

	while (length > 0) {
		const uint32_t step = length >= 4 ? 4 : length >= 2 ? 2 : 1;
		uint32_t v = 0, m = 0;

		for (uint32_t i = 0; i < step; i++) {
			v = v << 8 | value[i];
			m = m << 8 | mask[i];
		}
		if (m) {
			vb_filter_load(r, sizes[step], at);
			vb_filter_add(r,
				      (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, m));
			vb_filter_must_be(r, v & m);
		}
		value += step;
		mask += step;
		at += step;
		length -= step;
	}
}

#define COMPARE(r, match, field, at)                                                               \
	compare(r, (const uint8_t *)&(match)->value.field, (const uint8_t *)&(match)->mask.field,  \
		sizeof((match)->mask.field), at)

static void compare_l4(struct vb_filter *r, const struct vb_frame_match *match,
		       uint32_t protocol_at, uint32_t ports_at)
{
	if (match->l4 == VB_L4_ANY) {
		COMPARE(r, match, protocol, protocol_at);
		return;
	}
	vb_filter_load(r, BPF_B, protocol_at);
	vb_filter_must_be(r, match->l4 == VB_L4_TCP ? PROTOCOL_TCP : PROTOCOL_UDP);
	COMPARE(r, match, src_port, ports_at);
	COMPARE(r, match, dst_port, ports_at + 2);
}

static void compare_l3(struct vb_filter *r, const struct vb_frame_match *match)
{
	vb_filter_load(r, BPF_H, 12);
	if (match->l3 == VB_L3_IPV6) {
		vb_filter_must_be(r, VB_ETHER_IPV6);
		COMPARE(r, match, ip_src, 22);
		COMPARE(r, match, ip_dst, 38);
		compare_l4(r, match, 20, 54);
		return;
	}
	vb_filter_must_be(r, VB_ETHER_IPV4);
	compare(r, match->value.ip_src, match->mask.ip_src, 4, 26);
	compare(r, match->value.ip_dst, match->mask.ip_dst, 4, 30);
	vb_filter_load(r, BPF_B, 14);
	vb_filter_ask(r, BPF_JEQ, IPV4_PLAIN, 0, UNSURE);
	compare_l4(r, match, 23, 34);
}

static void make_rule(const struct vb_frame_match *match, struct vb_filter *r)
{
	r->length = 0;
	COMPARE(r, match, dst, 0);
	COMPARE(r, match, src, VB_MAC_BYTES);
	/* The kernel may have taken the tag out: what a tagged frame looks like is not known here.
	 */
	vb_filter_load(r, BPF_H, 12);
	vb_filter_ask(r, BPF_JEQ, VB_ETHER_VLAN, UNSURE, 0);
	vb_filter_ask(r, BPF_JEQ, VB_ETHER_QINQ, UNSURE, 0);
	COMPARE(r, match, ether_type, 12);
	if (match->l3 != VB_L3_ANY)
		compare_l3(r, match);
	vb_filter_return(r, PASS);
	/* A mismatch leads behind the rule, to the next one. */
	vb_filter_land(r, r->length, r->length - 1);
}

static unsigned int pass_all(struct sock_filter *code)
{
	code[0] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, PASS);
	return 1;
}

unsigned int vb_raw_filter_make(const struct vb_raw_wanted *wanted, struct sock_filter *code)
{
	unsigned int length = 0;
	struct sock_filter of_rule[RULE_MAX];
	struct vb_filter rule = {.code = of_rule, .room = RULE_MAX};

	if (wanted->everything)
		return pass_all(code);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0);
	code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, HEADERS, 1, 0);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, wanted->count ? PASS : 0);
	for (uint32_t i = 0; i < wanted->count; i++) {
		make_rule(wanted->matches[i], &rule);
		if (length + rule.length + 1 > VB_RAW_FILTER_MAX)
			return pass_all(code);
		memcpy(code + length, rule.code, rule.length * sizeof(rule.code[0]));
		length += rule.length;
	}
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	return length;
}
