/* SPDX-License-Identifier: BSD-2-Clause */
/* buffer.c - the header in front of a management datagram: its fields, and printing them. */
#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "umad/face.h"

#define CLASS_BASEBOARD 0x05
#define BASEBOARD_RESPONSE 1u /* in the attribute modifier, IBTA 16.2.2 */
#define METHOD_TRAP_REPRESS 0x07

static int debug_level;

bool vb_umad_is_response(const uint8_t *mad)
{
	return mad[3] & VB_MAD_RESPONSE_BIT || mad[3] == METHOD_TRAP_REPRESS ||
	       (mad[1] == CLASS_BASEBOARD && mad[23] & BASEBOARD_RESPONSE);
}

struct vb_umad_message *vb_umad_message_create(uint32_t room)
{
	struct vb_umad_message *message = calloc(1, sizeof(*message) + VB_MAX(room, VB_MAD_BYTES));

	if (message)
		message->length = VB_MAD_BYTES;
	return message;
}

void vb_umad_trace(const char *format, ...)
{
	va_list arguments;

	if (debug_level < 1)
		return;
	fputs("verbena: umad: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

int umad_debug(int level)
{
	if (level >= 0)
		debug_level = level;
	return debug_level;
}

void *umad_get_mad(void *umad)
{
	return ((struct ib_user_mad *)umad)->data;
}

size_t umad_size(void)
{
	return sizeof(struct ib_user_mad);
}

int umad_status(void *umad)
{
	return (int)((struct ib_user_mad *)umad)->status;
}

ib_mad_addr_t *umad_get_mad_addr(void *umad)
{
	return &((struct ib_user_mad *)umad)->addr;
}

/* The struct's fields are in network order; these two take host order. */
int umad_set_grh(void *umad, void *mad_addr)
{
	struct ib_mad_addr *to = umad_get_mad_addr(umad);
	const struct ib_mad_addr *from = mad_addr;

	to->grh_present = from != NULL;
	if (!from)
		return 0;
	memcpy(to->gid, from->gid, sizeof(to->gid));
	to->flow_label = htobe32(from->flow_label);
	to->hop_limit = from->hop_limit;
	to->traffic_class = from->traffic_class;
	return 0;
}

int umad_set_addr(void *umad, int dlid, int dqp, int sl, int qkey)
{
	return umad_set_addr_net(umad, htobe16((uint16_t)dlid), htobe32((uint32_t)dqp), sl,
				 htobe32((uint32_t)qkey));
}

int umad_set_addr_net(void *umad, __be16 dlid, __be32 dqp, int sl, __be32 qkey)
{
	struct ib_mad_addr *to = umad_get_mad_addr(umad);

	to->lid = dlid;
	to->qpn = dqp;
	to->sl = (uint8_t)sl;
	to->qkey = qkey;
	return 0;
}

int umad_set_pkey(void *umad, int pkey_index)
{
	umad_get_mad_addr(umad)->pkey_index = (uint16_t)pkey_index;
	return 0;
}

int umad_get_pkey(void *umad)
{
	return umad_get_mad_addr(umad)->pkey_index;
}

void umad_addr_dump(ib_mad_addr_t *addr)
{
	char gid[2 * sizeof(addr->gid) + 1];
	size_t i;

	fprintf(stderr, "qpn %u qkey 0x%x lid %u sl %u\n", be32toh(addr->qpn), be32toh(addr->qkey),
		be16toh(addr->lid), addr->sl);
	if (!addr->grh_present)
		return;
	for (i = 0; i < sizeof(addr->gid); i++)
		snprintf(gid + 2 * i, 3, "%02x", addr->gid[i]);
	fprintf(stderr, "gid 0x%s gid index %u hop limit %u traffic class %u flow label 0x%x\n",
		gid, addr->gid_index, addr->hop_limit, addr->traffic_class,
		be32toh(addr->flow_label));
}

void umad_dump(void *umad)
{
	const struct ib_user_mad *mad = umad;

	fprintf(stderr, "agent id %u status %u timeout %u ms\n", mad->agent_id, mad->status,
		mad->timeout_ms);
	umad_addr_dump(umad_get_mad_addr(umad));
}
