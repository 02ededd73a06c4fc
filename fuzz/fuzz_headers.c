/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_headers.c - the packet decoder on any bytes.
 *
 * What decodes must encode to as many bytes, equal to the input but for reserved bits, and decode
 * to the same again; and the ICRC must be the same however the bytes are handed to it.
 */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "fuzz.h"
#include "wire/icrc.h"
#include "wire/packet.h"

static void check_icrc(const uint8_t *data, size_t size)
{
	struct vb_icrc_ip ip = {.src_port = 0xc000, .dst_port = VB_ROCE_PORT, .ip_id = 0x1234};
	size_t cut = VB_BTH_BYTES + data[0] % (size - VB_BTH_BYTES + 1);
	uint32_t whole = vb_icrc_begin_bth(&ip, size + VB_ICRC_BYTES, data, size);
	uint32_t parts = vb_icrc_begin(&ip, size + VB_ICRC_BYTES);
	uint32_t other;
	uint16_t id;

	parts = vb_icrc_add_bth(parts, data, cut);
	parts = vb_icrc_add(parts, data + cut, size - cut);
	VB_ASSERT(parts == whole);

	if (size + VB_ICRC_BYTES > 9000)
		return;
	ip.src.s6_addr[10] = ip.src.s6_addr[11] = 0xff;
	ip.dst = ip.src;
	whole = vb_icrc_begin_bth(&ip, size + VB_ICRC_BYTES, data, size);
	ip.ip_id = (uint16_t)(data[size - 1] << 8 | data[size - 2]);
	other = vb_icrc_begin_bth(&ip, size + VB_ICRC_BYTES, data, size);
	VB_ASSERT(vb_icrc_solve_ip_id(other, whole, &ip, size + VB_ICRC_BYTES, &id) == 0);
	VB_ASSERT(id == 0x1234);
}

static void check_headers(const uint8_t *data, size_t size)
{
	uint8_t out[VB_HEADERS_MAX];
	struct vb_headers h, again;
	int bytes = vb_headers_decode(&h, data, size);
	unsigned int flags;

	if (bytes < 0) {
		VB_ASSERT(bytes == -EBADMSG);
		return;
	}
	VB_ASSERT((size_t)bytes + h.pad <= size);
	VB_ASSERT(vb_headers_encode(&h, out, (size_t)bytes) == bytes);
	flags = vb_opcode_table[h.opcode].flags;
	for (int i = 0; i < bytes; i++) {
		uint8_t reserved = i == 4 ? 0x3f : i == 8 ? 0x7f : 0;

		if (i == 16 && flags & VB_HAS_DETH)
			reserved = 0xff;
		VB_ASSERT(out[i] == (data[i] & (uint8_t)~reserved));
	}
	VB_ASSERT(vb_headers_decode(&again, out, (size_t)bytes) == (h.pad ? -EBADMSG : bytes));
	if (!h.pad)
		VB_ASSERT(memcmp(&h, &again, sizeof(h)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_headers(data, size);
	if (size >= VB_BTH_BYTES)
		check_icrc(data, size);
	return 0;
}
