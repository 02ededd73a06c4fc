/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * old_abi.c - the names of the first ABI (node IBVERBS_1.0), older than struct ibv_context_ops.
 *
 * Nothing installed uses them. A program of that age finds no device, and so has nothing to pass to
 * the other functions; they refuse.
 */
#include <errno.h>
#include <stdlib.h>

#include "verbs/face.h"

#define OLD(name, target)                                                                          \
	extern __typeof__(target) vb_old_##name                                                    \
		__attribute__((alias(#target), visibility("default")));                            \
	__asm__(".symver vb_old_" #name ", " #name "@IBVERBS_1.0")

static void *vb_old_list(int *num_devices)
{
	if (num_devices)
		*num_devices = 0;
	return calloc(1, sizeof(void *));
}

static void vb_old_free_list(void *list)
{
	free(list);
}

static int vb_old_refuse(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

static void *vb_old_nothing(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

OLD(ibv_get_device_list, vb_old_list);
OLD(ibv_free_device_list, vb_old_free_list);
OLD(ibv_get_device_name, vb_old_nothing);
OLD(ibv_get_device_guid, vb_old_nothing);
OLD(ibv_open_device, vb_old_nothing);
OLD(ibv_close_device, vb_old_refuse);
OLD(ibv_get_async_event, vb_old_refuse);
OLD(ibv_ack_async_event, vb_old_refuse);
OLD(ibv_query_device, vb_old_refuse);
OLD(ibv_query_port, vb_old_refuse);
OLD(ibv_query_gid, vb_old_refuse);
OLD(ibv_query_pkey, vb_old_refuse);
OLD(ibv_alloc_pd, vb_old_nothing);
OLD(ibv_dealloc_pd, vb_old_refuse);
OLD(ibv_reg_mr, vb_old_nothing);
OLD(ibv_dereg_mr, vb_old_refuse);
OLD(ibv_create_cq, vb_old_nothing);
OLD(ibv_resize_cq, vb_old_refuse);
OLD(ibv_destroy_cq, vb_old_refuse);
OLD(ibv_get_cq_event, vb_old_refuse);
OLD(ibv_ack_cq_events, vb_old_refuse);
OLD(ibv_create_srq, vb_old_nothing);
OLD(ibv_modify_srq, vb_old_refuse);
OLD(ibv_query_srq, vb_old_refuse);
OLD(ibv_destroy_srq, vb_old_refuse);
OLD(ibv_create_qp, vb_old_nothing);
OLD(ibv_query_qp, vb_old_refuse);
OLD(ibv_modify_qp, vb_old_refuse);
OLD(ibv_destroy_qp, vb_old_refuse);
OLD(ibv_create_ah, vb_old_nothing);
OLD(ibv_destroy_ah, vb_old_refuse);
OLD(ibv_attach_mcast, vb_old_refuse);
OLD(ibv_detach_mcast, vb_old_refuse);
