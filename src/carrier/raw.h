/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw.h - whole Ethernet frames on an interface, through a packet socket (packet(7)).
 *
 * It needs CAP_NET_RAW in the user namespace that owns the network namespace. The kernel's own
 * protocols see what is received here all the same; a rule steers nothing away from them.
 */
#ifndef VB_CARRIER_RAW_H
#define VB_CARRIER_RAW_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frame.h"

struct vb_raw_socket;

/* A frame that came; bytes are the socket's, during the call. */
struct vb_raw_rx {
	const uint8_t *bytes;
	uint32_t size;
	bool sent;     /* by this host, not received */
	bool l4_known; /* the kernel vouches for the TCP or UDP checksum */
};

typedef void (*vb_raw_deliver_fn)(void *env, const struct vb_raw_rx *rx);

struct vb_raw_counters {
	uint64_t rx_frames, tx_frames;
	uint64_t rx_too_long; /* dropped */
	uint64_t tx_dropped;  /* refused by the kernel */
};

/* vb_raw_create - hears nothing yet. 0, with port filled in; -EPERM without CAP_NET_RAW; others of
 * socket(2). */
int vb_raw_create(struct vb_raw_socket **out, uint32_t ifindex, struct vb_raw_port *port,
		  vb_raw_deliver_fn deliver, void *env) VB_MUST_USE;
/* vb_raw_destroy - also in a forked child, for its copy. NULL is accepted. */
void vb_raw_destroy(struct vb_raw_socket *raw);

/* vb_raw_allowed_now - whether vb_raw_create would be allowed to the calling thread. 0, -EPERM. */
int vb_raw_allowed_now(void) VB_MUST_USE;

/* vb_raw_fd - readable when there is something to deliver, or room to send again. */
int vb_raw_fd(const struct vb_raw_socket *raw);

/* vb_raw_listen - 0 or -errno. What is not wanted is dropped in the kernel, as far as it can tell.
 */
int vb_raw_listen(struct vb_raw_socket *raw, const struct vb_raw_wanted *wanted) VB_MUST_USE;

/* vb_raw_send - 0; -EAGAIN: no room now; another -errno: dropped. */
int vb_raw_send(struct vb_raw_socket *raw, const uint8_t *frame, uint32_t size) VB_MUST_USE;

/* vb_raw_poll - as vb_carrier_ops.poll. */
int vb_raw_poll(struct vb_raw_socket *raw, int budget, bool *room);

void vb_raw_read_counters(const struct vb_raw_socket *raw, struct vb_raw_counters *out);

#endif
