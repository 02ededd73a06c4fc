/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ports.h - the RDMA ports of one host, shared by all its processes.
 *
 *      /dev/shm/verbena-<uid>/<host>/ports     one 64-bit word for each port space, family and port
 *
 *      | tag of the owner's registry instance 32 | claims 8 | flags 8 | slot 16 |
 *
 * A word is taken and given back by one compare-and-swap, so that a process may die at any
 * instruction; a word whose slot is dead, or belongs to another instance by now, is free. The file
 * is sparse: only pages with ports in use take memory.
 */
#ifndef VB_REGISTRY_PORTS_H
#define VB_REGISTRY_PORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "registry/registry.h"

/* enum rdma_port_space of <rdma/rdma_cma.h> */
enum vb_port_space {
	VB_PS_IPOIB = 0x0002,
	VB_PS_TCP = 0x0106,
	VB_PS_UDP = 0x0111,
	VB_PS_IB = 0x013f,
	/* Ours: who answers requests of a management class; the port is vb_mad_class_port(), the
	 * family IPv4. */
	VB_PS_MAD = 0xfffe,
};

static inline uint16_t vb_mad_class_port(uint8_t mgmt_class, uint8_t class_version)
{
	return (uint16_t)(class_version << 8 | mgmt_class);
}

enum vb_port_families { VB_PORT_IPV4 = 1, VB_PORT_IPV6 = 2 };

/* vb_ports_claim - the port is ours; a process may claim the same one again (it judges itself
 * whether that is allowed), and gives each claim back. *port 0: a free one is chosen at random from
 * the ephemeral ports (32768 .. 60999) and written there. 0; -EADDRINUSE another live process has
 * it (of any of the families: all or none are taken), or no ephemeral one is free, or this process
 * has 255 claims; -EINVAL an unknown port space; others from the system. */
int vb_ports_claim(struct vb_registry *registry, uint16_t space, unsigned int families,
		   uint16_t *port) VB_MUST_USE;
/* vb_ports_set_listening - whether connections to the port (which is claimed) come to this process.
 */
void vb_ports_set_listening(struct vb_registry *registry, uint16_t space, unsigned int families,
			    uint16_t port, bool listening);
void vb_ports_release(struct vb_registry *registry, uint16_t space, unsigned int families,
		      uint16_t port);
/* vb_ports_listener - the slot of the live process that listens, 0: none. */
uint16_t vb_ports_listener(struct vb_registry *registry, uint16_t space,
			   enum vb_port_families family, uint16_t port);

#endif
