/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * multicast.c - rdma_join_multicast(3), rdma_leave_multicast(3).
 *
 * On RoCE v2 no subnet administrator has to be asked: the group's GID is its IP address, and being
 * a member is being attached (ibv_attach_mcast(3)). The join is answered at once; its event brings
 * what a sender needs, and the queue pair is attached when the program takes it.
 */
#include <stdlib.h>
#include <string.h>

#include "rdmacm/cma.h"

#define MULTICAST_QPN 0xffffffu

static void describe_group(const struct vb_id *id, const struct vb_group *group,
			   struct vb_id_event *event)
{
	struct vb_ah_attr to = {
		.sgid_index = (uint8_t)id->sgid_index,
		.hop_limit = VB_CMA_HOP_LIMIT,
		.traffic_class = id->tos,
	};
	struct rdma_ud_param *ud = &event->pub.param.ud;

	memcpy(&to.dgid, group->mgid.raw, sizeof(to.dgid));
	vb_ah_attr_to_ibv(&to, &ud->ah_attr);
	ud->qp_num = MULTICAST_QPN;
	ud->qkey = RDMA_UDP_QKEY;
	ud->private_data = group->context;
}

static int join(struct vb_id *id, const struct sockaddr *address, bool send_only, void *context)
{
	enum vb_id_state state = vb_id_state(id);
	struct vb_endpoint endpoint;
	struct vb_id_event *event;
	struct vb_group *group;
	int rc = vb_endpoint_read(&endpoint, address);

	if (rc)
		return rc;
	if (!id->adapter || !vb_id_is_datagram(id) ||
	    (state != VB_ID_BOUND && state != VB_ID_ADDRESS && state != VB_ID_ROUTE))
		return -EINVAL;
	group = calloc(1, sizeof(*group));
	event = vb_id_event_new(id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	if (!group || !event) {
		free(group);
		free(event);
		return -ENOMEM;
	}
	memcpy(&group->address, address, vb_sockaddr_size(address));
	memcpy(group->mgid.raw, &endpoint.address, sizeof(group->mgid.raw));
	group->context = context;
	group->send_only = send_only;
	event->group = group;
	describe_group(id, group, event);
	vb_list_append(&id->groups, &group->link);
	pthread_mutex_lock(&vb_cma_lock);
	vb_channel_raise(id->channel, event);
	pthread_mutex_unlock(&vb_cma_lock);
	return 0;
}

static int join_and_wait(struct rdma_cm_id *pub, const struct sockaddr *address, bool send_only,
			 void *context)
{
	struct vb_id *id = vb_id(pub);
	int rc;

	pthread_mutex_lock(&id->busy);
	rc = join(id, address, send_only, context);
	pthread_mutex_unlock(&id->busy);
	return rc ? vb_cma_result(rc) : vb_id_complete(id);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *address, void *context)
{
	return join_and_wait(id, address, false, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
			   void *context)
{
	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return vb_cma_result(-ENOTSUP);
	if (!(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) ||
	    !(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) ||
	    attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return vb_cma_result(-EINVAL);
	return join_and_wait(id, attr->addr,
			     attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context);
}

int vb_group_joined(struct vb_id *id, struct vb_group *group)
{
	int rc = 0;

	pthread_mutex_lock(&id->busy);
	if (id->pub.qp && !group->send_only)
		rc = ibv_attach_mcast(id->pub.qp, &group->mgid, 0);
	group->attached = id->pub.qp && !group->send_only && rc == 0;
	pthread_mutex_unlock(&id->busy);
	return rc;
}

static void leave(struct vb_id *id, struct vb_group *group)
{
	struct vb_list events, *link;

	if (group->attached && id->pub.qp)
		ibv_detach_mcast(id->pub.qp, &group->mgid, 0);
	vb_list_init(&events);
	pthread_mutex_lock(&vb_cma_lock);
	vb_channel_withdraw(id, group, &events);
	pthread_mutex_unlock(&vb_cma_lock);
	while ((link = vb_list_pop(&events)))
		free(vb_list_entry(link, struct vb_id_event, link));
}

static struct vb_group *find(struct vb_id *id, const struct sockaddr *address, size_t size)
{
	struct vb_list *link, *next;

	vb_list_for_each(link, next, &id->groups)
	{
		struct vb_group *group = vb_list_entry(link, struct vb_group, link);

		if (memcmp(&group->address, address, size) == 0)
			return group;
	}
	return NULL;
}

int rdma_leave_multicast(struct rdma_cm_id *pub, struct sockaddr *address)
{
	size_t size = vb_sockaddr_size(address);
	struct vb_id *id = vb_id(pub);
	struct vb_group *group;

	if (size == 0)
		return vb_cma_result(-EINVAL);
	pthread_mutex_lock(&id->busy);
	group = find(id, address, size);
	if (group) {
		vb_list_remove(&group->link);
		leave(id, group);
	}
	pthread_mutex_unlock(&id->busy);
	if (!group)
		return vb_cma_result(-EADDRNOTAVAIL);
	if (id->sync && pub->event) {
		rdma_ack_cm_event(pub->event);
		pub->event = NULL;
	}
	vb_group_wait_acknowledged(group);
	free(group);
	return 0;
}

void vb_id_leave_groups(struct vb_id *id)
{
	struct vb_list *link;

	while ((link = vb_list_pop(&id->groups))) {
		struct vb_group *group = vb_list_entry(link, struct vb_group, link);

		leave(id, group);
		free(group);
	}
}
