/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gsi.h - QP 1 of a live NIC (the general service interface): the connection manager and other
 * management datagrams, for the faces.
 *
 * All processes of a host share QP 1 of its address. Which process a MAD belongs to stands in it
 * (carrier/mad_route.h): a REQ or SIDR_REQ goes to whoever listens on the port (registry/ports.h),
 * other CM messages carry the communication ID of the process that they answer, whose upper bits
 * are its slot; so do the upper bits of other answers' transaction IDs.
 *
 * "Inside" means between vb_engine_enter() and vb_engine_leave().
 */
#ifndef VB_HOST_GSI_H
#define VB_HOST_GSI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "cm/cm.h"
#include "host/host.h"
#include "registry/ports.h"

#define VB_GSI_SLOT_SHIFT 23u /* of a communication ID, and of the upper half of a transaction ID */

/* vb_cm_handler_fn - the connection manager's event (struct vb_cm_ops.event); called inside, perhaps
 * by the background thread: it must not block, nor call back into the engine or the manager
 * (vb_cm_conn_set_user() is allowed). */
typedef bool (*vb_cm_handler_fn)(struct vb_engine *engine, const struct vb_cm_event *event);
/* vb_host_set_cm_handler - once, before the first vb_engine_cm(). */
VB_SHARED void vb_host_set_cm_handler(vb_cm_handler_fn handler);

/* vb_engine_cm - inside: the connection manager, made at the first call (from then on the
 * background thread serves it). NULL with errno. It lives as long as the engine: when the last
 * reference to the engine goes, or the process exits normally, connected peers are told. After any
 * vb_cm_* call that may have set a timer, vb_engine_leave() sees to the thread. */
VB_SHARED struct vb_cm *vb_engine_cm(struct vb_engine *engine);

/* vb_engine_watch_peer - inside: a queue pair of ours (none: nothing happens) is connected by the
 * connection manager. Should its peer fall silent for about half a minute, or fail to answer its
 * requests, the connection is over: VB_CM_DREQ_FAILED. */
VB_SHARED void vb_engine_watch_peer(struct vb_engine *engine, uint32_t qpn);

/* Ports of the engine's host: registry/ports.h. Called outside or inside. */
VB_SHARED int vb_engine_port_claim(struct vb_engine *engine, uint16_t space, unsigned int families,
				   uint16_t *port) VB_MUST_USE;
VB_SHARED void vb_engine_port_set_listening(struct vb_engine *engine, uint16_t space,
					    unsigned int families, uint16_t port, bool listening);
VB_SHARED void vb_engine_port_release(struct vb_engine *engine, uint16_t space,
				      unsigned int families, uint16_t port);

/* --- other management classes, for libibumad ----------------------------------------------- */

struct vb_gsi_rx {
	struct vb_cm_path path; /* the answer's way */
	uint32_t src_qpn;
	uint32_t qkey;
	const uint8_t *mad; /* VB_MAD_BYTES */
};

struct vb_gsi_agent;

/* vb_gsi_agent_create - outside. From now on received() sees responses to what the agent sent (whose
 * transaction ID's upper half is vb_gsi_agent_tid()), and, with methods non-zero (bit m: method m),
 * requests of its class to this host. received() is called inside: it must not block.
 * 0, -ENOMEM, -EBUSY: another agent of this process has one of the methods, or another process of
 * the host takes requests of the class. */
VB_SHARED int vb_gsi_agent_create(struct vb_engine *engine, uint8_t mgmt_class,
				  uint8_t class_version, const uint32_t methods[4],
				  void (*received)(void *env, const struct vb_gsi_rx *rx),
				  void *env, struct vb_gsi_agent **out) VB_MUST_USE;
VB_SHARED void vb_gsi_agent_destroy(struct vb_gsi_agent *agent);
/* vb_gsi_agent_tid - the upper 32 bits that this agent's requests carry in their transaction IDs. */
VB_SHARED uint32_t vb_gsi_agent_tid(const struct vb_gsi_agent *agent);
/* vb_gsi_send - outside: one MAD to QP qpn (usually 1) of a peer. 0; -EINVAL, -ENETUNREACH, ... */
VB_SHARED int vb_gsi_send(struct vb_engine *engine, const struct vb_cm_path *to, uint32_t qpn,
			  uint32_t qkey, const uint8_t mad[VB_MAD_BYTES]) VB_MUST_USE;

#endif
