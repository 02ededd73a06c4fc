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

#define HEADERS 58u /* Ethernet, IPv6, two ports: every offset below is inside */
#define RULE_MAX 128u
#define IPV4_PLAIN 0x45 /* no options */
#define PASS UINT32_MAX
#define MISMATCH 0xff /* of a jump, until the rule's end is known */
#define UNSURE 0xfe

#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17

struct rule {
	struct sock_filter code[RULE_MAX];
	unsigned int length;
};

static void add(struct rule *r, struct sock_filter instruction)
{
	VB_ASSERT(r->length < RULE_MAX);
	r->code[r->length++] = instruction;
}

static void load(struct rule *r, uint16_t size, uint32_t at)
{
	add(r, (struct sock_filter)BPF_STMT(BPF_LD | size | BPF_ABS, at));
}

static void must_be(struct rule *r, uint32_t value)
{
	add(r, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, MISMATCH));
}

/* The part of the key at value and mask, length bytes of it, lies at this place of the frame. */
static void compare(struct rule *r, const uint8_t *value, const uint8_t *mask, uint32_t length,
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
			load(r, sizes[step], at);
			add(r, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, m));
			must_be(r, v & m);
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

static void compare_l4(struct rule *r, const struct vb_frame_match *match, uint32_t protocol_at,
		       uint32_t ports_at)
{
	if (match->l4 == VB_L4_ANY) {
		COMPARE(r, match, protocol, protocol_at);
		return;
	}
	load(r, BPF_B, protocol_at);
	must_be(r, match->l4 == VB_L4_TCP ? PROTOCOL_TCP : PROTOCOL_UDP);
	COMPARE(r, match, src_port, ports_at);
	COMPARE(r, match, dst_port, ports_at + 2);
}

static void compare_l3(struct rule *r, const struct vb_frame_match *match)
{
	load(r, BPF_H, 12);
	if (match->l3 == VB_L3_IPV6) {
		must_be(r, VB_ETHER_IPV6);
		COMPARE(r, match, ip_src, 22);
		COMPARE(r, match, ip_dst, 38);
		compare_l4(r, match, 20, 54);
		return;
	}
	must_be(r, VB_ETHER_IPV4);
	compare(r, match->value.ip_src, match->mask.ip_src, 4, 26);
	compare(r, match->value.ip_dst, match->mask.ip_dst, 4, 30);
	load(r, BPF_B, 14);
	add(r, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPV4_PLAIN, 0, UNSURE));
	compare_l4(r, match, 23, 34);
}

static void make_rule(const struct vb_frame_match *match, struct rule *r)
{
	r->length = 0;
	COMPARE(r, match, dst, 0);
	COMPARE(r, match, src, VB_MAC_BYTES);
	/* The kernel may have taken the tag out: what a tagged frame looks like is not known here.
	 */
	load(r, BPF_H, 12);
	add(r, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, VB_ETHER_VLAN, UNSURE, 0));
	add(r, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, VB_ETHER_QINQ, UNSURE, 0));
	COMPARE(r, match, ether_type, 12);
	if (match->l3 != VB_L3_ANY)
		compare_l3(r, match);
	add(r, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, PASS));
	/* Now it is known how far it is to the rule's end, and to the next one. */
	for (unsigned int i = 0; i < r->length; i++) {
		struct sock_filter *at = &r->code[i];
		const uint8_t next = (uint8_t)(r->length - 1 - i), pass = (uint8_t)(next - 1);

		if (BPF_CLASS(at->code) != BPF_JMP)
			continue;
		at->jt = at->jt == UNSURE ? pass : at->jt == MISMATCH ? next : at->jt;
		at->jf = at->jf == UNSURE ? pass : at->jf == MISMATCH ? next : at->jf;
	}
}

static unsigned int pass_all(struct sock_filter *code)
{
	code[0] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, PASS);
	return 1;
}

unsigned int vb_raw_filter_make(const struct vb_raw_wanted *wanted, struct sock_filter *code)
{
	unsigned int length = 0;
	struct rule rule;

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
