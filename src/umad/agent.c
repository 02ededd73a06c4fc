/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * agent.c - who sends and receives MADs on a port: registering, and what comes in.
 *
 * What may be registered is what Linux's ib_mad takes: a known class, RMPP only for a class that
 * has it, a vendor's OUI for a vendor's class.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "host/address.h"
#include "umad/face.h"

#define CLASS_DEVICE_MANAGEMENT 0x06
#define CLASS_DEVICE_ADMIN 0x10
#define CLASS_INSTRUMENTATION 0x12 /* BIS */
#define CLASS_LAST VB_UMAD_VENDOR_LAST
#define CLASS_VERSION_LAST 0x82
#define OUI_OPENIB 0x001405u
#define OUI_AT 37 /* of a vendor's MAD: behind the RMPP header and a reserved byte */

static bool is_vendor(uint8_t mgmt_class)
{
	return mgmt_class >= VB_UMAD_VENDOR_FIRST && mgmt_class <= VB_UMAD_VENDOR_LAST;
}

static bool is_subnet(uint8_t mgmt_class)
{
	return mgmt_class == VB_MAD_SUBNET || mgmt_class == VB_MAD_SUBNET_DIRECTED;
}

bool vb_umad_has_rmpp(uint8_t mgmt_class)
{
	return mgmt_class == VB_MAD_SUBNET_ADMIN || mgmt_class == CLASS_DEVICE_MANAGEMENT ||
	       mgmt_class == CLASS_DEVICE_ADMIN || mgmt_class == CLASS_INSTRUMENTATION ||
	       is_vendor(mgmt_class);
}

static int check(const struct umad_reg_attr *attr)
{
	bool takes_requests = attr->method_mask[0] || attr->method_mask[1];

	if (attr->mgmt_class == 0) /* only sends, any class */
		return takes_requests || attr->rmpp_version ? -EINVAL : 0;
	if (attr->mgmt_class > CLASS_LAST && !is_subnet(attr->mgmt_class))
		return -EINVAL;
	if (attr->mgmt_class_version > CLASS_VERSION_LAST)
		return -EINVAL;
	if (is_vendor(attr->mgmt_class) && (attr->oui == 0 || attr->oui > 0xffffff))
		return -EINVAL;
	return attr->rmpp_version && !vb_umad_has_rmpp(attr->mgmt_class) ? -EINVAL : 0;
}

/* --- what comes in ----------------------------------------------------------------------- */

/* Of a port of our own subnet: programs answer by it. */
static __be16 lid_of(const struct vb_device *device, const struct in6_addr *source)
{
	const struct in6_addr *own = &device->gids[VB_UMAD_NAMED_GID].gid;
	__be16 lid = 0;

	if (device->lid && memcmp(own, source, 14) == 0)
		memcpy(&lid, &source->s6_addr[14], sizeof(lid));
	return lid;
}

static void describe_source(const struct vb_device *device, const struct vb_gsi_rx *rx,
			    ib_mad_addr_t *addr)
{
	const struct vb_ah_attr *ah = &rx->path.ah;

	addr->lid = lid_of(device, &ah->dgid);
	addr->qpn = htobe32(rx->src_qpn);
	addr->qkey = htobe32(rx->qkey);
	addr->sl = ah->sl;
	addr->grh_present = 1;
	addr->gid_index = ah->sgid_index;
	addr->hop_limit = ah->hop_limit;
	addr->traffic_class = ah->traffic_class;
	addr->flow_label = htobe32(ah->flow_label);
	memcpy(addr->gid, &ah->dgid, sizeof(addr->gid));
}

static bool is_own(const struct vb_device *device, const struct in6_addr *address)
{
	for (unsigned int i = 0; i < device->gid_count; i++)
		if (memcmp(&device->gids[i].address, address, sizeof(*address)) == 0)
			return true;
	return false;
}

/* A host of several addresses may answer itself from any of them. */
bool vb_umad_is_from(const struct vb_umad_port *port, const struct in6_addr *source,
		     const struct in6_addr *asked)
{
	const struct in6_addr a = vb_gid_to_address(source), b = vb_gid_to_address(asked);

	return memcmp(&a, &b, sizeof(a)) == 0 ||
	       (is_own(port->device, &a) && is_own(port->device, &b));
}

/* The request that this answers: of the same agent, transaction ID and class, to that host. */
struct vb_umad_send *vb_umad_find_request(const struct vb_umad_agent *agent,
					  const struct vb_gsi_rx *rx)
{
	const uint8_t *mad = rx->mad;
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &agent->port->sends)
	{
		struct vb_umad_send *send = vb_list_entry(link, struct vb_umad_send, link);

		if (send->message->head.agent_id == agent->id &&
		    memcmp(send->message->mad + 8, mad + 8, 8) == 0 &&
		    send->message->mad[1] == mad[1] && !vb_umad_is_response(send->message->mad) &&
		    send->by_wire &&
		    vb_umad_is_from(agent->port, &rx->path.ah.dgid, &send->to.ah.dgid))
			return send;
	}
	return NULL;
}

bool vb_umad_is_for_vendor(const struct vb_umad_agent *agent, const uint8_t *mad)
{
	return !is_vendor(agent->mgmt_class) ||
	       memcmp(mad + OUI_AT, agent->oui, sizeof(agent->oui)) == 0;
}

static bool is_wanted(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx)
{
	struct vb_umad_send *send;

	if (!vb_umad_is_response(rx->mad))
		return vb_umad_is_for_vendor(agent, rx->mad);
	send = vb_umad_find_request(agent, rx);
	if (send)
		vb_umad_send_forget(agent->port, send);
	return send || vb_umad_rmpp_is_programs(agent, rx->mad);
}

void vb_umad_deliver(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx,
		     struct vb_umad_message *message)
{
	if (!is_wanted(agent, rx)) {
		free(message);
		return;
	}
	message->head.agent_id = agent->id;
	message->head.length = (uint32_t)sizeof(message->head) + message->length;
	describe_source(agent->port->device, rx, &message->head.addr);
	vb_umad_queue(agent->port, message);
}

static void deliver_one(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx)
{
	struct vb_umad_message *message = vb_umad_message_create(VB_MAD_BYTES);

	if (!message) /* lost, as on the way here */
		return;
	memcpy(message->mad, rx->mad, VB_MAD_BYTES);
	vb_umad_deliver(agent, rx, message);
}

/* Inside the engine, perhaps in its background thread. */
static void received(void *env, const struct vb_gsi_rx *rx)
{
	struct vb_umad_agent *agent = env;

	pthread_mutex_lock(&agent->port->lock);
	if (vb_umad_rmpp_is_ours(agent, rx->mad))
		vb_umad_rmpp_received(agent, rx);
	else
		deliver_one(agent, rx);
	pthread_mutex_unlock(&agent->port->lock);
}

/* --- registering ------------------------------------------------------------------------- */

static int take_place(struct vb_umad_port *port, struct vb_umad_agent *agent)
{
	int rc = -ENOMEM;

	pthread_mutex_lock(&port->lock);
	for (uint32_t i = 0; i < UMAD_CA_MAX_AGENTS && rc; i++) {
		if (port->agents[i])
			continue;
		agent->id = i;
		port->agents[i] = agent;
		rc = 0;
	}
	pthread_mutex_unlock(&port->lock);
	return rc;
}

static void give_place(struct vb_umad_agent *agent)
{
	pthread_mutex_lock(&agent->port->lock);
	agent->port->agents[agent->id] = NULL;
	pthread_mutex_unlock(&agent->port->lock);
}

/* Requests of several agents for subnet management differ by a count; nobody else sees them. */
static uint32_t subnet_tid(void)
{
	static uint32_t last;

	return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

static int attach(struct vb_umad_agent *agent, const struct umad_reg_attr *attr)
{
	const uint32_t methods[4] = {
		(uint32_t)attr->method_mask[0],
		(uint32_t)(attr->method_mask[0] >> 32),
		(uint32_t)attr->method_mask[1],
		(uint32_t)(attr->method_mask[1] >> 32),
	};
	int rc;

	if (is_subnet(attr->mgmt_class)) {
		agent->tid = subnet_tid();
		return 0;
	}
	rc = vb_gsi_agent_create(agent->port->engine, attr->mgmt_class, attr->mgmt_class_version,
				 methods, received, agent, &agent->gsi);
	if (rc)
		return rc;
	agent->tid = vb_gsi_agent_tid(agent->gsi);
	return 0;
}

/* Returns the agent's number, or -errno. */
static int register_agent(struct vb_umad_port *port, const struct umad_reg_attr *attr)
{
	struct vb_umad_agent *agent;
	int rc = check(attr);

	if (rc)
		return rc;
	agent = calloc(1, sizeof(*agent));
	if (!agent)
		return -ENOMEM;
	agent->port = port;
	agent->mgmt_class = attr->mgmt_class;
	agent->oui[0] = (uint8_t)(attr->oui >> 16);
	agent->oui[1] = (uint8_t)(attr->oui >> 8);
	agent->oui[2] = (uint8_t)attr->oui;
	agent->rmpp = attr->rmpp_version && !(attr->flags & UMAD_USER_RMPP);
	rc = take_place(port, agent);
	if (rc)
		goto err_free;
	rc = attach(agent, attr);
	if (rc)
		goto err_place;
	return (int)agent->id;
err_place:
	give_place(agent);
err_free:
	free(agent);
	return rc;
}

void vb_umad_agent_destroy(struct vb_umad_agent *agent)
{
	if (!agent)
		return;
	vb_gsi_agent_destroy(agent->gsi);
	free(agent);
}

/* Its messages may come in until it is destroyed. */
static void forget_agent(struct vb_umad_port *port, struct vb_umad_agent *agent)
{
	if (!agent)
		return;
	vb_gsi_agent_destroy(agent->gsi);
	pthread_mutex_lock(&port->lock);
	vb_umad_rmpp_forget(port, agent);
	pthread_mutex_unlock(&port->lock);
	free(agent);
}

static int register_by_fd(int fd, const struct umad_reg_attr *attr)
{
	struct vb_umad_port *port = vb_umad_port_get(fd);
	int rc;

	if (!port)
		return -EBADF;
	rc = register_agent(port, attr);
	vb_umad_port_put(port);
	vb_umad_trace("register class 0x%02x version %u on %d: %d", attr->mgmt_class,
		      attr->mgmt_class_version, fd, rc);
	return rc;
}

static void set_methods(struct umad_reg_attr *attr, const long *method_mask)
{
	if (method_mask)
		memcpy(attr->method_mask, method_mask, sizeof(attr->method_mask));
}

static int plain_result(int rc)
{
	if (rc >= 0)
		return rc;
	errno = -rc;
	return rc == -EBADF ? -EINVAL : -EPERM;
}

int umad_register(int portid, int mgmt_class, int mgmt_version, uint8_t rmpp_version,
		  long method_mask[16 / sizeof(long)])
{
	struct umad_reg_attr attr = {
		.mgmt_class = (uint8_t)mgmt_class,
		.mgmt_class_version = (uint8_t)mgmt_version,
		.oui = OUI_OPENIB,
		.rmpp_version = rmpp_version,
	};

	set_methods(&attr, method_mask);
	return plain_result(register_by_fd(portid, &attr));
}

int umad_register_oui(int portid, int mgmt_class, uint8_t rmpp_version, uint8_t oui[3],
		      long method_mask[16 / sizeof(long)])
{
	struct umad_reg_attr attr = {
		.mgmt_class = (uint8_t)mgmt_class,
		.mgmt_class_version = 1,
		.oui = (uint32_t)oui[0] << 16 | (uint32_t)oui[1] << 8 | oui[2],
		.rmpp_version = rmpp_version,
	};

	if (mgmt_class < VB_UMAD_VENDOR_FIRST || mgmt_class > VB_UMAD_VENDOR_LAST)
		return -EINVAL;
	set_methods(&attr, method_mask);
	return plain_result(register_by_fd(portid, &attr));
}

int umad_register2(int port_fd, struct umad_reg_attr *attr, uint32_t *agent_id)
{
	int rc;

	if (!attr || !agent_id)
		return EINVAL;
	if (attr->flags & ~(uint32_t)UMAD_USER_RMPP) {
		attr->flags = UMAD_USER_RMPP;
		return EINVAL;
	}
	rc = register_by_fd(port_fd, attr);
	if (rc < 0)
		return rc == -EBUSY ? EINVAL : -rc;
	*agent_id = (uint32_t)rc;
	return 0;
}

/* What it sent is not waited for any more; what has come for it can still be received. */
int umad_unregister(int portid, int agentid)
{
	struct vb_umad_port *port = vb_umad_port_get(portid);
	struct vb_umad_agent *agent = NULL;
	struct vb_list *link, *tmp;

	if (!port)
		return -EINVAL;
	pthread_mutex_lock(&port->lock);
	if (agentid >= 0 && agentid < UMAD_CA_MAX_AGENTS) {
		agent = port->agents[agentid];
		port->agents[agentid] = NULL;
	}
	if (agent)
		vb_list_for_each(link, tmp, &port->sends)
		{
			struct vb_umad_send *send = vb_list_entry(link, struct vb_umad_send, link);

			if (send->message->head.agent_id == agent->id)
				vb_umad_send_forget(port, send);
		}
	pthread_mutex_unlock(&port->lock);
	forget_agent(port, agent);
	vb_umad_port_put(port);
	return agent ? 0 : -EINVAL;
}
