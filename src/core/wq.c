/* SPDX-License-Identifier: BSD-2-Clause */
/* wq.c - see wq.h. The hash is Microsoft's Toeplitz hash, as adapters have it. */
#include "core/wq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/transport.h"

#define NUMBER_MASK 0xffffffu

struct vb_wq *vb_wq_create(struct vb_pd *pd, struct vb_cq *cq, uint32_t max_wr, uint32_t max_sge,
			   bool strip_vlan, void *user)
{
	struct vb_nic *nic = pd->nic;
	struct vb_wq *wq;

	max_sge = VB_MAX(max_sge, 1u);
	if (!max_wr || max_wr > VB_MAX_QP_WR || max_sge > VB_MAX_SGE) {
		errno = EINVAL;
		return NULL;
	}
	if (nic->wq_count >= VB_MAX_WQ) {
		errno = ENOMEM;
		return NULL;
	}
	wq = calloc(1, sizeof(*wq));
	if (!wq)
		return NULL;
	wq->taken_sges = calloc(max_sge, sizeof(*wq->taken_sges));
	if (!wq->taken_sges || vb_rq_init(&wq->rq, max_wr, max_sge) < 0) {
		free(wq->taken_sges);
		free(wq);
		errno = ENOMEM;
		return NULL;
	}
	wq->nic = nic;
	wq->pd = pd;
	wq->cq = cq;
	wq->user = user;
	wq->strip_vlan = strip_vlan;
	wq->taken.sges = wq->taken_sges;
	wq->number = ++nic->next_wq_number & NUMBER_MASK;
	nic->wq_count++;
	pd->users++;
	cq->users++;
	return wq;
}

int vb_wq_destroy(struct vb_wq *wq)
{
	if (!wq)
		return 0;
	if (wq->users)
		return -EBUSY;
	vb_cq_forget_wq(wq->cq, wq->number);
	wq->nic->wq_count--;
	wq->pd->users--;
	wq->cq->users--;
	vb_rq_finish(&wq->rq);
	free(wq->taken_sges);
	free(wq);
	return 0;
}

static void complete(struct vb_wq *wq, enum vb_status status, const struct vb_reason *reason)
{
	const struct vb_cqe cqe = {
		.wr_id = wq->taken.wr_id,
		.qpn = wq->number,
		.status = (uint8_t)status,
		.opcode = VB_WC_RECV,
		.vendor_err = (uint16_t)reason->check,
	};

	vb_cq_push(wq->cq, &cqe, reason);
}

static void flush(struct vb_wq *wq)
{
	const struct vb_reason flushed = {.check = VB_CHECK_FLUSHED, .qpn = wq->number};

	while (vb_rq_take(&wq->rq, &wq->taken))
		complete(wq, VB_WC_WR_FLUSH_ERR, &flushed);
}

void vb_wq_fail(struct vb_wq *wq, enum vb_status status, const struct vb_reason *reason)
{
	const struct vb_event event = {.type = VB_EVENT_WQ_FATAL, .wq = wq};

	complete(wq, status, reason);
	wq->state = VB_WQS_ERR;
	wq->nic->ops.event(wq->nic->env, &event);
	flush(wq);
}

int vb_wq_set_state(struct vb_wq *wq, enum vb_wq_state state)
{
	switch (state) {
	case VB_WQS_RESET:
		vb_rq_reset(&wq->rq);
		vb_cq_forget_wq(wq->cq, wq->number);
		break;
	case VB_WQS_RDY:
		if (wq->state == VB_WQS_ERR)
			return -EINVAL;
		break;
	case VB_WQS_ERR:
		if (wq->state == VB_WQS_RESET)
			return -EINVAL;
		flush(wq);
		break;
	default:
		return -EINVAL;
	}
	wq->state = state;
	return 0;
}

int vb_wq_post(struct vb_wq *wq, const struct vb_recv_wr *wr)
{
	int rc;

	if (wq->state == VB_WQS_RESET)
		return -EINVAL;
	rc = vb_rq_post(&wq->rq, wr);
	if (rc == 0 && wq->state == VB_WQS_ERR)
		flush(wq);
	return rc;
}

/* --- tables ------------------------------------------------------------------------------ */

struct vb_wq_table *vb_wq_table_create(struct vb_nic *nic, struct vb_wq *const *wqs,
				       uint32_t log_size)
{
	struct vb_wq_table *table;
	uint32_t size;

	if (log_size > VB_MAX_WQ_TABLE_BITS) {
		errno = EINVAL;
		return NULL;
	}
	if (nic->wq_table_count >= VB_MAX_WQ_TABLES) {
		errno = ENOMEM;
		return NULL;
	}
	size = 1u << log_size;
	table = calloc(1, sizeof(*table) + size * sizeof(wqs[0]));
	if (!table)
		return NULL;
	table->nic = nic;
	table->mask = size - 1;
	for (uint32_t i = 0; i < size; i++) {
		table->wqs[i] = wqs[i];
		wqs[i]->users++;
	}
	nic->wq_table_count++;
	return table;
}

int vb_wq_table_destroy(struct vb_wq_table *table)
{
	if (!table)
		return 0;
	if (table->users)
		return -EBUSY;
	for (uint32_t i = 0; i <= table->mask; i++)
		table->wqs[i]->users--;
	table->nic->wq_table_count--;
	free(table);
	return 0;
}

/* --- the hash ---------------------------------------------------------------------------- */

/* For each bit of the input that is set, the 32 bits of the key that begin at it. */
static uint32_t toeplitz(const uint8_t key[VB_RSS_KEY_BYTES], const uint8_t *input, uint32_t bytes)
{
	uint64_t window =
		0; /* the key's bits from the current input byte on, 40 of them at its top */
	uint32_t hash = 0;

	for (uint32_t i = 0; i < bytes; i++) {
		window = 0;
		for (uint32_t k = 0; k < 5; k++)
			window = window << 8 | key[(i + k) % VB_RSS_KEY_BYTES];
		for (uint32_t bit = 0; bit < 8; bit++)
			if (input[i] & 0x80u >> bit)
				hash ^= (uint32_t)(window >> (8 - bit));
	}
	return hash;
}

struct input {
	uint8_t bytes[2 * 16 + 2 * 2];
	uint32_t length;
};

static void append(struct input *in, bool wanted, const uint8_t *from, uint32_t length)
{
	if (!wanted)
		return;
	memcpy(in->bytes + in->length, from, length);
	in->length += length;
}

uint32_t vb_rss_hash(const struct vb_rss *rss, const struct vb_frame *frame)
{
	const struct vb_frame_key *key = &frame->key;
	const bool ipv4 = frame->l3 == VB_L3_IPV4, ipv6 = frame->l3 == VB_L3_IPV6;
	const bool tcp = frame->l4 == VB_L4_TCP, udp = frame->l4 == VB_L4_UDP;
	const uint32_t address = ipv4 ? 4 : 16, f = rss->fields;
	struct input in = {.length = 0};

	append(&in, (ipv4 && f & VB_RSS_SRC_IPV4) || (ipv6 && f & VB_RSS_SRC_IPV6), key->ip_src,
	       address);
	append(&in, (ipv4 && f & VB_RSS_DST_IPV4) || (ipv6 && f & VB_RSS_DST_IPV6), key->ip_dst,
	       address);
	append(&in, (tcp && f & VB_RSS_SRC_PORT_TCP) || (udp && f & VB_RSS_SRC_PORT_UDP),
	       key->src_port, 2);
	append(&in, (tcp && f & VB_RSS_DST_PORT_TCP) || (udp && f & VB_RSS_DST_PORT_UDP),
	       key->dst_port, 2);
	return toeplitz(rss->key, in.bytes, in.length);
}

bool vb_rss_fields_are_valid(uint64_t fields)
{
	const uint64_t ipv4 = VB_RSS_SRC_IPV4 | VB_RSS_DST_IPV4;
	const uint64_t ipv6 = VB_RSS_SRC_IPV6 | VB_RSS_DST_IPV6;
	const uint64_t tcp = VB_RSS_SRC_PORT_TCP | VB_RSS_DST_PORT_TCP;
	const uint64_t udp = VB_RSS_SRC_PORT_UDP | VB_RSS_DST_PORT_UDP;

	return !(fields & ~(uint64_t)VB_RSS_ALL) && !(fields & ipv4 && fields & ipv6) &&
	       !(fields & tcp && fields & udp);
}
