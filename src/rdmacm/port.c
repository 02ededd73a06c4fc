/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * port.c - which ids of this process hold which ports. Against other processes of the host the
 * registry holds them (registry/ports.h), once for each claim.
 *
 * Two ids may hold one port of a port space where their devices, families or addresses differ, or
 * where both said REUSEADDR and neither listens.
 */
#include <string.h>

#include "rdmacm/cma.h"

#define CHOICES 64 /* of ephemeral ports, before giving up */

static pthread_mutex_t ports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list bound = {&bound, &bound};

void vb_ports_drop_in_child(void)
{
	pthread_mutex_init(&ports_lock, NULL);
	while (vb_list_pop(&bound))
		;
}

static struct vb_engine *engine_of(unsigned int adapter)
{
	struct vb_adapter *list;

	vb_adapters(&list);
	return list[adapter].engine;
}

static bool overlap(const struct vb_binding *a, const struct vb_binding *b)
{
	if (a->at.port != b->at.port || !(a->adapters & b->adapters) ||
	    !(a->families & b->families))
		return false;
	return a->at.any || b->at.any ||
	       memcmp(&a->at.address, &b->at.address, sizeof(a->at.address)) == 0;
}

static bool conflicts(const struct vb_id *id, const struct vb_binding *wanted, bool reuse)
{
	struct vb_list *link, *next;

	vb_list_for_each(link, next, &bound)
	{
		const struct vb_id *other = vb_list_entry(link, struct vb_id, binding.link);

		if (other == id || other->pub.ps != id->pub.ps || !overlap(&other->binding, wanted))
			continue;
		if (!reuse || !other->reuse_address || other->binding.listening)
			return true;
	}
	return false;
}

static void release_claims(const struct vb_id *id, const struct vb_binding *binding,
			   unsigned int adapters)
{
	for (unsigned int i = 0; i < VB_MAX_DEVICES; i++)
		if (adapters & 1u << i)
			vb_engine_port_release(engine_of(i), (uint16_t)id->pub.ps,
					       binding->families, binding->at.port);
}

/* On all its devices or on none; the first may choose the port. */
static int claim(const struct vb_id *id, struct vb_binding *binding)
{
	unsigned int claimed = 0;

	for (unsigned int i = 0; i < VB_MAX_DEVICES; i++) {
		int rc;

		if (!(binding->adapters & 1u << i))
			continue;
		rc = vb_engine_port_claim(engine_of(i), (uint16_t)id->pub.ps, binding->families,
					  &binding->at.port);
		if (rc) {
			release_claims(id, binding, claimed);
			return rc;
		}
		claimed |= 1u << i;
	}
	return 0;
}

static int choose_port(const struct vb_id *id, struct vb_binding *binding)
{
	int rc = -EADDRINUSE;

	for (int i = 0; i < CHOICES && rc == -EADDRINUSE; i++) {
		binding->at.port = 0;
		rc = claim(id, binding);
		if (rc == 0 && conflicts(id, binding, false)) {
			release_claims(id, binding, binding->adapters);
			rc = -EADDRINUSE;
		}
	}
	return rc;
}

int vb_port_bind(struct vb_id *id, const struct vb_endpoint *at, unsigned int adapters)
{
	struct vb_binding binding = {.adapters = adapters, .at = *at};
	int rc;

	binding.families = IN6_IS_ADDR_V4MAPPED(&at->address) ? VB_PORT_IPV4 : VB_PORT_IPV6;
	if (IN6_IS_ADDR_UNSPECIFIED(&at->address) && !id->one_family)
		binding.families = VB_PORT_IPV4 | VB_PORT_IPV6;
	pthread_mutex_lock(&ports_lock);
	if (at->port == 0)
		rc = choose_port(id, &binding);
	else if (conflicts(id, &binding, id->reuse_address))
		rc = -EADDRINUSE;
	else
		rc = claim(id, &binding);
	if (rc == 0) {
		id->binding = binding;
		vb_list_init(&id->binding.link);
		vb_list_append(&bound, &id->binding.link);
	}
	pthread_mutex_unlock(&ports_lock);
	return rc;
}

int vb_port_listen(struct vb_id *id)
{
	int rc = 0;

	pthread_mutex_lock(&ports_lock);
	if (conflicts(id, &id->binding, false)) {
		rc = -EADDRINUSE;
	} else {
		id->binding.listening = true;
		for (unsigned int i = 0; i < VB_MAX_DEVICES; i++)
			if (id->binding.adapters & 1u << i)
				vb_engine_port_set_listening(engine_of(i), (uint16_t)id->pub.ps,
							     id->binding.families,
							     id->binding.at.port, true);
	}
	pthread_mutex_unlock(&ports_lock);
	return rc;
}

/* Families of a port on a device in which no other id of ours listens. */
static unsigned int without_listener(const struct vb_id *id, unsigned int adapter)
{
	unsigned int families = id->binding.families;
	struct vb_list *link, *next;

	vb_list_for_each(link, next, &bound)
	{
		const struct vb_id *other = vb_list_entry(link, struct vb_id, binding.link);

		if (other != id && other->pub.ps == id->pub.ps && other->binding.listening &&
		    other->binding.at.port == id->binding.at.port &&
		    other->binding.adapters & 1u << adapter)
			families &= ~other->binding.families;
	}
	return families;
}

static void stop_listening(struct vb_id *id)
{
	for (unsigned int i = 0; i < VB_MAX_DEVICES; i++) {
		unsigned int families;

		if (!(id->binding.adapters & 1u << i))
			continue;
		families = without_listener(id, i);
		if (families)
			vb_engine_port_set_listening(engine_of(i), (uint16_t)id->pub.ps, families,
						     id->binding.at.port, false);
	}
	id->binding.listening = false;
}

void vb_port_release(struct vb_id *id)
{
	pthread_mutex_lock(&ports_lock);
	/* not in the list: it has none, or it was the parent's before a fork */
	if (vb_list_is_linked(&id->binding.link)) {
		if (id->binding.listening)
			stop_listening(id);
		release_claims(id, &id->binding, id->binding.adapters);
		vb_list_remove(&id->binding.link);
		id->binding.at.port = 0;
	}
	pthread_mutex_unlock(&ports_lock);
}
