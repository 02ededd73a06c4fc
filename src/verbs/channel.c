/* SPDX-License-Identifier: BSD-2-Clause */
/* channel.c - completion channels (ibv_create_comp_channel(3), ibv_get_cq_event(3)). */
#include <errno.h>
#include <stdlib.h>

#include "verbs/face.h"

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

int ibv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq, void **cq_context)
{
	struct vb_face_channel *channel = vb_container_of(ibv, struct vb_face_channel, ibv);
	struct vb_event_source *source;
	struct vb_face_cq *face;

	if (!vb_event_waits(&channel->queue)) {
		struct vb_engine *engine = vb_face_context(ibv->context)->engine;

		/* One look ourselves, then the thread takes over while we sleep. */
		if (vb_face_enter(engine)) {
			vb_engine_pump(engine);
			vb_engine_wake_thread(engine);
			vb_engine_leave(engine);
		}
	}
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
