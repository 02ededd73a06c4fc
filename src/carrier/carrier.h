/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * carrier.h - how packets travel. A carrier takes packets from one NIC, delivers those that arrive,
 * and has one descriptor that becomes readable when there is something to deliver.
 *
 * All calls come from one thread at a time (the engine's lock holder). udp.c is RoCEv2 on sockets,
 * local.c shared memory between the processes of one host.
 */
#ifndef VB_CARRIER_CARRIER_H
#define VB_CARRIER_CARRIER_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/path.h"

struct vb_carrier;

/* vb_deliver_fn - the NIC's end: called by poll for each packet that arrived; rx is the carrier's
 * and valid during the call. */
typedef void (*vb_deliver_fn)(void *env, const struct vb_rx *rx);

struct vb_carrier_ops {
	const char *name;
	/* tx - takes a packet; it may wait in a batch until flush. 0; -EAGAIN: no room now; another
	 * -errno: dropped for good. */
	int (*tx)(struct vb_carrier *carrier, const struct vb_path *path, const struct vb_tx *tx);
	/* flush - everything taken is on its way. */
	void (*flush)(struct vb_carrier *carrier);
	/* poll - delivers up to budget packets; returns how many. *room is set to true when a
	 * packet that was refused with -EAGAIN may be taken now (left alone otherwise). */
	int (*poll)(struct vb_carrier *carrier, int budget, bool *room);
	/* arm - before the owner sleeps on fd: from now on an arriving packet makes fd readable.
	 * False: something is waiting already, poll instead. */
	bool (*arm)(struct vb_carrier *carrier);
	/* disarm - after waking: drains fd. */
	void (*disarm)(struct vb_carrier *carrier);
	void (*destroy)(struct vb_carrier *carrier);
};

struct vb_carrier {
	const struct vb_carrier_ops *ops;
	vb_deliver_fn deliver;
	void *env;
	int fd;		    /* for epoll; stays the same for the carrier's life */
	bool looks_cheaply; /* a poll that finds nothing makes no system call */
	bool has_more;	    /* the latest poll used its budget up */
};

#endif
