/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mcast.h - multicast groups and the UD queue pairs attached to them (IBTA 10.5).
 *
 * A packet to QP 0xffffff goes to every queue pair that is attached to the group it was sent to,
 * the sender's own included. The surroundings are told of the first and of the last attachment to
 * a group, so that they can join and leave it on the network.
 */
#ifndef VB_CORE_MCAST_H
#define VB_CORE_MCAST_H

#include <netinet/in.h>
#include <stdbool.h>

#include "base/macros.h"

struct vb_nic;
struct vb_qp;

/* vb_mcast_gid_is_valid - IPv4 multicast as a mapped address, or IPv6 multicast. */
bool vb_mcast_gid_is_valid(const struct in6_addr *gid);

/* vb_mcast_attach - once or again: attaching twice is one attachment. 0; -EINVAL: not a UD queue
 * pair, not a multicast GID; -ENOMEM: VB_MAX_MCAST_GROUPS or VB_MAX_MCAST_QPS are reached, or the
 * surroundings cannot join; others from ops.join. */
int vb_mcast_attach(struct vb_qp *qp, const struct in6_addr *gid) VB_MUST_USE;
/* vb_mcast_detach - -EINVAL: it is not attached. */
int vb_mcast_detach(struct vb_qp *qp, const struct in6_addr *gid) VB_MUST_USE;
/* vb_mcast_detach_all - before the queue pair goes. */
void vb_mcast_detach_all(struct vb_qp *qp);
/* vb_mcast_is_attached - to any group. */
bool vb_mcast_is_attached(const struct vb_qp *qp);

/* vb_mcast_each - visits the members of a group, which must not change meanwhile. False: nobody is
 * attached to it. */
bool vb_mcast_each(const struct vb_nic *nic, const struct in6_addr *gid,
		   void (*visit)(struct vb_qp *qp, const void *env), const void *env);

#endif
