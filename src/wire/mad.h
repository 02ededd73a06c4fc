/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mad.h - management datagrams, as values in host order (IBTA 13.4.2).
 *
 *      0  base version | class | class version | method
 *      4  status | class specific
 *      8  transaction ID
 *     16  attribute ID | reserved
 *     20  attribute modifier
 *     24  232 bytes that belong to the attribute
 *
 * On RoCE they are UD SENDs of exactly 256 bytes to QP 1 (the general service interface) with the
 * Q_Key VB_GSI_QKEY.
 */
#ifndef VB_WIRE_MAD_H
#define VB_WIRE_MAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

#define VB_MAD_BYTES 256u
#define VB_MAD_HEADER_BYTES 24u
#define VB_MAD_DATA_BYTES (VB_MAD_BYTES - VB_MAD_HEADER_BYTES)
#define VB_GSI_QPN 1u
#define VB_GSI_QKEY 0x80010000u
#define VB_MAD_BASE_VERSION 1

enum vb_mad_class {
	VB_MAD_SUBNET = 0x01,
	VB_MAD_SUBNET_DIRECTED = 0x81,
	VB_MAD_SUBNET_ADMIN = 0x03,
	VB_MAD_PERFORMANCE = 0x04,
	VB_MAD_CM = 0x07,
};

enum vb_mad_method {
	VB_MAD_GET = 0x01,
	VB_MAD_SET = 0x02,
	VB_MAD_SEND = 0x03,
	VB_MAD_GET_RESPONSE = 0x81,
};
#define VB_MAD_RESPONSE_BIT 0x80u
#define VB_MAD_STATUS_UNSUPPORTED 0x0cu /* that method with that attribute, IBTA 13.4.7 */

struct vb_mad {
	uint8_t base_version, mgmt_class, class_version, method;
	uint16_t status, class_specific;
	uint64_t tid;
	uint16_t attr_id;
	uint32_t attr_modifier;
};

/* vb_mad_encode - the header into out[0..24). */
void vb_mad_encode(const struct vb_mad *mad, uint8_t out[VB_MAD_BYTES]);
/* vb_mad_decode - 0, or -EBADMSG: not 256 bytes, or another base version. */
int vb_mad_decode(struct vb_mad *mad, const uint8_t *in, size_t size) VB_MUST_USE;

#endif
