/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.c - the list of devices (ibv_get_device_list(3)).
 *
 * The devices of a process do not change, so their structs are made once and stay: a list may be
 * freed while its devices are in use, or before they are opened.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "verbs/face.h"

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_face_device devices[VB_MAX_DEVICES];
static int device_count = -1; /* -1: not asked yet */

void vb_face_setup(void)
{
	static bool done;

	pthread_mutex_lock(&devices_lock);
	if (!done)
		vb_host_set_hooks(&vb_face_hooks);
	done = true;
	pthread_mutex_unlock(&devices_lock);
}

static void describe(struct vb_face_device *device, struct vb_device *host)
{
	struct ibv_device *ibv = &device->ibv;

	device->host = host;
	ibv->node_type = IBV_NODE_CA;
	ibv->transport_type = IBV_TRANSPORT_IB;
	snprintf(ibv->name, sizeof(ibv->name), "%.*s", (int)sizeof(ibv->name) - 1, host->name);
	snprintf(ibv->dev_name, sizeof(ibv->dev_name), "uverbs%u", host->index);
	snprintf(ibv->dev_path, sizeof(ibv->dev_path), "/sys/class/infiniband_verbs/uverbs%u",
		 host->index);
	snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "/sys/class/infiniband/%s", ibv->name);
}

/* The number of devices or -errno; the host said why. */
static int find_devices(void)
{
	struct vb_device *const *list;
	int count, i;

	pthread_mutex_lock(&devices_lock);
	count = device_count;
	if (count < 0) {
		count = vb_host_devices(&list);
		if (count > (int)VB_MAX_DEVICES)
			count = VB_MAX_DEVICES;
		for (i = 0; i < count; i++)
			describe(&devices[i], list[i]);
		if (count >= 0)
			device_count = count;
	}
	pthread_mutex_unlock(&devices_lock);
	return count;
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list;
	int count = find_devices(), i;

	vb_face_look_for_modules();
	if (num_devices)
		*num_devices = 0;
	if (count < 0) {
		errno = -count;
		return NULL;
	}
	list = calloc((size_t)count + 1, sizeof(struct ibv_device *));
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	for (i = 0; i < count; i++)
		list[i] = &devices[i].ibv;
	if (num_devices)
		*num_devices = count;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

struct ibv_device *vb_face_device(unsigned int index)
{
	int count = find_devices();

	return count > 0 && index < (unsigned int)count ? &devices[index].ibv : NULL;
}

static struct vb_device *host_of(struct ibv_device *ibv)
{
	return vb_container_of(ibv, struct vb_face_device, ibv)->host;
}

struct vb_device *vb_face_host_device(struct ibv_context *context)
{
	return host_of(context->device);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
	return (int)host_of(device)->index;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(host_of(device)->guid);
}
