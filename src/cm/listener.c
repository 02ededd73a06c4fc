/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * listener.c - who waits for REQ and SIDR_REQ of a service.
 *
 * Several listeners of one service ID may differ in the private data that they ask for, which is
 * the destination address in the RDMA IP CM service; the one that asks for most takes the request.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm_private.h"

#define IP_VERSION_AT 1 /* its upper half */

static uint64_t hash_service(const struct vb_cm *cm, uint64_t service_id)
{
	return vb_cm_hash(cm->secret, service_id, 0);
}

static struct vb_cm_listener *next_of(struct vb_cm_entry *entry, uint64_t service_id)
{
	for (; entry; entry = vb_cm_table_next(entry)) {
		struct vb_cm_listener *l = vb_container_of(entry, struct vb_cm_listener, entry);

		if (l->service_id == service_id)
			return l;
	}
	return NULL;
}

static struct vb_cm_listener *first_of(struct vb_cm *cm, uint64_t service_id)
{
	return next_of(vb_cm_table_first(&cm->services, hash_service(cm, service_id)), service_id);
}

static bool is_same(const struct vb_cm_match *a, const struct vb_cm_match *b)
{
	return a->len == b->len && a->ip_version == b->ip_version &&
	       (!a->len || (a->at == b->at && memcmp(a->bytes, b->bytes, a->len) == 0));
}

static bool fits(const struct vb_cm_match *match, const uint8_t *private_data, size_t len)
{
	if (match->ip_version && private_data[IP_VERSION_AT] >> 4 != match->ip_version)
		return false;
	return (size_t)match->at + match->len <= len &&
	       memcmp(private_data + match->at, match->bytes, match->len) == 0;
}

static unsigned int weight(const struct vb_cm_match *match)
{
	return 2u * match->len + (match->ip_version != 0);
}

struct vb_cm_listener *vb_cm_find_listener(struct vb_cm *cm, uint64_t service_id,
					   const uint8_t *private_data, size_t len)
{
	struct vb_cm_listener *best = NULL;
	struct vb_cm_listener *l = first_of(cm, service_id);

	for (; l; l = next_of(vb_cm_table_next(&l->entry), service_id)) {
		if (fits(&l->match, private_data, len) &&
		    (!best || weight(&l->match) > weight(&best->match)))
			best = l;
	}
	return best;
}

int vb_cm_listen(struct vb_cm *cm, uint64_t service_id, const struct vb_cm_match *match, void *user,
		 struct vb_cm_listener **out)
{
	const struct vb_cm_match any = {0};
	struct vb_cm_listener *l;

	if (!match)
		match = &any;
	if (match->len > sizeof(match->bytes) || match->at + match->len > (int)VB_CM_REQ_PRIVATE ||
	    match->ip_version > 15)
		return -EINVAL;
	for (l = first_of(cm, service_id); l;
	     l = next_of(vb_cm_table_next(&l->entry), service_id)) {
		if (is_same(&l->match, match))
			return -EADDRINUSE;
	}
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->cm = cm;
	l->service_id = service_id;
	l->match = *match;
	l->user = user;
	vb_cm_table_add(&cm->services, &l->entry, hash_service(cm, service_id));
	vb_list_append(&cm->listeners, &l->link);
	cm->counters.listeners++;
	*out = l;
	return 0;
}

void vb_cm_unlisten(struct vb_cm_listener *listener)
{
	if (!listener)
		return;
	vb_cm_table_remove(&listener->cm->services, &listener->entry);
	vb_list_remove(&listener->link);
	listener->cm->counters.listeners--;
	free(listener);
}

void *vb_cm_listener_user(const struct vb_cm_listener *listener)
{
	return listener->user;
}
