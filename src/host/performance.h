/* SPDX-License-Identifier: BSD-2-Clause */
/* performance.h - the performance management agent of a port; see performance.c. */
#ifndef VB_HOST_PERFORMANCE_H
#define VB_HOST_PERFORMANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "wire/mad.h"

struct vb_engine;

/* vb_engine_performance - inside: answers a Get or Set of the class PerfMgmt, from this host or
 * another. False: in is none; there is no answer. */
VB_SHARED bool vb_engine_performance(struct vb_engine *engine, const uint8_t in[VB_MAD_BYTES],
				     uint8_t out[VB_MAD_BYTES]);

#endif
