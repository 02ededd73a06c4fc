/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * newer.c - public calls of releases newer than the header that this is built with (node
 * RDMACM_1.4), for programs that were built with theirs. The header may have them: so they have
 * other names here, and their own where programs look for them.
 *
 * An address that a subnet administrator knows by the name of a service is InfiniBand's: RoCE has
 * nobody to ask.
 */
#include <string.h>

#include "rdmacm/cma.h"

#define NEWER(name) __asm__(name) __attribute__((visibility("default")))
#define EVENT_USER 18 /* RDMA_CM_EVENT_USER */

int resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
		     const struct rdma_addrinfo *hints) NEWER("rdma_resolve_addrinfo");
int query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info) NEWER("rdma_query_addrinfo");
int write_cm_event(struct rdma_cm_id *id, int event, int status, uint64_t argument)
	NEWER("rdma_write_cm_event");

int resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
		     const struct rdma_addrinfo *hints)
{
	return vb_cma_result(id ? -EOPNOTSUPP : -EINVAL);
}

int query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info)
{
	return vb_cma_result(id && info ? -ENOENT : -EINVAL); /* nothing was resolved */
}

/* The argument lies where other events have their parameters. */
int write_cm_event(struct rdma_cm_id *pub, int type, int status, uint64_t argument)
{
	struct vb_id_event *event;
	struct vb_id *id;

	if (!pub || type != EVENT_USER)
		return vb_cma_result(-EINVAL);
	id = vb_id(pub);
	event = vb_id_event_new(id, (enum rdma_cm_event_type)type, status);
	if (!event)
		return vb_cma_result(-ENOMEM);
	memcpy(&event->pub.param, &argument, sizeof(argument));
	pthread_mutex_lock(&vb_cma_lock);
	vb_channel_raise(id->channel, event);
	pthread_mutex_unlock(&vb_cma_lock);
	return 0;
}
