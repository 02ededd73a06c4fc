/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * option.c - rdma_set_option(3), and what the ends say about their connections beyond the standard
 * (rdma_set_local_ece(3)).
 */
#include <string.h>

#include "rdmacm/cma.h"

#define ACK_TIMEOUT_MAX 31 /* five bits */

static int set_reuse(struct vb_id *id, int value)
{
	enum vb_id_state state = vb_id_state(id);

	if (state != VB_ID_IDLE && (!value || state == VB_ID_LISTENING))
		return -EINVAL;
	id->reuse_address = value != 0;
	return 0;
}

static int set_one_family(struct vb_id *id, int value)
{
	if (vb_id_state(id) != VB_ID_IDLE)
		return -EINVAL; /* the port is claimed, for one family or for both */
	id->one_family = value != 0;
	return 0;
}

static int set_ack_timeout(struct vb_id *id, uint8_t value)
{
	if (vb_id_is_datagram(id) || value > ACK_TIMEOUT_MAX)
		return -EINVAL;
	id->ack_timeout = value;
	id->ack_timeout_set = true;
	return 0;
}

static int set_id_option(struct vb_id *id, int option, const void *value, size_t size)
{
	size_t wanted = option == RDMA_OPTION_ID_TOS || option == RDMA_OPTION_ID_ACK_TIMEOUT
				? sizeof(uint8_t)
				: sizeof(int);
	int word = 0;

	if (option < RDMA_OPTION_ID_TOS || option > RDMA_OPTION_ID_ACK_TIMEOUT)
		return -ENOSYS;
	if (size != wanted || !value)
		return -EINVAL;
	memcpy(&word, value, size); /* little endian: a byte is the word's first */
	switch (option) {
	case RDMA_OPTION_ID_TOS:
		id->tos = *(const uint8_t *)value;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		return set_reuse(id, word);
	case RDMA_OPTION_ID_AFONLY:
		return set_one_family(id, word);
	default:
		return set_ack_timeout(id, *(const uint8_t *)value);
	}
}

/* A path that the program knows: what leads elsewhere than the addresses do is refused, what
 * describes the way is taken. */
static int set_path(struct vb_id *id, const struct ibv_path_data *paths, size_t size)
{
	const struct ibv_path_record *path = NULL;
	uint8_t mtu;
	int rc;

	if (!paths || size == 0 || size % sizeof(*paths))
		return -EINVAL;
	for (size_t i = 0; i < size / sizeof(*paths) && !path; i++)
		if (paths[i].flags & IBV_PATH_FLAG_PRIMARY)
			path = &paths[i].path;
	if (!path || vb_id_state(id) != VB_ID_ADDRESS ||
	    memcmp(path->dgid.raw, id->pub.route.addr.addr.ibaddr.dgid.raw, 16) != 0)
		return -EINVAL;
	rc = vb_id_route(id);
	if (rc)
		return rc;
	mtu = path->mtu & 0x3f;
	if (mtu >= IBV_MTU_256 && mtu < id->pub.route.path_rec->mtu) {
		id->pub.route.path_rec->mtu = mtu;
		id->peering.path_mtu = (uint16_t)(128u << mtu);
	}
	return 0;
}

int rdma_set_option(struct rdma_cm_id *pub, int level, int option, void *value, size_t size)
{
	struct vb_id *id = vb_id(pub);
	int rc = -ENOSYS;

	pthread_mutex_lock(&id->busy);
	if (level == RDMA_OPTION_ID)
		rc = set_id_option(id, option, value, size);
	else if (level == RDMA_OPTION_IB && option == RDMA_OPTION_IB_PATH)
		rc = set_path(id, value, size);
	pthread_mutex_unlock(&id->busy);
	return vb_cma_result(rc);
}

/* Our queue pairs have no options of their own (ibv_query_ece(3)), so messages carry none: no peer
 * is told what the program says, and none says anything. */
int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece || !ece->vendor_id || ece->comp_mask)
		return vb_cma_result(-EINVAL);
	return 0;
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece)
		return vb_cma_result(-EINVAL);
	memset(ece, 0, sizeof(*ece));
	return 0;
}
