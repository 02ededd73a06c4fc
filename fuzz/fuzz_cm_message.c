/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_cm_message.c - the decoder of the connection manager's messages on any bytes.
 *
 * What decodes must encode, unless it says that its additional information is longer than the room
 * for it, and decode to the same again, which then encodes to the same bytes; it differs from the
 * input in reserved bits alone, which each message has few of. The first byte of an input is the
 * attribute ID and the second chooses whether the header is made right, so that most of what is
 * tried gets behind it.
 */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "cm/ip.h"
#include "fuzz.h"
#include "wire/cm_message.h"

/* Bits that a message has no field for, all together, in the 232 bytes of its data: counted in the
 * specification's tables. */
static const unsigned int reserved_bits[VB_CM_ATTR_COUNT] = {
	4 * 8 + 4 * 8 + 2 * (6 + 3 + 3) - 1, 6 + 3, 6 + 1, 3 * 8 + 4, 0, 8, 0, 2 * 8, 2 * 8 + 8,
};

static unsigned int count_bits(uint8_t byte)
{
	return (unsigned int)__builtin_popcount(byte);
}

static void check_bytes(const struct vb_cm_message *m, const uint8_t *in, const uint8_t *out)
{
	unsigned int lost = 0;
	size_t from = 0, to = 0;

	/* Additional information beyond its length is not sent on. */
	if (m->mad.attr_id == VB_CM_ATTR_REJ) {
		from = 12 + m->rej.ari_len;
		to = 84;
	} else if (m->mad.attr_id == VB_CM_ATTR_SIDR_REP) {
		from = 24 + m->sidr_rep.info_len;
		to = 96;
	}
	VB_ASSERT(memcmp(in, out, 18) == 0); /* 18 and 19 are reserved */
	VB_ASSERT(memcmp(in + 20, out + 20, 4) == 0);
	for (size_t i = 0; i < VB_MAD_DATA_BYTES; i++) {
		uint8_t before = in[VB_MAD_HEADER_BYTES + i], after = out[VB_MAD_HEADER_BYTES + i];

		VB_ASSERT((after & ~before) == 0);
		if (i < from || i >= to)
			lost += count_bits(before) - count_bits(after);
	}
	VB_ASSERT(lost <= reserved_bits[m->mad.attr_id - VB_CM_ATTR_REQ]);
}

static void check_message(const uint8_t *in, size_t size)
{
	uint8_t out[VB_MAD_BYTES], again[VB_MAD_BYTES];
	struct vb_cm_message m, second;
	struct vb_cm_ip ip;
	int err = vb_cm_message_decode(&m, in, size);

	if (err) {
		VB_ASSERT(err == -EBADMSG || err == -ENOMSG);
		return;
	}
	VB_ASSERT(m.private_len == vb_cm_message_private_room(m.mad.attr_id));
	VB_ASSERT(m.private_data + m.private_len == in + size);
	if (!vb_cm_ip_decode(&ip, m.private_data, m.private_len)) {
		uint8_t header[VB_CM_IP_HEADER_BYTES];

		vb_cm_ip_encode(&ip, header);
		VB_ASSERT(memcmp(header + 2, m.private_data + 2, 2) == 0);
		VB_ASSERT(memcmp(header + 32, m.private_data + 32, 4) == 0);
	}
	err = vb_cm_message_encode(&m, out);
	if (err) {
		VB_ASSERT(err == -EMSGSIZE);
		VB_ASSERT(m.mad.attr_id == VB_CM_ATTR_REJ || m.mad.attr_id == VB_CM_ATTR_SIDR_REP);
		return;
	}
	check_bytes(&m, in, out);
	VB_ASSERT(vb_cm_message_decode(&second, out, sizeof(out)) == 0);
	VB_ASSERT(vb_cm_message_encode(&second, again) == 0);
	VB_ASSERT(memcmp(out, again, sizeof(out)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct vb_mad right = {
		.base_version = VB_MAD_BASE_VERSION,
		.mgmt_class = VB_MAD_CM,
		.class_version = VB_CM_CLASS_VERSION,
		.method = VB_MAD_SEND,
		.attr_id = (uint16_t)(VB_CM_ATTR_REQ + (size ? data[0] % VB_CM_ATTR_COUNT : 0)),
	};
	uint8_t mad[VB_MAD_BYTES];

	if (size < 2)
		return 0;
	if (!(data[1] & 1)) {
		check_message(data + 2, size - 2);
		return 0;
	}
	memset(mad, 0, sizeof(mad));
	vb_mad_encode(&right, mad);
	if (size > 2)
		memcpy(mad + VB_MAD_HEADER_BYTES, data + 2, VB_MIN(size - 2, VB_MAD_DATA_BYTES));
	check_message(mad, sizeof(mad));
	return 0;
}
