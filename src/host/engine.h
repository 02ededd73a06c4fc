/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine.h - the live NIC's inside, shared by the files of this part.
 *
 *   engine.c   its life: get, put, enter, leave
 *   glue.c     what the core asks of its surroundings: resolve, tx, direct, qp_changed
 *   pump.c     packets in, the core's turn, packets out; polling
 *   hold.h     what waits a moment for company
 *   thread.c   the background thread
 *   last.c     the program ends when its own last thread does
 *   region.c   memory regions: check, register, publish, withdraw
 *   foreign.c  regions whose memory is another process's
 *   share*.c   whole pages of regions that peers map (VERBENA_SHARE)
 *   port.c     whether the interface is up
 *   raw.c      raw packets
 *   gsi.c      QP 1: management datagrams, the connection manager
 *   traffic.c  what passes the port, counted for the whole host
 *   look.c     a device's port and counters, whether it is alive here or not
 *   fork.c     fork and exit
 *
 *      program's threads --- enter/leave, poll_cq ---+
 *                                                    | lock
 *      background thread -----------------------------+--- nic (core) --- udp, local (carriers)
 *
 * All that is not atomic is read and written under the lock, except what never changes after
 * creation.
 */
#ifndef VB_HOST_ENGINE_H
#define VB_HOST_ENGINE_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "base/list.h"
#include "carrier/carrier.h"
#include "core/beside.h"
#include "host/hold.h"
#include "host/host.h"
#include "host/lock.h"
#include "host/settings.h"
#include "host/traffic.h"
#include "registry/registry.h"

#define VB_QP_BITMAP_WORDS ((1u << VB_MAX_QP_BITS) / 64)

/* enum vb_life - ALIVE until the process ends or the engine finds itself in a forked child. */
enum vb_life { VB_ALIVE, VB_IN_CHILD, VB_AT_EXIT };

/* enum vb_thread_state - where the background thread is. */
enum vb_thread_state {
	VB_THREAD_AWAKE,
	VB_THREAD_PARKED,  /* the program polls: sleeps a millisecond at a time, wake_fd only */
	VB_THREAD_BLOCKED, /* the carriers are armed: sleeps until one of them, wake_fd or
			      wake_at_ns */
};

struct vb_thread {
	pthread_t handle;
	bool started;
	bool armed; /* the carriers were armed and not yet disarmed */
	int epoll_fd, wake_fd;
	int alarm_fd;	   /* a timer that ends its park */
	uint64_t alarm_ns; /* under the lock: when, or when it was */
	atomic_bool up;	   /* it runs our code */
	atomic_bool stop;
	atomic_bool woken;	     /* wake_fd has been written and not yet read */
	atomic_bool wanted;	     /* the program is going to wait: do not park */
	_Atomic int state;	     /* enum vb_thread_state */
	_Atomic uint64_t wake_at_ns; /* while BLOCKED */
};

struct vb_port {
	int fd; /* rtnetlink's notices about the interface; -1: not to be had */
	enum vb_port_state state;
};

struct vb_engine {
	struct vb_device *device;
	struct vb_nic *nic;
	struct vb_registry *registry;
	struct vb_carrier *udp;
	struct vb_carrier *local;  /* NULL with VERBENA_LOCAL=0 */
	struct vb_raw_socket *raw; /* NULL without raw packet queue pairs */
	bool direct;		   /* VERBENA_DIRECT */
	bool share;		   /* VERBENA_SHARE, where it can have an effect */
	unsigned int references;   /* under the list's lock */
	pid_t pid;		   /* whose it is */
	_Atomic int life;	   /* enum vb_life */
	_Atomic uint32_t outside;  /* calls under way that use a carrier without the lock */

	/* what may come by UDP: paths over it, and UD queue pairs that take packets from anywhere
	 */
	uint32_t udp_paths, ud_qps;
	uint64_t ud_open[VB_QP_BITMAP_WORDS];
	uint64_t published[VB_QP_BITMAP_WORDS]; /* queue pairs that others may use directly */

	uint32_t random[64]; /* from getrandom(2); random_left of them are unused */
	unsigned int random_left;

	struct vb_thread thread;
	struct vb_port port;
	struct vb_gsi *gsi;
	struct vb_list foreign; /* memory of other processes that regions are over: foreign.h */
	struct vb_traffic traffic;

	alignas(64) struct vb_lock lock;
	bool shielded;	      /* the thread that is inside cannot be cancelled ... */
	int cancel_state;     /* ... and could before, or not */
	bool now_is_fresh;    /* nic->now_ns is this look's, or this entry's */
	bool gsi_busy;	      /* QP 1 may have a deadline */
	uint32_t quiet_polls; /* since something happened */
	uint32_t udp_quiet;   /* looks at the sockets since one found something */
	uint32_t udp_skipped; /* polls and pumps since the last look */
	uint32_t pumps;	      /* for posts */
	struct vb_hold hold;
	_Atomic uint32_t udp_looks;
	_Atomic uint32_t polls; /* what the thread watches to know that the program polls */
};

/* --- engine.c ---------------------------------------------------------------------------- */

/* vb_engine_answer - pump.c, outside: takes over what was posted beside the NIC, unless another
 * thread is inside, who will. */
void vb_engine_answer(struct vb_engine *engine);

/*
 * vb_engine_give - gives the lock back, and then sees to what was posted beside the NIC meanwhile
 * (core/beside.h). None is lost:
 *
 *      who posts                              who is inside
 *      1  rings                               3  gives the lock back
 *      2  tries the lock                      4  looks whether somebody rang
 *
 * All four are sequentially consistent, so they have one order. If 2 fails, it saw the lock held by
 * somebody, whose 3 comes after 2, and so after 1; his 4 finds the ring, or that it was answered.
 * Who finds it tries the lock in his turn: that is a 2 again.
 */
static inline void vb_engine_give(struct vb_engine *engine)
{
	engine->shielded = false;
	vb_lock_give(&engine->lock);
	if (vb_nic_is_rung(engine->nic))
		vb_engine_answer(engine);
}

/* vb_engine_shield - inside: a system call may follow. Programs cancel their threads (rping does),
 * which must not end before the unlock: to them the verbs are no cancellation points. Until the
 * shield stands nothing may be called that is one. */
static inline void vb_engine_shield(struct vb_engine *engine)
{
	if (engine->shielded)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &engine->cancel_state);
	engine->shielded = true;
}

/* vb_engine_unlock - what vb_engine_lock began ends. */
static inline void vb_engine_unlock(struct vb_engine *engine)
{
	const bool shielded = engine->shielded;
	const int state = engine->cancel_state;

	vb_engine_give(engine);
	if (shielded)
		pthread_setcancelstate(state, NULL);
}

/* vb_engine_took_lock - by those who take the lock as such, whom nobody cancels: the background
 * thread, fork, exit. vb_engine_give() ends it. */
static inline void vb_engine_took_lock(struct vb_engine *engine)
{
	engine->shielded = true;
	engine->now_is_fresh = false;
}

static inline bool vb_engine_lives(const struct vb_engine *engine)
{
	return atomic_load_explicit(&engine->life, memory_order_relaxed) == VB_ALIVE;
}

/* vb_engine_lock_bare - takes the lock of a living engine; false when it is not alive (nothing is
 * held). Without the shield. */
static inline bool vb_engine_lock_bare(struct vb_engine *engine)
{
	if (!vb_engine_lives(engine))
		return false;
	vb_lock_take(&engine->lock);
	engine->now_is_fresh = false;
	if (vb_engine_lives(engine))
		return true;
	vb_engine_unlock(engine);
	return false;
}

/* vb_engine_lock - the same with the shield. */
static inline bool vb_engine_lock(struct vb_engine *engine)
{
	if (!vb_engine_lock_bare(engine))
		return false;
	vb_engine_shield(engine);
	return true;
}

/* vb_engine_try_bare - the same, but false at once where another thread is inside. */
static inline bool vb_engine_try_bare(struct vb_engine *engine)
{
	if (!vb_engine_lives(engine) || !vb_lock_try(&engine->lock))
		return false;
	engine->now_is_fresh = false;
	if (vb_engine_lives(engine))
		return true;
	vb_engine_unlock(engine);
	return false;
}

/* vb_engine_refresh - inside: tells the NIC the time. */
static inline void vb_engine_refresh(struct vb_engine *engine)
{
	engine->nic->now_ns = vb_engine_now();
	engine->now_is_fresh = true;
}

/* --- gsi.c ------------------------------------------------------------------------------- */
/* vb_gsi_open - 0 or -ENOMEM. */
int vb_gsi_open(struct vb_engine *engine) VB_MUST_USE;
/* vb_gsi_close - with the lock, or alone: tells connected peers, waiting for room at most that
 * long since the last one left, and frees all. */
void vb_gsi_close(struct vb_engine *engine, uint64_t patience_ns);
#define VB_FAREWELL_NS (100ull * 1000 * 1000) /* when a process or its engine ends */
/* vb_gsi_drop_in_child - tells nobody. */
void vb_gsi_drop_in_child(struct vb_engine *engine);
/* vb_gsi_rx - inside: a packet to QP 1. */
void vb_gsi_rx(struct vb_engine *engine, const struct vb_rx *packet);
/* vb_gsi_peer_lost - inside: a watched queue pair failed since its peer is silent. */
void vb_gsi_peer_lost(struct vb_engine *engine, uint32_t qpn);
/* vb_gsi_deadline, vb_gsi_run - inside: as vb_nic_deadline and vb_nic_run. */
uint64_t vb_gsi_deadline(const struct vb_engine *engine);
void vb_gsi_run(struct vb_engine *engine);

struct vb_gsi_counters {
	uint64_t rx_mads;
	uint64_t rx_unwanted; /* of no agent of this process */
	uint64_t tx_mads;
	uint64_t tx_dropped; /* refused by the carrier, or waited for too long */
	uint32_t queued;     /* now */
};
void vb_gsi_read_counters(const struct vb_engine *engine, struct vb_gsi_counters *out);

/* vb_engine_due - inside: when the thread must run at the latest; 0: something is left to do now.
 */
static inline uint64_t vb_engine_due(const struct vb_engine *engine)
{
	uint64_t due;

	if (!vb_list_is_empty(&engine->nic->ready))
		return 0;
	due = vb_nic_deadline(engine->nic);
	return engine->gsi_busy ? VB_MIN(due, vb_gsi_deadline(engine)) : due;
}

extern struct vb_engine *vb_engines[VB_MAX_DEVICES]; /* by device index, under vb_engines_lock */
extern pthread_mutex_t vb_engines_lock;

/* --- glue.c ------------------------------------------------------------------------------ */
extern const struct vb_nic_ops vb_engine_nic_ops;
void vb_engine_deliver(void *env, const struct vb_rx *rx); /* a vb_deliver_fn */
bool vb_engine_is_next(void *env, const uint8_t *packet);  /* a vb_udp_is_next_fn */
/* vb_engine_resolve - as vb_nic_ops.resolve, but what is resolved does not count as a path over
 * which packets may come, and needs no release. */
int vb_engine_resolve(struct vb_engine *engine, const struct vb_ah_attr *ah,
		      struct vb_path *path) VB_MUST_USE;

/* --- region.c ---------------------------------------------------------------------------- */
/* vb_engine_publish_mr - inside: other processes of the host may use the region or window directly.
 */
void vb_engine_publish_mr(struct vb_engine *engine, const struct vb_mr *mr);
/* vb_engine_withdraw_mr - ends that, and waits: bounded, then -EBUSY. */
int vb_engine_withdraw_mr(struct vb_engine *engine, const struct vb_mr *mr);

/* --- pump.c ------------------------------------------------------------------------------ */
/* vb_engine_run - inside: looks at the carriers (at the sockets if told to), lets the NIC run and
 * flushes, until nothing is left or a bound is reached. */
void vb_engine_run(struct vb_engine *engine, bool look_at_udp);
/* vb_engine_look - inside, by the thread: looks at the carriers. True: the acknowledgement of what
 * it found waits. *again: there may be more. */
bool vb_engine_look(struct vb_engine *engine, bool *again);
/* vb_engine_holds - inside: what waits for company may do so for a moment yet. */
bool vb_engine_holds(const struct vb_engine *engine);
/* vb_engine_release - inside: what waits for company leaves now. */
void vb_engine_release(struct vb_engine *engine);

/* --- fork.c ------------------------------------------------------------------------------ */
extern atomic_bool vb_end_is_heard; /* vb_host_hears_its_end() was called */

/* --- thread.c ---------------------------------------------------------------------------- */
int vb_thread_init(struct vb_engine *engine) VB_MUST_USE;
/* vb_thread_start - once; when it fails the engine lives by the program's calls alone. */
void vb_thread_start(struct vb_engine *engine);
/* vb_thread_settle - waits until a thread that was started runs our code. */
void vb_thread_settle(struct vb_engine *engine);
/* vb_thread_stop - outside; waits for its end. */
void vb_thread_stop(struct vb_engine *engine);
void vb_thread_finish(struct vb_engine *engine);
void vb_thread_wake(struct vb_engine *engine);
/* vb_thread_summon - outside: it takes a turn soon, whatever it is at. */
void vb_thread_summon(struct vb_engine *engine);
/* vb_thread_alarm - inside: a thread that is PARKED looks up VB_ALARM_NS from now, or a little
 * before. */
void vb_thread_alarm(struct vb_engine *engine, uint64_t now_ns);

/* vb_thread_notice - inside, before leaving: the thread sleeps, perhaps longer than it may now. */
static inline void vb_thread_notice(struct vb_engine *engine)
{
	struct vb_thread *thread = &engine->thread;
	uint64_t due;

	if (atomic_load_explicit(&thread->state, memory_order_relaxed) != VB_THREAD_BLOCKED)
		return;
	due = vb_engine_due(engine);
	if (due < atomic_load_explicit(&thread->wake_at_ns, memory_order_relaxed)) {
		atomic_store_explicit(&thread->wake_at_ns, due, memory_order_relaxed);
		vb_engine_shield(engine);
		vb_thread_wake(engine);
	}
}

/* vb_engine_notice_and_unlock - vb_engine_leave, where it is to be no call. */
static inline void vb_engine_notice_and_unlock(struct vb_engine *engine)
{
	vb_thread_notice(engine);
	vb_engine_unlock(engine);
}

/* --- port.c ------------------------------------------------------------------------------ */
/* vb_port_open - before the thread starts. Without a socket the port counts as up. */
void vb_port_open(struct vb_engine *engine);
/* vb_port_close - also in a forked child, for its copy. */
void vb_port_close(struct vb_engine *engine);
/* vb_port_look - inside: takes a bounded number of notices and raises events. One system call when
 * there is none. */
void vb_port_look(struct vb_engine *engine);
/* vb_port_of_interface - asked directly, of a device that may not be alive here. */
enum vb_port_state vb_port_of_interface(const char *ifname);
/* vb_port_read - what a datagram of rtnetlink's says about the interface; *state stays when it says
 * nothing. */
void vb_port_read(const uint8_t *bytes, size_t length, uint32_t ifindex, enum vb_port_state *state);

/* --- fork.c ------------------------------------------------------------------------------ */
void vb_fork_prepare_once(void);

#endif
