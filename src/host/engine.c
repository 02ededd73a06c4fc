/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine.c - an engine's life, and the way in and out of it.
 *
 * There is one engine per device and process, shared by all who ask for it. When the last gives it
 * back it goes, unless a program closed a device with objects alive: then it stays, without a
 * reference, as what those objects still point to, and the next get finds it.
 */
#include "host/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "carrier/clock.h"
#include "carrier/local.h"
#include "carrier/udp.h"
#include "host/address.h"
#include "host/device.h"
#include "host/last.h"

/* No hardware answers faster than some milliseconds count as lost, and here a thread may have to be
 * scheduled first: shorter local ACK timeouts become this. Real adapters have a floor as well. */
#define VB_ACK_TIMEOUT_MIN_NS (8ull * 1000 * 1000)

struct vb_engine *vb_engines[VB_MAX_DEVICES];
pthread_mutex_t vb_engines_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t vb_engine_now(void)
{
	return vb_clock_ns();
}

struct vb_nic *vb_engine_nic(struct vb_engine *engine)
{
	return engine->nic;
}

struct vb_device *vb_engine_device(struct vb_engine *engine)
{
	return engine->device;
}

bool vb_engine_enter_to_arm(struct vb_engine *engine)
{
	if (!vb_engine_lock(engine))
		return false;
	vb_engine_refresh(engine);
	return true;
}

bool vb_engine_enter(struct vb_engine *engine)
{
	if (!vb_engine_enter_to_arm(engine))
		return false;
	vb_engine_release(engine);
	return true;
}

bool vb_engine_enter_to_post(struct vb_engine *engine, const struct vb_qp *qp)
{
	if (!vb_engine_lock_bare(engine))
		return false;
	if (qp && (qp->state == VB_QPS_ERR || qp->state == VB_QPS_SQE))
		vb_engine_refresh(engine); /* it completes at once, and bears the time */
	return true;
}

void vb_engine_leave(struct vb_engine *engine)
{
	vb_engine_notice_and_unlock(engine);
}

/* --- birth ------------------------------------------------------------------------------- */

/* Once for each device: a program may try again and again. */
static void complain(const struct vb_device *device, const char *what, int rc)
{
	static uint32_t said;
	char text[VB_ADDRESS_TEXT];
	const char *hint = "";

	if (said & 1u << device->index)
		return;
	said |= 1u << device->index;
	switch (-rc) {
	case EADDRINUSE:
		hint = "; another user has UDP port 4791 of this address: take another address "
		       "with "
		       "VERBENA_ADDR (each address of 127.0.0.0/8 is a host of its own)";
		break;
	case ENOSPC:
		hint = "; every place for a process of this host is taken, or shared memory is "
		       "full";
		break;
	case EACCES:
	case EPERM:
		hint = "; the directory of this user below /dev/shm must belong to the user and "
		       "have "
		       "mode 0700";
		break;
	case EADDRNOTAVAIL:
		hint = "; is the interface up, and is the address still there?";
		break;
	}
	fprintf(stderr, "verbena: %s (%s) cannot be opened: %s: %s%s.\n", device->name,
		vb_address_text(&device->address, text), what, strerror(-rc), hint);
}

static int open_carriers(struct vb_engine *engine, const char **what)
{
	struct vb_udp_config config = {.registry = engine->registry,
				       .ifindex = engine->device->ifindex,
				       .is_next = vb_settings()->ring ? vb_engine_is_next : NULL};
	int rc;

	_Static_assert(VB_ARRAY_SIZE(config.addresses) >= VB_MAX_GIDS, "every GID has an address");
	config.address_count =
		vb_device_addresses(engine->device, config.addresses, config.scope_ids);
	for (unsigned int i = 0; i < config.address_count; i++) {
		if (vb_address_is_ipv4(&config.addresses[i]))
			continue;
		vb_interfaces_settle(engine->device->ifindex);
		break;
	}
	*what = "its UDP sockets";
	rc = vb_udp_create(&engine->udp, &config, vb_engine_deliver, engine);
	if (rc)
		return rc;
	*what = "shared memory";
	if (vb_settings()->local)
		rc = vb_local_create(&engine->local, engine->registry, vb_engine_deliver, engine);
	if (rc)
		engine->udp->ops->destroy(engine->udp);
	else if (engine->share)
		vb_local_use_shared(engine->local);
	return rc;
}

static int open_nic(struct vb_engine *engine)
{
	const struct vb_nic_config config = {
		.qpn_base = (uint32_t)engine->registry->slot << VB_SLOT_SHIFT,
		.equal_keys = vb_settings()->equal_keys,
		.direct_touches = engine->share,
		.ack_timeout_min_ns = VB_ACK_TIMEOUT_MIN_NS,
	};

	engine->nic = vb_nic_create(&vb_engine_nic_ops, engine, &config);
	if (!engine->nic)
		return -errno;
	vb_engine_refresh(engine);
	return 0;
}

static void close_carriers(struct vb_engine *engine)
{
	if (engine->local)
		engine->local->ops->destroy(engine->local);
	engine->udp->ops->destroy(engine->udp);
}

static int create(struct vb_device *device, struct vb_engine **out)
{
	struct vb_engine *engine = aligned_alloc(alignof(struct vb_engine), sizeof(*engine));
	const char *what = "memory";
	int rc = -ENOMEM;

	if (!engine)
		goto err;
	memset(engine, 0, sizeof(*engine));
	engine->device = device;
	vb_list_init(&engine->foreign);
	engine->pid = getpid();
	engine->direct = vb_settings()->direct;
	engine->share = vb_settings()->share && vb_settings()->local && engine->direct;
	what = "its place among the processes of this host";
	rc = vb_registry_join(&engine->registry, &device->host_address);
	if (rc)
		goto err_free;
	rc = open_carriers(engine, &what);
	if (rc)
		goto err_leave;
	what = "memory";
	rc = open_nic(engine);
	if (rc)
		goto err_carriers;
	rc = vb_gsi_open(engine);
	if (rc)
		goto err_nic;
	vb_traffic_open(engine);
	vb_port_open(engine);
	what = "descriptors";
	rc = vb_thread_init(engine);
	if (rc)
		goto err_port;
	vb_thread_start(engine);
	*out = engine;
	return 0;
err_port:
	vb_port_close(engine);
	vb_gsi_close(engine, 0);
err_nic:
	vb_nic_destroy(engine->nic);
err_carriers:
	close_carriers(engine);
err_leave:
	vb_registry_leave(engine->registry);
err_free:
	free(engine);
err:
	complain(device, what, rc);
	return rc;
}

int vb_engine_get(struct vb_device *device, struct vb_engine **out)
{
	struct vb_engine **place = &vb_engines[device->index];
	int rc = 0;

	vb_fork_prepare_once();
	vb_last_note_thread();
	pthread_mutex_lock(&vb_engines_lock);
	if (!*place)
		rc = create(device, place);
	if (rc == 0) {
		(*place)->references++;
		*out = *place;
	}
	pthread_mutex_unlock(&vb_engines_lock);
	return rc;
}

/* --- death ------------------------------------------------------------------------------- */

static bool has_objects(const struct vb_nic *nic)
{
	return nic->qp_count || nic->mr_count || nic->pd_count || nic->cq_count || nic->srq_count ||
	       nic->ah_count;
}

static void destroy(struct vb_engine *engine)
{
	vb_thread_stop(engine);
	vb_thread_finish(engine);
	vb_gsi_close(engine, VB_FAREWELL_NS);
	vb_traffic_publish(engine);
	vb_port_close(engine);
	close_carriers(engine);
	vb_nic_destroy(engine->nic);
	vb_registry_leave(engine->registry);
	free(engine);
}

void vb_engine_put(struct vb_engine *engine)
{
	bool dead;

	if (!engine)
		return;
	pthread_mutex_lock(&vb_engines_lock);
	VB_ASSERT(engine->references > 0);
	if (--engine->references == 0) {
		dead = atomic_load(&engine->life) != VB_ALIVE;
		if (dead) { /* its carriers are gone, its objects belong to nobody */
			if (atomic_load(&engine->life) == VB_IN_CHILD)
				free(engine);
		} else if (!has_objects(engine->nic)) {
			vb_engines[engine->device->index] = NULL;
			destroy(engine);
		}
	}
	pthread_mutex_unlock(&vb_engines_lock);
}
