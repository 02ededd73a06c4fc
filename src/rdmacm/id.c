/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * id.c - the life of an id (rdma_create_id(3), rdma_destroy_id(3), rdma_migrate_id(3)).
 *
 * An id goes in this order: the connection manager forgets it, so that no event comes any more; its
 * events that nobody took vanish, with the requests in them; the program acknowledges those that it
 * took; the rest is freed.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "rdmacm/cma.h"

#define PSN_MASK 0xffffffu

enum vb_id_state vb_id_state(struct vb_id *id)
{
	enum vb_id_state state;

	pthread_mutex_lock(&vb_cma_lock);
	state = id->state;
	pthread_mutex_unlock(&vb_cma_lock);
	return state;
}

void vb_id_set_state(struct vb_id *id, enum vb_id_state state)
{
	pthread_mutex_lock(&vb_cma_lock);
	id->state = state;
	pthread_mutex_unlock(&vb_cma_lock);
}

static uint32_t random_psn(void)
{
	uint32_t psn = 0;

	if (getrandom(&psn, sizeof(psn), GRND_NONBLOCK) != sizeof(psn))
		psn = (uint32_t)(vb_engine_now() >> 8);
	return psn & PSN_MASK;
}

struct vb_id *vb_id_new(struct vb_channel *channel, void *context, enum rdma_port_space ps,
			enum ibv_qp_type type)
{
	struct vb_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	if (!channel) {
		channel = vb_channel_create();
		if (!channel) {
			free(id);
			return NULL;
		}
		id->sync = true;
	}
	id->channel = channel;
	id->pub.channel = &channel->pub;
	id->pub.context = context;
	id->pub.ps = ps;
	id->pub.qp_type = type;
	id->rq_psn = random_psn();
	pthread_mutex_init(&id->busy, NULL);
	vb_list_init(&id->binding.link);
	vb_list_init(&id->groups);
	return id;
}

static bool is_port_space(enum rdma_port_space ps)
{
	return ps == RDMA_PS_TCP || ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB || ps == RDMA_PS_IB;
}

int vb_id_create(struct vb_id **out, struct vb_channel *channel, void *context,
		 enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct vb_adapter *adapters;
	int count = vb_adapters(&adapters);

	if (count < 0)
		return count;
	if (!is_port_space(ps))
		return -EINVAL;
	*out = vb_id_new(channel, context, ps, type);
	return *out ? 0 : -ENOMEM;
}

int rdma_create_id(struct rdma_event_channel *pub, struct rdma_cm_id **out, void *context,
		   enum rdma_port_space ps)
{
	struct vb_channel *channel = pub ? vb_container_of(pub, struct vb_channel, pub) : NULL;
	bool datagram = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;
	struct vb_id *id;
	int rc = vb_id_create(&id, channel, context, ps, datagram ? IBV_QPT_UD : IBV_QPT_RC);

	if (rc == 0)
		*out = &id->pub;
	return vb_cma_result(rc);
}

/* The connection manager forgets the id; a peer is told what its state asks for. */
static void leave_cm(struct vb_id *id)
{
	if (id->conn && vb_engine_enter(id->engine)) {
		vb_cm_conn_destroy(id->conn, vb_engine_now());
		vb_engine_leave(id->engine);
	}
	id->conn = NULL;
	if (!id->binding.listening)
		return;
	for (unsigned int i = 0; i < VB_MAX_DEVICES; i++) {
		struct vb_adapter *list;

		if (!id->listeners[i])
			continue;
		vb_adapters(&list);
		if (vb_list_is_linked(&id->binding.link) && vb_engine_enter(list[i].engine)) {
			vb_cm_unlisten(id->listeners[i]);
			vb_engine_leave(list[i].engine);
		}
		id->listeners[i] = NULL;
	}
}

static void forget_events(struct vb_id *id)
{
	struct vb_list events, *link;

	vb_list_init(&events);
	pthread_mutex_lock(&vb_cma_lock);
	vb_channel_withdraw(id, NULL, &events);
	pthread_mutex_unlock(&vb_cma_lock);
	while ((link = vb_list_pop(&events))) {
		struct vb_id_event *event = vb_list_entry(link, struct vb_id_event, link);

		if (event->pub.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			vb_id_destroy(vb_id(event->pub.id));
		free(event);
	}
}

void vb_id_destroy(struct vb_id *id)
{
	pthread_mutex_lock(&id->busy);
	vb_id_set_state(id, VB_ID_DYING);
	leave_cm(id);
	vb_port_release(id);
	pthread_mutex_unlock(&id->busy);
	forget_events(id);
	if (id->pub.event)
		rdma_ack_cm_event(id->pub.event);
	vb_id_wait_acknowledged(id);
	vb_id_leave_groups(id);
	if (id->sync)
		vb_channel_destroy(id->channel);
	pthread_mutex_destroy(&id->busy);
	free(id->pub.route.path_rec);
	free(id->request_qp);
	free(id->connect_data);
	free(id);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	vb_id_destroy(vb_id(id));
	return 0;
}

static void leave_own_channel(struct vb_id *id, struct vb_channel *old)
{
	if (id->pub.event) {
		rdma_ack_cm_event(id->pub.event);
		id->pub.event = NULL;
	}
	vb_channel_destroy(old);
}

int vb_id_own_channel(struct vb_id *id)
{
	struct vb_channel *channel = vb_channel_create();

	if (!channel)
		return -errno;
	pthread_mutex_lock(&vb_cma_lock);
	vb_channel_move(id, channel);
	pthread_mutex_unlock(&vb_cma_lock);
	id->sync = true;
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *pub, struct rdma_event_channel *to)
{
	struct vb_id *id = vb_id(pub);
	struct vb_channel *old;
	bool was_sync;
	int rc = 0;

	if (!to && id->sync)
		return vb_cma_result(-EINVAL);
	pthread_mutex_lock(&id->busy);
	old = id->channel;
	was_sync = id->sync;
	if (to) {
		pthread_mutex_lock(&vb_cma_lock);
		vb_channel_move(id, vb_container_of(to, struct vb_channel, pub));
		pthread_mutex_unlock(&vb_cma_lock);
		id->sync = false;
	} else {
		rc = vb_id_own_channel(id);
	}
	pthread_mutex_unlock(&id->busy);
	if (rc)
		return vb_cma_result(rc);
	if (was_sync)
		leave_own_channel(id, old);
	vb_id_wait_acknowledged(id);
	return 0;
}

static int event_error(const struct rdma_cm_event *event)
{
	if (event->status == 0)
		return 0;
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return -ECONNREFUSED;
	return event->status < 0 ? event->status : -event->status;
}

int vb_id_complete(struct vb_id *id)
{
	if (!id->sync)
		return 0;
	if (id->pub.event) {
		rdma_ack_cm_event(id->pub.event);
		id->pub.event = NULL;
	}
	if (rdma_get_cm_event(id->pub.channel, &id->pub.event))
		return -1;
	return vb_cma_result(event_error(id->pub.event));
}
