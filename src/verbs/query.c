/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * query.c - what a device, its port and its tables look like. The limits are those that the core
 * enforces (core/limits.h).
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "host/identity.h"
#include "verbs/face.h"
#include "verbs/raw.h"

#define VB_MAX_MR_SIZE (1ull << 47) /* more than a process can map: a longer range is an EFAULT */
#define VB_PAGE_SIZES 0xfffffffffffff000ull
#define VB_ACK_DELAY 15 /* 4.096 us * 2^15 = 134 ms: a process may be off the processor */
#define VB_GUARANTEED_FEATURES                                                                     \
	(IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_CURR_QP_STATE_MOD |      \
	 IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |    \
	 IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW |                          \
	 IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_RAW_IP_CSUM |  \
	 IBV_DEVICE_MANAGED_FLOW_STEERING)

/* What is on demand may be used wherever memory is: a processor does the work, with page faults. */
#define VB_ODP_UD (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV)
#define VB_ODP_UC (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE)
#define VB_ODP_RC (VB_ODP_UD | VB_ODP_UC | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC)

/* Not in every release's header, nor in the lower 32 bits. */
#define VB_DEVICE_FLUSH_GLOBAL (1ull << 38)
#define VB_DEVICE_ATOMIC_WRITE (1ull << 40)

static void fill_device(const struct vb_device *host, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
		.node_guid = htobe64(host->guid),
		.sys_image_guid = htobe64(host->guid),
		.max_mr_size = VB_MAX_MR_SIZE,
		.page_size_cap = VB_PAGE_SIZES,
		.vendor_id = VB_VENDOR_ID,
		.vendor_part_id = VB_DEVICE_ID,
		.hw_ver = VB_HARDWARE_VERSION,
		.max_qp = VB_MAX_QP,
		.max_qp_wr = VB_MAX_QP_WR,
		.device_cap_flags = VB_GUARANTEED_FEATURES,
		.max_sge = VB_MAX_SGE,
		.max_sge_rd = VB_MAX_SGE_RD,
		.max_cq = VB_MAX_CQ,
		.max_cqe = VB_MAX_CQE,
		.max_mr = VB_MAX_MR,
		.max_mw = VB_MAX_MW,
		.max_pd = VB_MAX_PD,
		.max_qp_rd_atom = VB_MAX_RD_ATOMIC,
		.max_res_rd_atom = VB_MAX_RD_ATOMIC * VB_MAX_QP,
		.max_qp_init_rd_atom = VB_MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_ah = VB_MAX_AH,
		.max_mcast_grp = VB_MAX_MCAST_GROUPS,
		.max_mcast_qp_attach = VB_MAX_MCAST_QPS,
		.max_total_mcast_qp_attach = VB_MAX_MCAST_GROUPS * VB_MAX_MCAST_QPS,
		.max_srq = VB_MAX_SRQ,
		.max_srq_wr = VB_MAX_SRQ_WR,
		.max_srq_sge = VB_MAX_SRQ_SGE,
		.max_pkeys = VB_PKEY_TABLE,
		.local_ca_ack_delay = VB_ACK_DELAY,
		.phys_port_cnt = 1,
	};
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", VB_VERSION);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	fill_device(vb_face_host_device(context), attr);
	return 0;
}

int vb_face_query_device_ex(struct ibv_context *context,
			    const struct ibv_query_device_ex_input *input,
			    struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex all = {0};

	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof(all.orig_attr))
		return EINVAL;
	fill_device(vb_face_host_device(context), &all.orig_attr);
	all.device_cap_flags_ex =
		VB_GUARANTEED_FEATURES | VB_DEVICE_FLUSH_GLOBAL | VB_DEVICE_ATOMIC_WRITE;
	all.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
	all.odp_caps.per_transport_caps.rc_odp_caps = VB_ODP_RC;
	all.odp_caps.per_transport_caps.uc_odp_caps = VB_ODP_UC;
	all.odp_caps.per_transport_caps.ud_odp_caps = VB_ODP_UD;
	all.xrc_odp_caps = VB_ODP_RC;
	all.completion_timestamp_mask = UINT64_MAX;
	all.hca_core_clock = 1000000; /* kHz: timestamps count nanoseconds */
	all.phys_port_cnt_ex = 1;
	all.tm_caps = vb_face_tm_caps;
	all.max_dm_size = VB_MAX_DM;
	all.cq_mod_caps.max_cq_count = UINT16_MAX;
	all.cq_mod_caps.max_cq_period = UINT16_MAX; /* us */
	vb_face_raw_caps(&all);
	memset(attr, 0, size);
	memcpy(attr, &all, VB_MIN(size, sizeof(all)));
	return 0;
}

int vb_face_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint64_t now = vb_engine_now();

	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	if (!values->comp_mask)
		return 0;
	values->raw_clock.tv_sec = (time_t)(now / 1000000000u);
	values->raw_clock.tv_nsec = (long)(now % 1000000000u);
	return 0;
}

int vb_face_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		       size_t size)
{
	const struct vb_device *host = vb_face_host_device(context);
	struct ibv_port_attr all = {
		.max_mtu = IBV_MTU_4096,
		.active_mtu = (enum ibv_mtu)vb_mtu_code(host->active_path_mtu),
		.gid_tbl_len = VB_MAX_GIDS,
		.lid = host->lid,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = VB_MAX_MESSAGE,
		.pkey_tbl_len = VB_PKEY_TABLE,
		.max_vl_num = 1,
		.active_width = VB_WIDTH_4X,
		.active_speed = VB_SPEED_25_GBPS,
		.link_layer = host->lid ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
		.flags = host->lid ? 0 : IBV_QPF_GRH_REQUIRED,
	};

	struct vb_engine *engine = vb_face_context(context)->engine;
	enum vb_port_state state;

	if (port != VB_PORT)
		return EINVAL;
	state = engine ? vb_engine_port(engine) : VB_PORT_DISABLED; /* none once closed */
	all.state = state == VB_PORT_UP ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	all.phys_state = vb_physical_state(state);
	memset(attr, 0, size);
	memcpy(attr, &all, VB_MIN(size, sizeof(all)));
	return 0;
}

/* What programs built before the struct's last field call directly. */
#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return vb_face_query_port(context, port, (struct ibv_port_attr *)attr,
				  offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* --- the GID table ----------------------------------------------------------------------- */

/* An index behind the last GID is an empty entry of the table: a GID of zeros. */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	const struct vb_device *host = vb_face_host_device(context);

	if (port != VB_PORT || index < 0 || index >= (int)VB_MAX_GIDS) {
		errno = EINVAL;
		return -1;
	}
	memset(gid, 0, sizeof(*gid));
	if ((unsigned int)index < host->gid_count)
		memcpy(gid->raw, &host->gids[index].gid, sizeof(gid->raw));
	return 0;
}

static void fill_gid_entry(const struct vb_device *host, uint32_t index, void *entry, size_t size)
{
	struct ibv_gid_entry all = {
		.gid_index = index,
		.port_num = VB_PORT,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
		.ndev_ifindex = host->gids[index].ifindex,
	};

	memcpy(all.gid.raw, &host->gids[index].gid, sizeof(all.gid.raw));
	memset(entry, 0, size);
	memcpy(entry, &all, VB_MIN(size, sizeof(all)));
}

VB_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
				struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	const struct vb_device *host = vb_face_host_device(context);

	if (port != VB_PORT || index >= VB_MAX_GIDS || size < sizeof(*entry) || flags)
		return EINVAL;
	if (index >= host->gid_count)
		return ENODATA;
	fill_gid_entry(host, index, entry, size);
	return 0;
}

VB_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				       size_t max_entries, uint32_t flags, size_t size)
{
	const struct vb_device *host = vb_face_host_device(context);
	uint32_t i;

	if (size < sizeof(*entries) || flags)
		return -EINVAL;
	if (max_entries < host->gid_count)
		return -EINVAL;
	for (i = 0; i < host->gid_count; i++)
		fill_gid_entry(host, i, (char *)entries + i * size, size);
	return host->gid_count;
}

/* Private to the old library and its tools, with the numbers of the kernel's sysfs files. */
int vb_face_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	enum { SYSFS_IB_ROCE_V1, SYSFS_ROCE_V2 };
	const struct vb_device *host = vb_face_host_device(context);

	if (port != VB_PORT || index >= VB_MAX_GIDS) {
		errno = EINVAL;
		return -1;
	}
	*type = index < host->gid_count ? SYSFS_ROCE_V2 : SYSFS_IB_ROCE_V1;
	return 0;
}

/* --- the P_Key table: the default, full member ------------------------------------------- */

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	if (port != VB_PORT || index < 0 || index >= (int)VB_PKEY_TABLE) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(0xffff);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	if (port != VB_PORT || pkey != htobe16(0xffff)) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}
