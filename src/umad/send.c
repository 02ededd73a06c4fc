/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * send.c - sending a MAD: where it goes, who answers it.
 *
 * There is no subnet manager on RoCE and no LID but 0. So LID 0 (and the permissive one, with which
 * directed-route SMPs begin) without a GRH is this port itself, whose agents answer subnet and
 * performance management at once, and other LIDs are nobody: EINVAL, as the kernel says on a RoCE
 * port. With a GRH a MAD goes to QP 1 of the host that the GID names; so it does with a LID where
 * VERBENA_LID=1 gave out LIDs, unless it is an SMP, for which there is no QP 0.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "host/address.h"
#include "host/performance.h"
#include "umad/face.h"
#include "wire/cursor.h"

#define LID_PERMISSIVE 0xffff
#define TID_AT 8

enum kind {
	SINGLE,	 /* one MAD */
	LONG,	 /* to be cut into segments (rmpp.c) */
	SEGMENT, /* one that the program cut: several have one transaction ID */
};

static bool is_subnet(const uint8_t *mad)
{
	return mad[1] == VB_MAD_SUBNET || mad[1] == VB_MAD_SUBNET_DIRECTED;
}

static bool is_to_self(const struct vb_umad_port *port, const ib_mad_addr_t *addr)
{
	uint16_t lid = be16toh(addr->lid);

	return !addr->grh_present &&
	       (lid == 0 || lid == LID_PERMISSIVE || lid == port->device->lid);
}

/* --- the way ----------------------------------------------------------------------------- */

/* A program that knows nothing of GID tables leaves the index 0. IPv4 and IPv6 do not mix, so where
 * that GID is of the other family the first one that fits is meant. */
static uint8_t source_index(const struct vb_device *device, const struct in6_addr *dgid,
			    uint8_t index)
{
	const struct in6_addr to = vb_gid_to_address(dgid);
	bool ipv4 = vb_address_is_ipv4(&to);

	if (index != 0)
		return index;
	for (unsigned int i = 0; i < device->gid_count; i++)
		if (vb_address_is_ipv4(&device->gids[i].address) == ipv4)
			return (uint8_t)i;
	return 0;
}

static int find_way(const struct vb_umad_port *port, const ib_mad_addr_t *addr,
		    struct vb_umad_send *send)
{
	struct vb_ah_attr *ah = &send->to.ah;

	if (is_subnet(send->message->mad))
		return is_to_self(port, addr) ? 0 : -EINVAL;
	if (!addr->grh_present && !is_to_self(port, addr) && !port->device->lid)
		return -EINVAL;
	if (addr->pkey_index >= VB_PKEY_TABLE)
		return -EINVAL;
	send->by_wire = true;
	send->qpn = be32toh(addr->qpn);
	send->qkey = be32toh(addr->qkey);
	*ah = (struct vb_ah_attr){.is_global = true, .port_num = VB_UMAD_PORT, .sl = addr->sl};
	if (!addr->grh_present) {
		ah->sgid_index = VB_UMAD_NAMED_GID;
		ah->dgid = port->device->gids[VB_UMAD_NAMED_GID].gid;
		if (!is_to_self(port, addr)) /* its last bits are the LID */
			memcpy(&ah->dgid.s6_addr[14], &addr->lid, sizeof(addr->lid));
		return 0;
	}
	memcpy(&ah->dgid, addr->gid, sizeof(ah->dgid));
	ah->flow_label = be32toh(addr->flow_label);
	ah->hop_limit = addr->hop_limit;
	ah->traffic_class = addr->traffic_class;
	ah->sgid_index = source_index(port->device, &ah->dgid, addr->gid_index);
	return 0;
}

/* --- answers at once --------------------------------------------------------------------- */

static bool answer_performance(struct vb_umad_port *port, const uint8_t *in, uint8_t *out)
{
	bool answered;

	if (!vb_engine_enter(port->engine))
		return false;
	answered = vb_engine_performance(port->engine, in, out);
	vb_engine_leave(port->engine);
	return answered;
}

/* The answer as if it had come by the port, or NULL. */
static struct vb_umad_message *answer(struct vb_umad_port *port, const struct vb_umad_send *send)
{
	const struct vb_umad_message *request = send->message;
	struct vb_umad_message *reply;
	bool answered;

	if (!is_to_self(port, &request->head.addr))
		return NULL;
	reply = vb_umad_message_create(VB_MAD_BYTES);
	if (!reply)
		return NULL;
	answered = is_subnet(request->mad) ? vb_umad_subnet_answer(port, request->mad, reply->mad)
					   : answer_performance(port, request->mad, reply->mad);
	if (!answered) {
		free(reply);
		return NULL;
	}
	reply->head.agent_id = request->head.agent_id;
	reply->head.length = sizeof(reply->head) + VB_MAD_BYTES;
	reply->head.addr.lid = htobe16(port->device->lid);
	reply->head.addr.qpn = htobe32(is_subnet(request->mad) ? 0 : VB_GSI_QPN);
	return reply;
}

/* --- sending ----------------------------------------------------------------------------- */

/* Two requests of one transaction ID under way cannot be told apart. */
static bool is_duplicate(const struct vb_umad_port *port, const uint8_t *mad)
{
	struct vb_list *link, *tmp;

	if (vb_umad_is_response(mad))
		return false;
	vb_list_for_each(link, tmp, &port->sends)
	{
		const struct vb_umad_send *send = vb_list_entry(link, struct vb_umad_send, link);

		if (memcmp(send->message->mad + TID_AT, mad + TID_AT, 8) == 0 &&
		    send->message->mad[1] == mad[1] && !vb_umad_is_response(send->message->mad))
			return true;
	}
	return false;
}

/* With the port's lock. */
static int wait_for_answer(struct vb_umad_port *port, struct vb_umad_send *send)
{
	int rc;

	if (port->send_count >= VB_UMAD_WAITING)
		return -ENOBUFS;
	send->deadline_ns = vb_umad_deadline(send->message->head.timeout_ms);
	send->serial = ++port->last_serial;
	vb_list_append(&port->sends, &send->link);
	port->send_count++;
	rc = vb_umad_timer_watch(port);
	if (rc) {
		vb_list_remove(&send->link);
		port->send_count--;
	}
	return rc;
}

/* One that did not leave after all, unless it has been given up meanwhile. */
static void take_back(struct vb_umad_port *port, uint64_t serial)
{
	struct vb_list *link, *tmp;

	pthread_mutex_lock(&port->lock);
	vb_list_for_each(link, tmp, &port->sends)
	{
		struct vb_umad_send *send = vb_list_entry(link, struct vb_umad_send, link);

		if (send->serial == serial)
			vb_umad_send_forget(port, send);
	}
	pthread_mutex_unlock(&port->lock);
}

static void free_send(struct vb_umad_send *send)
{
	free(send->message);
	free(send);
}

/* Sends it, and waits for an answer if one is expected. Takes send, whatever comes. */
static int dispatch(struct vb_umad_port *port, struct vb_umad_send *send, enum kind kind)
{
	struct vb_umad_message *reply = answer(port, send);
	bool expected = send->message->head.timeout_ms != 0, waits = expected && !reply;
	uint8_t mad[VB_MAD_BYTES];
	struct vb_umad_send copy;
	int rc = 0;

	memcpy(mad, send->message->mad, sizeof(mad));
	pthread_mutex_lock(&port->lock);
	if (kind != SEGMENT && is_duplicate(port, mad))
		rc = -EINVAL;
	else if (waits)
		rc = wait_for_answer(port, send);
	copy = *send;
	copy.by_wire &= !reply;
	if (reply && rc == 0 && expected)
		vb_umad_queue(port, reply);
	else
		free(reply);
	pthread_mutex_unlock(&port->lock);
	if (rc || !waits)
		free_send(send);
	if (rc || !copy.by_wire)
		return rc;
	rc = vb_gsi_send(port->engine, &copy.to, copy.qpn, copy.qkey, mad);
	if (rc && waits)
		take_back(port, copy.serial);
	return rc;
}

/* A message that is cut is waited for in any case: for its acknowledgements. Takes send. */
static int dispatch_long(struct vb_umad_port *port, struct vb_umad_send *send)
{
	int rc = -EINVAL;

	pthread_mutex_lock(&port->lock);
	if (send->by_wire && !is_duplicate(port, send->message->mad))
		rc = wait_for_answer(port, send);
	if (rc == 0) {
		vb_umad_rmpp_push(port, send);
		vb_umad_rmpp_flush(port);
	}
	pthread_mutex_unlock(&port->lock);
	if (rc)
		free_send(send);
	return rc;
}

static struct vb_umad_send *create(const struct ib_user_mad *umad, uint32_t length)
{
	struct vb_umad_send *send = calloc(1, sizeof(*send));
	struct vb_umad_message *message = vb_umad_message_create(length);

	if (!send || !message) {
		free(send);
		free(message);
		return NULL;
	}
	message->head = *umad;
	message->length = VB_MAD_HEADER_BYTES; /* what comes back when time is up */
	memcpy(message->mad, umad->data, length);
	send->message = message;
	send->retries = umad->retries;
	return send;
}

/* What is to be known of the agent. -EINVAL: there is none. */
static int look_at_agent(struct vb_umad_port *port, const struct ib_user_mad *umad, uint32_t *tid,
			 enum kind *kind)
{
	const struct vb_umad_agent *agent = NULL;

	pthread_mutex_lock(&port->lock);
	if (umad->agent_id < UMAD_CA_MAX_AGENTS)
		agent = port->agents[umad->agent_id];
	if (agent) {
		*tid = agent->tid;
		*kind = vb_umad_rmpp_is_ours(agent, umad->data)	      ? LONG
			: vb_umad_rmpp_is_programs(agent, umad->data) ? SEGMENT
								      : SINGLE;
	}
	pthread_mutex_unlock(&port->lock);
	return agent ? 0 : -EINVAL;
}

static int send_mad(struct vb_umad_port *port, const struct ib_user_mad *umad, int length)
{
	struct vb_umad_send *send;
	enum kind kind;
	uint32_t tid;
	int rc;

	if (length < VB_UMAD_SHORTEST || look_at_agent(port, umad, &tid, &kind) ||
	    (kind != LONG && length > (int)VB_MAD_BYTES))
		return -EINVAL;
	send = create(umad, (uint32_t)length);
	if (!send)
		return -ENOMEM;
	if (!vb_umad_is_response(send->message->mad))
		vb_store_be32(send->message->mad + TID_AT, tid);
	rc = find_way(port, &umad->addr, send);
	if (rc == 0 && kind == LONG)
		rc = vb_umad_rmpp_begin(send, (uint32_t)length);
	if (rc) {
		free_send(send);
		return rc;
	}
	return kind == LONG ? dispatch_long(port, send) : dispatch(port, send, kind);
}

int umad_send(int portid, int agentid, void *umad, int length, int timeout_ms, int retries)
{
	struct vb_umad_port *port = vb_umad_port_get(portid);
	struct ib_user_mad *mad = umad;
	int rc = -EINVAL;

	errno = 0;
	if (port && mad) {
		mad->timeout_ms = (uint32_t)timeout_ms;
		mad->retries = (uint32_t)retries;
		mad->agent_id = (uint32_t)agentid;
		if (umad_debug(-1) > 1)
			umad_dump(mad);
		rc = send_mad(port, mad, length);
	}
	vb_umad_trace("send on %d agent %d length %d timeout %d: %d", portid, agentid, length,
		      timeout_ms, rc);
	if (port)
		vb_umad_port_put(port);
	if (rc == 0)
		return 0;
	errno = -rc;
	return port && mad ? -EIO : -EINVAL;
}
