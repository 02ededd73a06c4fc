/* SPDX-License-Identifier: BSD-2-Clause */
/* look.c - see look.h. */
#include "host/look.h"

#include <string.h>

#include "host/engine.h"

/* What is alive here has the latest state, and counts that are not yet in the registry. */
static bool look_at_own(struct vb_device *device, struct vb_look *out)
{
	struct vb_engine *engine;
	bool alive = false;

	pthread_mutex_lock(&vb_engines_lock);
	engine = vb_engines[device->index];
	if (engine && vb_engine_lock(engine)) {
		vb_port_look(engine);
		out->port = engine->port.state;
		vb_traffic_publish(engine);
		vb_engine_leave(engine);
		alive = true;
	}
	pthread_mutex_unlock(&vb_engines_lock);
	return alive;
}

void vb_host_look(struct vb_device *device, struct vb_look *out)
{
	uint64_t behind[2][VB_REGISTRY_TRAFFIC];

	memset(out, 0, sizeof(*out));
	if (!look_at_own(device, out))
		out->port = vb_port_of_interface(device->ifname);
	if (vb_registry_peek(&device->host_address, out->traffic, behind) == 0)
		vb_port_counters_read(out->traffic, behind, &out->counters);
}
