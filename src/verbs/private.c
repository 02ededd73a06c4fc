/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * private.c - the names that providers' libraries import (nodes IBVERBS_PRIVATE_NN).
 *
 * perftest and UCX link to libmlx5 and libefa, which bind these at load time and whose constructors
 * register a driver. There are no drivers here: registration is accepted and ignored, everything
 * else refuses. NN is the release's number for this private interface; a name that one release
 * lacks does no harm in its node. The node of Debian 12, 34, holds the default versions.
 */
#include <errno.h>

#include "verbs/face.h"

/* A function may be called with more arguments than these take: the C ABI of every Linux target
 * leaves their disposal to the caller. */
int vb_private_refuse(void);
void *vb_private_nothing(void);
int vb_private_refuse_minus_one(void);
void vb_private_ignore(void);
int vb_private_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
			      int *type);
const char *vb_private_word(void);

int vb_private_refuse(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

void *vb_private_nothing(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

int vb_private_refuse_minus_one(void)
{
	errno = EOPNOTSUPP;
	return -1;
}

void vb_private_ignore(void)
{
}

int vb_private_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
			      int *type)
{
	return vb_face_query_gid_type(context, port, index, type);
}

const char *vb_private_word(void)
{
	return "unknown";
}

/* verbs_allow_disassociate_destroy: whether objects of a vanished device may be destroyed. */
bool vb_private_flag;

#define ALIAS(node, name, target)                                                                  \
	extern __typeof__(target) vb_p##node##_##name                                              \
		__attribute__((alias(#target), visibility("default")));

/* clang-format off */
#define NAMES(X, n) \
	X(n, __ioctl_final_num_attrs, vb_private_refuse) \
	X(n, __verbs_log, vb_private_ignore) \
	X(n, _verbs_init_and_alloc_context, vb_private_nothing) \
	X(n, execute_ioctl, vb_private_refuse) \
	X(n, ibv_cmd_advise_mr, vb_private_refuse) \
	X(n, ibv_cmd_alloc_dm, vb_private_refuse) \
	X(n, ibv_cmd_alloc_dmah, vb_private_refuse) \
	X(n, ibv_cmd_alloc_mw, vb_private_refuse) \
	X(n, ibv_cmd_alloc_pd, vb_private_refuse) \
	X(n, ibv_cmd_attach_mcast, vb_private_refuse) \
	X(n, ibv_cmd_close_xrcd, vb_private_refuse) \
	X(n, ibv_cmd_create_ah, vb_private_refuse) \
	X(n, ibv_cmd_create_comp_cntr, vb_private_refuse) \
	X(n, ibv_cmd_create_counters, vb_private_refuse) \
	X(n, ibv_cmd_create_cq, vb_private_refuse) \
	X(n, ibv_cmd_create_cq_ex, vb_private_refuse) \
	X(n, ibv_cmd_create_cq_ex2, vb_private_refuse) \
	X(n, ibv_cmd_create_flow, vb_private_refuse) \
	X(n, ibv_cmd_create_flow_action_esp, vb_private_refuse) \
	X(n, ibv_cmd_create_qp, vb_private_refuse) \
	X(n, ibv_cmd_create_qp_ex, vb_private_refuse) \
	X(n, ibv_cmd_create_qp_ex2, vb_private_refuse) \
	X(n, ibv_cmd_create_rwq_ind_table, vb_private_refuse) \
	X(n, ibv_cmd_create_srq, vb_private_refuse) \
	X(n, ibv_cmd_create_srq_ex, vb_private_refuse) \
	X(n, ibv_cmd_create_wq, vb_private_refuse) \
	X(n, ibv_cmd_dealloc_mw, vb_private_refuse) \
	X(n, ibv_cmd_dealloc_pd, vb_private_refuse) \
	X(n, ibv_cmd_dereg_mr, vb_private_refuse) \
	X(n, ibv_cmd_destroy_ah, vb_private_refuse) \
	X(n, ibv_cmd_destroy_comp_cntr, vb_private_refuse) \
	X(n, ibv_cmd_destroy_counters, vb_private_refuse) \
	X(n, ibv_cmd_destroy_cq, vb_private_refuse) \
	X(n, ibv_cmd_destroy_flow, vb_private_refuse) \
	X(n, ibv_cmd_destroy_flow_action, vb_private_refuse) \
	X(n, ibv_cmd_destroy_qp, vb_private_refuse) \
	X(n, ibv_cmd_destroy_rwq_ind_table, vb_private_refuse) \
	X(n, ibv_cmd_destroy_srq, vb_private_refuse) \
	X(n, ibv_cmd_destroy_wq, vb_private_refuse) \
	X(n, ibv_cmd_detach_mcast, vb_private_refuse) \
	X(n, ibv_cmd_export_dmabuf_fd, vb_private_refuse_minus_one) \
	X(n, ibv_cmd_free_dm, vb_private_refuse) \
	X(n, ibv_cmd_free_dmah, vb_private_refuse) \
	X(n, ibv_cmd_get_context, vb_private_refuse) \
	X(n, ibv_cmd_inc_comp_cntr, vb_private_refuse) \
	X(n, ibv_cmd_inc_err_comp_cntr, vb_private_refuse) \
	X(n, ibv_cmd_modify_cq, vb_private_refuse) \
	X(n, ibv_cmd_modify_flow_action_esp, vb_private_refuse) \
	X(n, ibv_cmd_modify_qp, vb_private_refuse) \
	X(n, ibv_cmd_modify_qp_ex, vb_private_refuse) \
	X(n, ibv_cmd_modify_srq, vb_private_refuse) \
	X(n, ibv_cmd_modify_wq, vb_private_refuse) \
	X(n, ibv_cmd_open_qp, vb_private_refuse) \
	X(n, ibv_cmd_open_xrcd, vb_private_refuse) \
	X(n, ibv_cmd_poll_cq, vb_private_refuse_minus_one) \
	X(n, ibv_cmd_post_recv, vb_private_refuse) \
	X(n, ibv_cmd_post_send, vb_private_refuse) \
	X(n, ibv_cmd_post_srq_recv, vb_private_refuse) \
	X(n, ibv_cmd_qp_attach_comp_cntr, vb_private_refuse) \
	X(n, ibv_cmd_query_comp_cntr_caps, vb_private_refuse) \
	X(n, ibv_cmd_query_context, vb_private_refuse) \
	X(n, ibv_cmd_query_device, vb_private_refuse) \
	X(n, ibv_cmd_query_device_any, vb_private_refuse) \
	X(n, ibv_cmd_query_device_ex, vb_private_refuse) \
	X(n, ibv_cmd_query_mr, vb_private_refuse) \
	X(n, ibv_cmd_query_port, vb_private_refuse) \
	X(n, ibv_cmd_query_port_speed, vb_private_refuse) \
	X(n, ibv_cmd_query_qp, vb_private_refuse) \
	X(n, ibv_cmd_query_srq, vb_private_refuse) \
	X(n, ibv_cmd_read_comp_cntr, vb_private_refuse) \
	X(n, ibv_cmd_read_counters, vb_private_refuse) \
	X(n, ibv_cmd_read_err_comp_cntr, vb_private_refuse) \
	X(n, ibv_cmd_reg_dm_mr, vb_private_refuse) \
	X(n, ibv_cmd_reg_dmabuf_mr, vb_private_refuse) \
	X(n, ibv_cmd_reg_mr, vb_private_refuse) \
	X(n, ibv_cmd_reg_mr_ex, vb_private_refuse) \
	X(n, ibv_cmd_req_notify_cq, vb_private_refuse) \
	X(n, ibv_cmd_rereg_mr, vb_private_refuse) \
	X(n, ibv_cmd_resize_cq, vb_private_refuse) \
	X(n, ibv_cmd_set_comp_cntr, vb_private_refuse) \
	X(n, ibv_cmd_set_err_comp_cntr, vb_private_refuse) \
	X(n, ibv_dmabuf_heap_alloc, vb_private_nothing) \
	X(n, ibv_dmabuf_heap_cc_shared_init, vb_private_nothing) \
	X(n, ibv_dmabuf_heap_destroy, vb_private_ignore) \
	X(n, ibv_dmabuf_heap_free, vb_private_ignore) \
	X(n, ibv_get_fw_ver, vb_private_refuse_minus_one) \
	X(n, ibv_query_gid_type, vb_private_query_gid_type) \
	X(n, ibv_read_ibdev_sysfs_file, vb_private_refuse_minus_one) \
	X(n, ibv_wr_opcode_str, vb_private_word) \
	X(n, verbs_allow_disassociate_destroy, vb_private_flag) \
	X(n, verbs_init_cq, vb_private_ignore) \
	X(n, verbs_open_device, vb_private_nothing) \
	X(n, verbs_register_driver_##n, vb_private_ignore) \
	X(n, verbs_set_ops, vb_private_ignore) \
	X(n, verbs_uninit_context, vb_private_ignore)
/* clang-format on */

#define VERSION(node, name, target)                                                                \
	ALIAS(node, name, target)                                                                  \
	__asm__(".symver vb_p" #node "_" #name ", " #name "@IBVERBS_PRIVATE_" #node);
#define DEFAULT_VERSION(node, name, target)                                                        \
	ALIAS(node, name, target)                                                                  \
	__asm__(".symver vb_p" #node "_" #name ", " #name "@@IBVERBS_PRIVATE_" #node);

NAMES(VERSION, 25)
NAMES(VERSION, 33)
NAMES(DEFAULT_VERSION, 34)
NAMES(VERSION, 57)
NAMES(VERSION, 59)
NAMES(VERSION, 64)
NAMES(VERSION, 65)

/* How drivers registered before they had a node of their own. */
ALIAS(0, ibv_register_driver, vb_private_ignore)
__asm__(".symver vb_p0_ibv_register_driver, ibv_register_driver@IBVERBS_1.1");
