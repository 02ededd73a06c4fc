/* SPDX-License-Identifier: BSD-2-Clause */
/* mad.c - the common header of management datagrams, from bytes and to bytes (IBTA 13.4.3). */
#include "wire/mad.h"

#include <errno.h>
#include <string.h>

#include "wire/cursor.h"

void vb_mad_encode(const struct vb_mad *mad, uint8_t out[VB_MAD_BYTES])
{
	out[0] = mad->base_version;
	out[1] = mad->mgmt_class;
	out[2] = mad->class_version;
	out[3] = mad->method;
	vb_store_be16(out + 4, mad->status);
	vb_store_be16(out + 6, mad->class_specific);
	vb_store_be64(out + 8, mad->tid);
	vb_store_be16(out + 16, mad->attr_id);
	vb_store_be16(out + 18, 0);
	vb_store_be32(out + 20, mad->attr_modifier);
}

int vb_mad_decode(struct vb_mad *mad, const uint8_t *in, size_t size)
{
	if (size != VB_MAD_BYTES || in[0] != VB_MAD_BASE_VERSION)
		return -EBADMSG;
	memset(mad, 0, sizeof(*mad));
	mad->base_version = in[0];
	mad->mgmt_class = in[1];
	mad->class_version = in[2];
	mad->method = in[3];
	mad->status = vb_load_be16(in + 4);
	mad->class_specific = vb_load_be16(in + 6);
	mad->tid = vb_load_be64(in + 8);
	mad->attr_id = vb_load_be16(in + 16);
	mad->attr_modifier = vb_load_be32(in + 20);
	return 0;
}
