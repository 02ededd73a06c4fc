/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.c - the devices of this process as librdmacm sees them: an opened context, the engine
 * behind it, and the protection domain that ids have by default.
 *
 * Opened once, kept for the life of the process. A forked child forgets what its parent opened:
 * engines do not outlive a fork (host.h), so it opens its own.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/cma.h"

static pthread_mutex_t adapters_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_adapter adapters[VB_MAX_DEVICES];
static int adapter_count;
static struct ibv_device **ibv_devices; /* never freed: a device lives as long as a list holds it */

static void after_fork_in_child(void)
{
	pthread_mutex_init(&adapters_lock, NULL);
	pthread_mutex_init(&vb_cma_lock, NULL);
	for (int i = 0; i < adapter_count; i++) {
		adapters[i].verbs = NULL;
		adapters[i].pd = NULL;
		adapters[i].xrcd = NULL;
		adapters[i].engine = NULL;
	}
	vb_ports_drop_in_child();
}

static struct ibv_device *find(struct ibv_device **list, const char *name)
{
	for (; *list; list++)
		if (strcmp(ibv_get_device_name(*list), name) == 0)
			return *list;
	return NULL;
}

static void read_once(void)
{
	struct vb_device *const *hosts;
	int count = vb_host_devices(&hosts);

	adapter_count = -ENODEV;
	ibv_devices = ibv_get_device_list(NULL);
	if (count <= 0 || !ibv_devices)
		return;
	adapter_count = 0;
	for (int i = 0; i < count; i++) {
		struct vb_adapter *adapter = &adapters[adapter_count];

		adapter->ibv = find(ibv_devices, hosts[i]->name);
		if (!adapter->ibv)
			continue;
		adapter->host = hosts[i];
		adapter->index = (unsigned int)adapter_count++;
	}
	if (adapter_count == 0)
		adapter_count = -ENODEV;
	vb_host_set_cm_handler(vb_on_cm_event);
	pthread_atfork(NULL, NULL, after_fork_in_child);
}

int vb_adapters(struct vb_adapter **list)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_once);
	*list = adapters;
	return adapter_count;
}

static int open_locked(struct vb_adapter *adapter)
{
	struct ibv_context *verbs = ibv_open_device(adapter->ibv);
	struct ibv_device_attr attr;
	struct vb_engine *engine;
	int rc;

	if (!verbs)
		return -ENODEV;
	rc = -ibv_query_device(verbs, &attr);
	if (rc)
		goto err_close;
	adapter->pd = ibv_alloc_pd(verbs);
	rc = -errno;
	if (!adapter->pd)
		goto err_close;
	rc = vb_engine_get(adapter->host, &engine);
	if (rc)
		goto err_pd;
	adapter->engine = engine;
	adapter->max_responder_resources = (uint8_t)attr.max_qp_rd_atom;
	adapter->max_initiator_depth = (uint8_t)attr.max_qp_init_rd_atom;
	adapter->ack_delay = attr.local_ca_ack_delay;
	adapter->verbs = verbs;
	return 0;

err_pd:
	ibv_dealloc_pd(adapter->pd);
	adapter->pd = NULL;
err_close:
	ibv_close_device(verbs);
	return rc;
}

int vb_adapter_open(struct vb_adapter *adapter)
{
	int rc;

	pthread_mutex_lock(&adapters_lock);
	rc = adapter->verbs ? 0 : open_locked(adapter);
	pthread_mutex_unlock(&adapters_lock);
	return rc;
}

struct ibv_xrcd *vb_adapter_xrcd(struct vb_adapter *adapter)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd;

	pthread_mutex_lock(&adapters_lock);
	if (!adapter->xrcd)
		adapter->xrcd = ibv_open_xrcd(adapter->verbs, &attr);
	xrcd = adapter->xrcd;
	pthread_mutex_unlock(&adapters_lock);
	return xrcd;
}

void vb_adapters_prepare_wait(void)
{
	for (int i = 0; i < adapter_count; i++) {
		struct vb_engine *engine;

		pthread_mutex_lock(&adapters_lock);
		engine = adapters[i].engine;
		pthread_mutex_unlock(&adapters_lock);
		if (!engine || !vb_engine_enter(engine))
			continue;
		vb_engine_pump(engine);
		vb_engine_wake_thread(engine);
		vb_engine_leave(engine);
	}
}

struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct vb_adapter *list;
	int count = vb_adapters(&list), opened = 0;
	struct ibv_context **contexts = NULL;

	if (num_devices)
		*num_devices = 0;
	if (count < 0) {
		errno = -count;
		return NULL;
	}
	contexts = calloc((size_t)count + 1, sizeof(*contexts));
	if (!contexts)
		return NULL;
	for (int i = 0; i < count; i++)
		if (vb_adapter_open(&list[i]) == 0)
			contexts[opened++] = list[i].verbs;
	if (num_devices)
		*num_devices = opened;
	return contexts;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
