/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork.c - fork and exit.
 *
 * A forked child has copies of everything and owns none of it: the slot, the sockets and the rings
 * are its parent's. So the child closes its copies, touching nothing shared, and from then on
 * entering such an engine fails; vb_engine_get() makes it a new one, with a slot of its own. Fork
 * happens with every engine's lock held, so that the copy is one between two calls; the thread is
 * not copied. Pages that are shared with peers (share.h) are the child's own from here on. A thread
 * that is just being started may hold locks of the library that starts it (a
 * sanitizer's allocator keeps them locked in the child), so it is waited for.
 *
 * At exit, with engines left, the process tells the peers that it is connected with, gives its slot
 * and its place in the port's group back politely, where nobody holds the lock. If that fails the
 * kernel's locks tell the others soon enough. Other threads may still run: they find the engine not
 * alive. It is a destructor and not atexit(3), so that the program's own handlers come first.
 *
 * A process that ends without handlers (_exit, exec) tells nobody, but what waits for company
 * (hold.h) leaves: the program has seen the message whose acknowledgement that is.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "carrier/local.h"
#include "carrier/raw.h"
#include "carrier/udp.h"
#include "host/engine.h"
#include "host/share.h"

#define EXIT_PATIENCE_NS (100ull * 1000 * 1000)
#define ENDING_PATIENCE_NS (10ull * 1000 * 1000) /* a signal handler may be in its own way */

atomic_bool vb_end_is_heard;

static void before_fork(void)
{
	pthread_mutex_lock(&vb_engines_lock);
	for (unsigned int i = 0; i < VB_MAX_DEVICES; i++) {
		if (!vb_engines[i])
			continue;
		vb_thread_settle(vb_engines[i]);
		vb_lock_take(&vb_engines[i]->lock);
		vb_engine_took_lock(vb_engines[i]);
		if (atomic_load(&vb_engines[i]->life) == VB_ALIVE)
			vb_engine_release(vb_engines[i]);
	}
	vb_share_before_fork();
}

static void after_fork_in_parent(void)
{
	vb_share_after_fork_in_parent();
	for (unsigned int i = 0; i < VB_MAX_DEVICES; i++)
		if (vb_engines[i])
			vb_engine_give(vb_engines[i]);
	pthread_mutex_unlock(&vb_engines_lock);
}

static void drop(struct vb_engine *engine)
{
	atomic_store(&engine->life, VB_IN_CHILD);
	vb_thread_finish(engine);
	vb_gsi_drop_in_child(engine);
	vb_port_close(engine);
	vb_raw_destroy(engine->raw);
	engine->raw = NULL;
	vb_udp_drop_in_child(engine->udp);
	if (engine->local)
		vb_local_drop_in_child(engine->local);
	vb_registry_drop_in_child(engine->registry);
	/* who waited for it was another thread, and is not in the child */
	atomic_store(&engine->lock.word, 0);
}

static void after_fork_in_child(void)
{
	vb_share_after_fork_in_child();
	for (unsigned int i = 0; i < VB_MAX_DEVICES; i++) {
		if (vb_engines[i])
			drop(vb_engines[i]);
		vb_engines[i] = NULL;
	}
	pthread_mutex_unlock(&vb_engines_lock);
}

static void register_handlers(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void vb_fork_prepare_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_handlers);
}

static void depart(struct vb_engine *engine)
{
	if (!vb_lock_try(&engine->lock) && !vb_lock_wait(&engine->lock, EXIT_PATIENCE_NS))
		return;
	vb_engine_took_lock(engine);
	if (vb_nic_is_rung(engine->nic)) { /* posted before the end */
		vb_engine_refresh(engine);
		vb_nic_answer(engine->nic);
		vb_engine_run(engine, false);
	}
	vb_engine_release(engine);
	atomic_store(&engine->life, VB_AT_EXIT);
	vb_gsi_close(engine, VB_FAREWELL_NS);
	vb_traffic_publish(engine);
	if (atomic_load(&engine->outside) == 0) {
		if (engine->local)
			engine->local->ops->destroy(engine->local);
		engine->udp->ops->destroy(engine->udp);
		vb_registry_leave(engine->registry);
	}
	vb_engine_give(engine);
}

static void release_at_end(struct vb_engine *engine)
{
	if (atomic_load(&engine->life) != VB_ALIVE || engine->pid != getpid() ||
	    !vb_hold_waits(&engine->hold))
		return;
	if (!vb_lock_try(&engine->lock) && !vb_lock_wait(&engine->lock, ENDING_PATIENCE_NS))
		return;
	vb_engine_took_lock(engine);
	vb_engine_release(engine);
	vb_engine_give(engine);
}

void vb_host_ending(void)
{
	if (pthread_mutex_trylock(&vb_engines_lock) != 0)
		return;
	for (unsigned int i = 0; i < VB_MAX_DEVICES; i++)
		if (vb_engines[i])
			release_at_end(vb_engines[i]);
	pthread_mutex_unlock(&vb_engines_lock);
}

void vb_host_hears_its_end(void)
{
	atomic_store(&vb_end_is_heard, true);
}

__attribute__((destructor)) static void at_exit(void)
{
	if (pthread_mutex_trylock(&vb_engines_lock) != 0)
		return;
	for (unsigned int i = 0; i < VB_MAX_DEVICES; i++)
		if (vb_engines[i] && atomic_load(&vb_engines[i]->life) == VB_ALIVE)
			depart(vb_engines[i]);
	pthread_mutex_unlock(&vb_engines_lock);
}
