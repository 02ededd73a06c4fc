/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * host.h - live NICs in a process, for the faces (verbs, rdmacm, umad) and the verbena command.
 *
 * vb_host_devices() lists the devices that the settings name; vb_engine_get() brings one to life: a
 * registry slot, two carriers, a core NIC, one lock, one background thread. All objects of the
 * core (vb_qp, vb_cq, ...) of an engine are used between vb_engine_enter() and vb_engine_leave().
 *
 * Two pumps drive the engine: whoever is inside calls vb_engine_pump(); when the program does not
 * call, the background thread does. It starts with the engine and sleeps when there is nothing to
 * do.
 */
#ifndef VB_HOST_HOST_H
#define VB_HOST_HOST_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/nic.h"

#define VB_MAX_DEVICES 16u
#define VB_MAX_GIDS 16u

struct vb_gid {
	struct in6_addr gid;	 /* as programs see it */
	struct in6_addr address; /* what goes into the IP header: IPv4 mapped or IPv6 */
	uint32_t ifindex;
	char ifname[16];
};

struct vb_device {
	char name[64]; /* verbena0, ... */
	unsigned int index;
	uint16_t lid;		 /* of VERBENA_LID=1, which takes it for InfiniBand; else 0 */
	uint64_t guid;		 /* node and port GUID, host order; stable for an address */
	struct in6_addr address; /* of VERBENA_ADDR */
	struct in6_addr
		host_address; /* names its host in the registry: the same for all processes of it */
	char ifname[16];
	uint32_t ifindex;
	uint32_t mtu;		  /* of the interface, bytes */
	uint32_t active_path_mtu; /* the largest path MTU that fits: 256 .. 4096 bytes */
	struct vb_gid gids[VB_MAX_GIDS];
	unsigned int gid_count;
};

/* vb_host_devices - the devices of this process, read from the settings and the interfaces at the
 * first call. Returns how many, or -errno after a sentence on standard error said what is wrong
 * with a setting and what is allowed. *list stays valid and unchanged for the life of the process.
 */
VB_SHARED int vb_host_devices(struct vb_device *const **list);

struct vb_engine;

/* The faces' hooks. Called with the engine's lock held, perhaps by the background thread: they must
 * not call back into the engine, and not block. */
struct vb_host_hooks {
	void (*event)(struct vb_engine *engine, const struct vb_event *event);
	void (*cq_event)(struct vb_engine *engine, struct vb_cq *cq);
};
/* vb_host_set_hooks - once, before the first vb_engine_get(). */
void vb_host_set_hooks(const struct vb_host_hooks *hooks);

/* vb_engine_get - the live NIC of a device, made at the first call and shared by later ones. 0 or
 * -errno (the cause was said on standard error once). */
VB_SHARED int vb_engine_get(struct vb_device *device, struct vb_engine **out);
/* vb_engine_put - the last one stops the thread and frees everything. NULL is accepted. */
VB_SHARED void vb_engine_put(struct vb_engine *engine);

/* vb_host_ending - the process is about to end, or to become another, without its exit handlers:
 * what waits for company (hold.h) leaves. From any thread, a signal handler, a vfork's child.
 * vb_host_hears_its_end - once, when that is sure to be called: before, no acknowledgement waits.
 */
void vb_host_ending(void);
void vb_host_hears_its_end(void);

VB_SHARED struct vb_nic *vb_engine_nic(struct vb_engine *engine);
VB_SHARED struct vb_device *vb_engine_device(struct vb_engine *engine);
/* vb_engine_now - nanoseconds of the engine's monotonic clock. */
VB_SHARED uint64_t vb_engine_now(void);

/* vb_engine_enter - takes the lock and tells the NIC the time. False in a forked child whose parent
 * made the engine (nothing may be done with it; leave need not be called). */
VB_SHARED bool vb_engine_enter(struct vb_engine *engine);
/* vb_engine_enter_to_post - the same at less cost, for requests to qp (NULL: to an SRQ) and then
 * vb_engine_pump_posts. The time is told as far as that needs it, and nothing between makes a
 * system call but through the NIC's surroundings (engine.h, vb_engine_shield). */
bool vb_engine_enter_to_post(struct vb_engine *engine, const struct vb_qp *qp);
/* vb_engine_enter_to_arm - as vb_engine_enter, but what waits for company (hold.h) goes on waiting.
 */
bool vb_engine_enter_to_arm(struct vb_engine *engine);
VB_SHARED void vb_engine_leave(struct vb_engine *engine);
enum vb_port_state {
	VB_PORT_DISABLED, /* the interface is down, or gone */
	VB_PORT_POLLING,  /* it is up and has no carrier */
	VB_PORT_UP,
};
/* vb_engine_port - outside: the port's state now; DISABLED in a forked child. Events that are due
 * are raised before it returns. */
VB_SHARED enum vb_port_state vb_engine_port(struct vb_engine *engine);

/* vb_engine_pump - inside: takes what arrived, runs the NIC, sends. Bounded. */
VB_SHARED void vb_engine_pump(struct vb_engine *engine);
/* vb_engine_pump_posts - inside, behind posting: sends, and mostly leaves what arrived to the next
 * poll. */
void vb_engine_pump_posts(struct vb_engine *engine);
/* vb_engine_leave_sends, vb_engine_leave_receives - behind posting: the same, but what leaves by
 * UDP may wait a moment for company; and vb_engine_leave. */
void vb_engine_leave_sends(struct vb_engine *engine, const struct vb_qp *qp);
void vb_engine_leave_receives(struct vb_engine *engine);
/* vb_engine_wake_thread - inside: the program is going to wait (armed a CQ, blocks in get_event):
 * the background thread takes over at once. */
VB_SHARED void vb_engine_wake_thread(struct vb_engine *engine);

/* vb_engine_is_alive - false in a forked child, and at exit: nothing may be posted beside the NIC
 * either (core/beside.h). */
bool vb_engine_is_alive(const struct vb_engine *engine);
/* vb_engine_hand_over - outside, by the thread that posted beside the NIC: what was posted to qp
 * goes its way, at once or, where another thread is inside, when that leaves; nobody is waited for.
 * qp is NULL where the receives of a shared queue were posted, which need nobody's help. */
void vb_engine_hand_over(struct vb_engine *engine, struct vb_qp *qp);
/* vb_engine_look_for - outside: pumps as a polling program does until found(arg), for ns
 * nanoseconds. */
bool vb_engine_look_for(struct vb_engine *engine, bool (*found)(void *arg), void *arg, uint64_t ns);

/* vb_engine_poll_cq - enter, pump as needed, poll, leave. Returns completions, 0, or -errno. Of a
 * CQ that is single (core/cq.h), what is there is taken without entering, and nobody is waited for.
 */
int vb_engine_poll_cq(struct vb_engine *engine, struct vb_cq *cq, struct vb_cqe *out, int n);

/* vb_engine_reg_mr - checks that the pages exist with the rights (-EFAULT), registers and
 * publishes. Called outside. 0 or -errno. */
int vb_engine_reg_mr(struct vb_engine *engine, struct vb_pd *pd, void *addr, uint64_t length,
		     uint64_t iova, uint32_t access, struct vb_mr **out);
/* vb_engine_rereg_mr - as vb_engine_reg_mr for a region that exists: 0, or -errno and it is as it
 * was. -EBUSY: windows are bound to it, or an access by another process does not end. */
int vb_engine_rereg_mr(struct vb_engine *engine, struct vb_mr *mr,
		       const struct vb_mr_change *change);
/* vb_engine_dereg_mr - withdraws, waits for accesses in flight, frees. Called outside. 0 or -EBUSY
 * (as above).
 */
int vb_engine_dereg_mr(struct vb_engine *engine, struct vb_mr *mr);

#endif
