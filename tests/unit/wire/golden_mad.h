/* SPDX-License-Identifier: BSD-2-Clause */
/* golden_mad.h - the management datagrams among the packets of a capture. */
#ifndef VB_TESTS_GOLDEN_MAD_H
#define VB_TESTS_GOLDEN_MAD_H

#include "golden.h"
#include "wire/mad.h"

/* golden_next_mad - the next packet that holds one; the MAD, or NULL at the end. */
static inline const uint8_t *golden_next_mad(struct golden_file *file, struct golden_packet *p)
{
	while (golden_next(file, p)) {
		struct vb_headers h;
		int bytes = vb_headers_decode(&h, p->data, p->size - VB_ICRC_BYTES);

		if (bytes > 0 && h.qpn == VB_GSI_QPN &&
		    p->size == (size_t)bytes + VB_MAD_BYTES + VB_ICRC_BYTES)
			return p->data + bytes;
	}
	return NULL;
}

#endif
