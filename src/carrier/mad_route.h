/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mad_route.h - which process of the host a MAD for QP 1 belongs to.
 *
 * The two carriers ask before they deliver: udp for a packet that any process of the host may have
 * received, local for one that this process sends to its own host.
 */
#ifndef VB_CARRIER_MAD_ROUTE_H
#define VB_CARRIER_MAD_ROUTE_H

#include <stddef.h>
#include <stdint.h>

#include "registry/registry.h"

/* vb_mad_route - the slot, or 0: nobody's in particular (whoever has it answers: a REQ to a port
 * without listener is refused by any process). mad is anything that came from the wire. */
uint16_t vb_mad_route(struct vb_registry *registry, const uint8_t *mad, size_t size);

#endif
