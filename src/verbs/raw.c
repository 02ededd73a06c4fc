/* SPDX-License-Identifier: BSD-2-Clause */
/* raw.c - raw packet queue pairs: what they are made with, their send requests, the device's caps.
 */
#include "verbs/raw.h"

#include <errno.h>
#include <string.h>

#define SAME(core, verbs) _Static_assert((int)(core) == (int)(verbs), #core)
SAME(VB_QPT_RAW_PACKET, IBV_QPT_RAW_PACKET);
SAME(VB_WR_TSO, IBV_WR_TSO);
SAME(VB_SEND_IP_CSUM, IBV_SEND_IP_CSUM);
SAME(VB_WC_TSO, IBV_WC_TSO);
SAME(VB_WC_IP_CSUM_OK, IBV_WC_IP_CSUM_OK);
SAME(VB_RSS_SRC_IPV4, IBV_RX_HASH_SRC_IPV4);
SAME(VB_RSS_DST_IPV4, IBV_RX_HASH_DST_IPV4);
SAME(VB_RSS_SRC_IPV6, IBV_RX_HASH_SRC_IPV6);
SAME(VB_RSS_DST_IPV6, IBV_RX_HASH_DST_IPV6);
SAME(VB_RSS_SRC_PORT_TCP, IBV_RX_HASH_SRC_PORT_TCP);
SAME(VB_RSS_DST_PORT_TCP, IBV_RX_HASH_DST_PORT_TCP);
SAME(VB_RSS_SRC_PORT_UDP, IBV_RX_HASH_SRC_PORT_UDP);
SAME(VB_RSS_DST_PORT_UDP, IBV_RX_HASH_DST_PORT_UDP);

#define RSS_MASK (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH)
#define SEND_FLAGS                                                                                 \
	(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE | IBV_SEND_FENCE |               \
	 IBV_SEND_IP_CSUM)

void vb_face_raw_tables(struct verbs_context *verbs)
{
	verbs->create_wq = vb_face_create_wq;
	verbs->modify_wq = vb_face_modify_wq;
	verbs->destroy_wq = vb_face_destroy_wq;
	verbs->create_rwq_ind_table = vb_face_create_rwq_ind_table;
	verbs->destroy_rwq_ind_table = vb_face_destroy_rwq_ind_table;
	verbs->ibv_create_flow = vb_face_create_flow;
	verbs->ibv_destroy_flow = vb_face_destroy_flow;
	verbs->create_counters = vb_face_create_counters;
	verbs->destroy_counters = vb_face_destroy_counters;
	verbs->attach_counters_point_flow = vb_face_attach_counters_point_flow;
	verbs->read_counters = vb_face_read_counters;
}

void vb_face_raw_caps(struct ibv_device_attr_ex *attr)
{
	attr->tso_caps = (struct ibv_tso_caps){
		.max_tso = VB_MAX_TSO,
		.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
	};
	attr->rss_caps = (struct ibv_rss_caps){
		.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
		.max_rwq_indirection_tables = VB_MAX_WQ_TABLES,
		.max_rwq_indirection_table_size = 1u << VB_MAX_WQ_TABLE_BITS,
		.rx_hash_fields_mask = VB_RSS_ALL,
		.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
	};
	attr->max_wq_type_rq = VB_MAX_WQ;
	attr->raw_packet_caps = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_IP_CSUM;
}

static int init_rss(const struct ibv_qp_init_attr_ex *attr, struct vb_rss *rss)
{
	const struct ibv_rx_hash_conf *hash = &attr->rx_hash_conf;
	struct vb_face_wq_table *table;

	/* One without the other says nothing. */
	if ((attr->comp_mask & RSS_MASK) != RSS_MASK || !attr->rwq_ind_tbl ||
	    attr->rwq_ind_tbl->context != attr->pd->context || attr->srq || attr->send_cq ||
	    attr->recv_cq)
		return -EINVAL;
	if (hash->rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ)
		return -EOPNOTSUPP;
	if (hash->rx_hash_key_len != VB_RSS_KEY_BYTES || !hash->rx_hash_key)
		return -EINVAL;
	if (hash->rx_hash_fields_mask & (IBV_RX_HASH_IPSEC_SPI | (uint64_t)IBV_RX_HASH_INNER))
		return -EOPNOTSUPP;
	if (!vb_rss_fields_are_valid(hash->rx_hash_fields_mask))
		return -EINVAL;
	table = vb_container_of(attr->rwq_ind_tbl, struct vb_face_wq_table, ibv);
	rss->table = table->core;
	rss->fields = (uint32_t)hash->rx_hash_fields_mask;
	memcpy(rss->key, hash->rx_hash_key, sizeof(rss->key));
	return 0;
}

int vb_face_raw_init(const struct ibv_qp_init_attr_ex *attr, struct vb_qp_init *init,
		     struct vb_rss *rss)
{
	const uint32_t flags =
		attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? attr->create_flags : 0;
	int error;

	if (flags & ~(uint32_t)IBV_QP_CREATE_CVLAN_STRIPPING)
		return -EOPNOTSUPP;
	if (attr->comp_mask & RSS_MASK) {
		if (flags || attr->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER)
			return -EINVAL;
		error = init_rss(attr, rss);
		init->rss = rss;
		return error;
	}
	init->strip_vlan = flags & IBV_QP_CREATE_CVLAN_STRIPPING;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER)
		init->max_tso_header = attr->max_tso_header;
	return 0;
}

int vb_face_raw_post(struct vb_face_qp *qp, const struct ibv_send_wr *wr)
{
	struct vb_send_wr core = {
		.wr_id = wr->wr_id,
		.sges = (const struct vb_sge *)wr->sg_list,
		.num_sge = (uint32_t)wr->num_sge,
		.opcode = (enum vb_wr_opcode)wr->opcode,
		.flags = wr->send_flags,
	};

	if (wr->send_flags & ~(unsigned int)SEND_FLAGS || (!wr->sg_list && wr->num_sge))
		return -EINVAL;
	if (wr->opcode == IBV_WR_TSO) {
		core.tso_header = wr->tso.hdr;
		core.tso_header_bytes = wr->tso.hdr_sz;
		core.tso_mss = wr->tso.mss;
	}
	return vb_qp_post_send(qp->core, &core);
}
