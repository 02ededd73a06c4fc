/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * channel.c - completion channels (ibv_create_comp_channel(3), ibv_get_cq_event(3)).
 *
 * Who waits for an event has two threads to be scheduled before it gets one: ours, for the packet,
 * and its own. So a wait begins with looking by itself, for LOOK_NS, and is mostly over before
 * that: a peer that answers at once does so in a tenth of it. Where it was in vain a few times in a
 * row, only one wait in TRY_EVERY begins so.
 *
 * While waits mostly end so, arming a CQ leaves the thread parked, for a millisecond at most. A
 * program that sleeps in poll(2) on the descriptor instead, and comes when the event is there, soon
 * has the thread at once again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "verbs/face.h"

#define LOOK_NS (200u * 1000)
#define CREDIT 16u
#define CREDIT_AT_FIRST 4u
#define TRY_EVERY 16u

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct vb_face_channel *channel = calloc(1, sizeof(*channel));
	int error;

	if (!channel) {
		errno = ENOMEM;
		return NULL;
	}
	error = vb_event_queue_init(&channel->queue);
	if (error) {
		free(channel);
		errno = -error;
		return NULL;
	}
	channel->ibv.context = context;
	channel->ibv.fd = channel->queue.fd;
	channel->credit = CREDIT_AT_FIRST;
	return &channel->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct vb_face_channel *channel = vb_container_of(ibv, struct vb_face_channel, ibv);

	if (__atomic_load_n(&ibv->refcnt, __ATOMIC_ACQUIRE) != 0)
		return EBUSY;
	vb_event_queue_finish(&channel->queue);
	free(channel);
	return 0;
}

bool vb_face_looks_itself(const struct ibv_comp_channel *ibv)
{
	const struct vb_face_channel *channel;

	if (!ibv)
		return false;
	channel = vb_container_of(ibv, const struct vb_face_channel, ibv);
	return atomic_load_explicit(&channel->credit, memory_order_relaxed) > CREDIT_AT_FIRST;
}

static bool event_waits(void *queue)
{
	return vb_event_waits(queue);
}

/* look - waits for the event without sleeping. False: it did not come, or that is not worth trying.
 */
static bool look(struct vb_face_channel *channel, struct vb_engine *engine)
{
	uint32_t credit = atomic_load_explicit(&channel->credit, memory_order_relaxed);
	uint32_t waits = atomic_fetch_add_explicit(&channel->waits, 1, memory_order_relaxed);
	int flags;
	bool found;

	if (credit == 0 && waits % TRY_EVERY != 0)
		return false;
	flags = fcntl(channel->queue.fd, F_GETFL);
	if (flags < 0 || flags & O_NONBLOCK)
		return false;
	found = vb_engine_look_for(engine, event_waits, &channel->queue, LOOK_NS);
	atomic_store_explicit(&channel->credit, found ? CREDIT : credit / 2, memory_order_relaxed);
	return found;
}

/* found_there - the program may have waited for it elsewhere. */
static void found_there(struct vb_face_channel *channel)
{
	uint32_t credit = atomic_load_explicit(&channel->credit, memory_order_relaxed);

	if (credit > CREDIT_AT_FIRST)
		atomic_store_explicit(&channel->credit, credit - 1, memory_order_relaxed);
}

/* sleep_soon - the last look before the thread takes over. */
static void sleep_soon(struct vb_engine *engine)
{
	if (!vb_face_enter(engine))
		return;
	vb_engine_pump(engine);
	vb_engine_wake_thread(engine);
	vb_engine_leave(engine);
}

int ibv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq, void **cq_context)
{
	struct vb_face_channel *channel = vb_container_of(ibv, struct vb_face_channel, ibv);
	struct vb_engine *engine = vb_face_context(ibv->context)->engine;
	struct vb_event_source *source;
	struct vb_face_cq *face;

	if (vb_event_waits(&channel->queue))
		found_there(channel);
	else if (engine && !look(channel, engine))
		sleep_soon(engine);
	source = vb_event_take(&channel->queue);
	if (!source)
		return -1;
	face = vb_container_of(source, struct vb_face_cq, completion);
	*cq = ibv_cq_ex_to_cq(&face->ex);
	*cq_context = face->ex.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
