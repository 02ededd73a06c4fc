/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * address.c - from socket addresses to devices and paths: rdma_bind_addr(3), rdma_resolve_addr(3),
 * rdma_resolve_route(3).
 *
 * On RoCE v2 an IP address is a GID, so nobody has to be asked: resolving is choosing the device
 * and its source address. Both calls end at once; their events say how.
 */
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/address.h"
#include "rdmacm/cma.h"

#define ROCE_PORT 4791 /* asked for the route only */
/* IBTA's 4.096 us * 2^16: what Linux says of a RoCE path. Half of it is the least that a queue pair
 * waits for an acknowledgement. */
#define PACKET_LIFE_TIME 16

static bool same(const struct in6_addr *a, const struct in6_addr *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

size_t vb_sockaddr_size(const struct sockaddr *address)
{
	if (!address)
		return 0;
	if (address->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

int vb_endpoint_read(struct vb_endpoint *out, const struct sockaddr *address)
{
	memset(out, 0, sizeof(*out));
	if (vb_sockaddr_size(address) == 0)
		return -EINVAL;
	out->family = (uint8_t)address->sa_family;
	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)address;

		out->address = vb_address_from_ipv4(in->sin_addr);
		out->port = ntohs(in->sin_port);
		out->any = in->sin_addr.s_addr == htonl(INADDR_ANY);
	} else {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;

		out->address = in6->sin6_addr;
		out->port = ntohs(in6->sin6_port);
		out->scope_id = in6->sin6_scope_id;
		out->any = IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
	}
	return 0;
}

void vb_endpoint_write(const struct vb_endpoint *endpoint, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof(*out));
	out->ss_family = endpoint->family;
	if (endpoint->family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)out;

		in->sin_port = htons(endpoint->port);
		memcpy(&in->sin_addr, &endpoint->address.s6_addr[12], sizeof(in->sin_addr));
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

		in6->sin6_port = htons(endpoint->port);
		in6->sin6_addr = endpoint->address;
		in6->sin6_scope_id = endpoint->scope_id;
	}
}

static __be16 port_of(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET)
		return ((const struct sockaddr_in *)address)->sin_port;
	if (address->ss_family == AF_INET6)
		return ((const struct sockaddr_in6 *)address)->sin6_port;
	return 0;
}

/* --- which device ------------------------------------------------------------------------ */

/* The GID that is this address; one that stands for it where none is. -1: not ours. */
static int find_gid(const struct vb_device *device, const struct vb_endpoint *at)
{
	int found = -1;

	if (IN6_IS_ADDR_LINKLOCAL(&at->address) && at->scope_id && at->scope_id != device->ifindex)
		return -1;
	for (unsigned int i = 0; i < device->gid_count; i++) {
		if (same(&device->gids[i].gid, &at->address))
			return (int)i;
		if (found < 0 && same(&device->gids[i].address, &at->address))
			found = (int)i;
	}
	return found;
}

/* A source address of the device for this destination: of its family, link-local for link-local.
 * -1: the device has none. */
static int choose_gid(const struct vb_device *device, const struct vb_endpoint *destination)
{
	bool link_local = IN6_IS_ADDR_LINKLOCAL(&destination->address);
	int second_choice = -1;

	for (unsigned int i = 0; i < device->gid_count; i++) {
		const struct in6_addr *gid = &device->gids[i].gid;

		if (!same(gid, &device->gids[i].address) ||
		    vb_address_is_ipv4(gid) != vb_address_is_ipv4(&destination->address))
			continue;
		if ((bool)IN6_IS_ADDR_LINKLOCAL(gid) == link_local)
			return (int)i;
		second_choice = (int)i;
	}
	return second_choice;
}

/* Whether this is but another name of this host: a loopback address where no device has one, as in
 * the kernel, which takes it for the wildcard. Where a device has one, they are the names of
 * virtual hosts. */
static bool names_this_host(const struct vb_endpoint *at)
{
	struct vb_adapter *list;
	int count = vb_adapters(&list);

	if (!vb_address_is_virtual_host(&at->address) && !IN6_IS_ADDR_LOOPBACK(&at->address))
		return false;
	for (int i = 0; i < count; i++)
		for (unsigned int k = 0; k < list[i].host->gid_count; k++)
			if (vb_address_is_virtual_host(&list[i].host->gids[k].gid) ||
			    IN6_IS_ADDR_LOOPBACK(&list[i].host->gids[k].gid))
				return false;
	return true;
}

static struct vb_adapter *find_adapter(const struct vb_endpoint *at, unsigned int *sgid_index)
{
	struct vb_adapter *list;
	int count = vb_adapters(&list);

	for (int i = 0; i < count; i++) {
		int gid = find_gid(list[i].host, at);

		if (gid >= 0) {
			*sgid_index = (unsigned int)gid;
			return &list[i];
		}
	}
	return NULL;
}

/* The way that the system would take: from the source (any where NULL) to the destination. 0, with
 * the source that it chose, or -errno. */
static int ask_route(const struct vb_endpoint *source, const struct vb_endpoint *destination,
		     struct vb_endpoint *chosen)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	struct vb_endpoint to = *destination;
	int rc = 0, fd;

	to.family = vb_address_is_ipv4(&to.address) ? AF_INET : AF_INET6;
	fd = socket(to.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (source) {
		struct vb_endpoint from = *source;

		from.port = 0;
		vb_endpoint_write(&from, &address);
		if (bind(fd, (struct sockaddr *)&address,
			 (socklen_t)vb_sockaddr_size((struct sockaddr *)&address)) < 0)
			rc = -errno;
	}
	to.port = ROCE_PORT;
	vb_endpoint_write(&to, &address);
	if (rc == 0 && connect(fd, (struct sockaddr *)&address,
			       (socklen_t)vb_sockaddr_size((struct sockaddr *)&address)) < 0)
		rc = -errno;
	if (rc == 0 && getsockname(fd, (struct sockaddr *)&address, &length) < 0)
		rc = -errno;
	close(fd);
	return rc ?: vb_endpoint_read(chosen, (struct sockaddr *)&address);
}

/* The device for a destination, where the program named none. -ENETUNREACH: none has an address of
 * its family. */
static int choose_adapter(const struct vb_endpoint *destination, struct vb_adapter **out,
			  unsigned int *sgid_index)
{
	struct vb_endpoint source;
	struct vb_adapter *list;
	int count = vb_adapters(&list);

	if (count > 1 && !destination->any && ask_route(NULL, destination, &source) == 0) {
		*out = find_adapter(&source, sgid_index);
		if (*out)
			return 0;
	}
	for (int i = 0; i < count; i++) {
		int gid = choose_gid(list[i].host, destination);

		if (gid >= 0) {
			*out = &list[i];
			*sgid_index = (unsigned int)gid;
			return 0;
		}
	}
	return -ENETUNREACH;
}

/* --- an id and its device ---------------------------------------------------------------- */

static void gid_endpoint(const struct vb_device *device, unsigned int index, uint16_t port,
			 struct vb_endpoint *out)
{
	const struct vb_gid *gid = &device->gids[index];

	memset(out, 0, sizeof(*out));
	out->address = gid->address;
	out->family = vb_address_is_ipv4(&gid->address) ? AF_INET : AF_INET6;
	out->port = port;
	if (IN6_IS_ADDR_LINKLOCAL(&gid->address))
		out->scope_id = gid->ifindex;
}

int vb_id_attach(struct vb_id *id, struct vb_adapter *adapter, unsigned int sgid_index)
{
	int rc = vb_adapter_open(adapter);

	if (rc)
		return rc;
	id->adapter = adapter;
	id->engine = adapter->engine;
	id->sgid_index = sgid_index;
	id->pub.verbs = adapter->verbs;
	if (!id->pub.pd)
		id->pub.pd = adapter->pd;
	id->pub.port_num = VB_CMA_PORT;
	id->pub.route.addr.addr.ibaddr.pkey = htons(VB_CMA_PKEY);
	memcpy(id->pub.route.addr.addr.ibaddr.sgid.raw, &adapter->host->gids[sgid_index].gid, 16);
	return 0;
}

static void set_source(struct vb_id *id, const struct vb_endpoint *source)
{
	vb_endpoint_write(source, &id->pub.route.addr.src_storage);
}

static int open_all(unsigned int *mask)
{
	struct vb_adapter *list;
	int count = vb_adapters(&list);

	*mask = 0;
	for (int i = 0; i < count; i++) {
		int rc = vb_adapter_open(&list[i]);

		if (rc)
			return rc;
		*mask |= 1u << i;
	}
	return 0;
}

int vb_id_bind(struct vb_id *id, const struct vb_endpoint *wanted)
{
	struct vb_endpoint binding = *wanted, *at = &binding;
	struct vb_adapter *adapter = NULL;
	unsigned int sgid_index = 0, mask;
	int rc;

	if (vb_id_state(id) != VB_ID_IDLE)
		return -EINVAL;
	at->any = at->any || names_this_host(at);
	if (at->any) {
		rc = open_all(&mask);
	} else {
		adapter = find_adapter(at, &sgid_index);
		if (!adapter)
			return -EADDRNOTAVAIL;
		mask = 1u << adapter->index;
		rc = vb_adapter_open(adapter);
	}
	if (rc == 0)
		rc = vb_port_bind(id, at, mask);
	if (rc)
		return rc;
	if (adapter) {
		rc = vb_id_attach(id, adapter, sgid_index);
		if (rc) {
			vb_port_release(id);
			return rc;
		}
	}
	set_source(id, &id->binding.at);
	vb_id_set_state(id, VB_ID_BOUND);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *pub, struct sockaddr *address)
{
	struct vb_id *id = vb_id(pub);
	struct vb_endpoint at;
	int rc = vb_endpoint_read(&at, address);

	if (rc)
		return vb_cma_result(rc);
	pthread_mutex_lock(&id->busy);
	rc = vb_id_bind(id, &at);
	pthread_mutex_unlock(&id->busy);
	return vb_cma_result(rc);
}

/* --- resolving --------------------------------------------------------------------------- */

/* The device and the source address towards the destination. Nothing of the id changes. */
static int find_way(const struct vb_id *id, const struct vb_endpoint *destination,
		    struct vb_adapter **adapter, unsigned int *sgid_index)
{
	struct vb_endpoint source, chosen;
	int rc = 0, gid;

	*adapter = id->adapter;
	*sgid_index = id->sgid_index;
	if (!*adapter)
		rc = choose_adapter(destination, adapter, sgid_index);
	if (rc || destination->any)
		return rc;
	if (IN6_IS_ADDR_LINKLOCAL(&destination->address) && destination->scope_id &&
	    destination->scope_id != (*adapter)->host->ifindex)
		return -ENETUNREACH;
	gid = id->adapter ? (int)id->sgid_index : choose_gid((*adapter)->host, destination);
	if (gid < 0)
		return -ENETUNREACH;
	gid_endpoint((*adapter)->host, (unsigned int)gid, 0, &source);
	if (vb_address_is_ipv4(&source.address) != vb_address_is_ipv4(&destination->address))
		return -ENETUNREACH;
	return ask_route(&source, destination, &chosen);
}

/* The source may be a wildcard with a port so far; a new id has none. */
static int take_way(struct vb_id *id, struct vb_adapter *adapter, unsigned int sgid_index,
		    uint8_t family)
{
	bool attached = id->adapter != NULL;
	struct vb_endpoint source;
	int rc;

	if (!attached) {
		rc = vb_id_attach(id, adapter, sgid_index);
		if (rc)
			return rc;
	}
	gid_endpoint(adapter->host, sgid_index, id->binding.at.port, &source);
	source.family = family; /* AF_INET6 for a mapped address, where the program says it so */
	if (id->binding.at.port == 0) {
		rc = vb_port_bind(id, &source, 1u << adapter->index);
		if (rc)
			return rc;
		source.port = id->binding.at.port;
	}
	set_source(id, &source);
	return 0;
}

static int resolve(struct vb_id *id, const struct sockaddr *from, const struct sockaddr *to)
{
	struct vb_endpoint destination, source;
	struct vb_adapter *adapter;
	unsigned int sgid_index;
	int rc = vb_endpoint_read(&destination, to);

	if (rc == 0 && from && from->sa_family != AF_UNSPEC)
		rc = vb_endpoint_read(&source, from);
	if (rc)
		return rc;
	if (vb_id_state(id) == VB_ID_IDLE && from && from->sa_family != AF_UNSPEC) {
		if (source.family != destination.family)
			return -EINVAL;
		rc = vb_id_bind(id, &source);
		if (rc)
			return rc;
	}
	if (vb_id_state(id) != VB_ID_IDLE && vb_id_state(id) != VB_ID_BOUND)
		return -EINVAL;
	if (id->binding.at.port && id->binding.at.family != destination.family &&
	    !(IN6_IS_ADDR_UNSPECIFIED(&id->binding.at.address) && !id->one_family))
		return -EINVAL;
	destination.any = destination.any || names_this_host(&destination);

	vb_endpoint_write(&destination, &id->pub.route.addr.dst_storage);
	rc = find_way(id, &destination, &adapter, &sgid_index);
	if (rc == 0)
		rc = take_way(id, adapter, sgid_index, destination.family);
	if (rc)
		return vb_id_raise(id, RDMA_CM_EVENT_ADDR_ERROR, rc);
	if (destination.any) {
		/* nobody in particular: ourselves */
		gid_endpoint(adapter->host, sgid_index, destination.port, &destination);
		vb_endpoint_write(&destination, &id->pub.route.addr.dst_storage);
	}
	memcpy(id->pub.route.addr.addr.ibaddr.dgid.raw, &destination.address, 16);
	vb_id_set_state(id, VB_ID_ADDRESS);
	rc = vb_id_raise(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	if (rc)
		vb_id_set_state(id, VB_ID_BOUND);
	return rc;
}

int rdma_resolve_addr(struct rdma_cm_id *pub, struct sockaddr *source, struct sockaddr *destination,
		      int timeout_ms)
{
	struct vb_id *id = vb_id(pub);
	int rc;

	(void)timeout_ms; /* nobody is asked */
	pthread_mutex_lock(&id->busy);
	rc = resolve(id, source, destination);
	pthread_mutex_unlock(&id->busy);
	return rc ? vb_cma_result(rc) : vb_id_complete(id);
}

/* --- routes ------------------------------------------------------------------------------ */

enum ibv_mtu vb_mtu_to_ibv(uint16_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && bytes > (128u << mtu))
		mtu++;
	return mtu;
}

void vb_ah_attr_to_ibv(const struct vb_ah_attr *from, struct ibv_ah_attr *to)
{
	memset(to, 0, sizeof(*to));
	memcpy(to->grh.dgid.raw, &from->dgid, 16);
	to->grh.flow_label = from->flow_label;
	to->grh.sgid_index = from->sgid_index;
	to->grh.hop_limit = from->hop_limit;
	to->grh.traffic_class = from->traffic_class;
	to->sl = from->sl;
	to->is_global = 1;
	to->port_num = VB_CMA_PORT;
}

/* What tells the connections of two hosts apart, for routers that spread flows: the label that
 * Linux gives them, or the program's own. */
static uint32_t flow_label(const struct vb_id *id)
{
	const struct rdma_addr *address = &id->pub.route.addr;
	uint32_t own = 0;

	if (address->src_addr.sa_family == AF_INET6)
		own = ntohl(address->src_sin6.sin6_flowinfo) & 0xfffff;
	if (own)
		return own;
	return (ntohs(port_of(&address->src_storage)) * 31u +
		ntohs(port_of(&address->dst_storage))) &
	       0xfffff;
}

int vb_id_fill_path(struct vb_id *id)
{
	const struct vb_peering *peering = &id->peering;
	struct ibv_sa_path_rec *path = id->pub.route.path_rec;

	if (!path)
		path = calloc(1, sizeof(*path));
	if (!path)
		return -ENOMEM;
	memcpy(path->dgid.raw, &peering->ah.dgid, 16);
	memcpy(path->sgid.raw, id->pub.route.addr.addr.ibaddr.sgid.raw, 16);
	path->flow_label = htonl(peering->ah.flow_label);
	path->hop_limit = peering->ah.hop_limit;
	path->traffic_class = peering->ah.traffic_class;
	path->reversible = 1;
	path->numb_path = 1;
	path->pkey = htons(VB_CMA_PKEY);
	path->sl = peering->ah.sl;
	path->mtu_selector = path->rate_selector = path->packet_life_time_selector = 2; /* exact */
	path->mtu = (uint8_t)vb_mtu_to_ibv(peering->path_mtu);
	path->rate = IBV_RATE_40_GBPS;
	path->packet_life_time = PACKET_LIFE_TIME;
	if (id->ack_timeout_set && id->ack_timeout)
		path->packet_life_time = (uint8_t)(id->ack_timeout - 1);
	path->preference = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
	id->pub.route.path_rec = path;
	id->pub.route.num_paths = 1;
	return 0;
}

int vb_id_route(struct vb_id *id)
{
	struct vb_peering *peering = &id->peering;
	int rc;

	if (vb_id_state(id) != VB_ID_ADDRESS)
		return -EINVAL;
	memset(peering, 0, sizeof(*peering));
	memcpy(&peering->ah.dgid, id->pub.route.addr.addr.ibaddr.dgid.raw, 16);
	peering->ah.flow_label = flow_label(id);
	peering->ah.sgid_index = (uint8_t)id->sgid_index;
	peering->ah.hop_limit = VB_CMA_HOP_LIMIT;
	peering->ah.traffic_class = id->tos;
	peering->ah.port_num = VB_CMA_PORT;
	peering->ah.is_global = true;
	peering->path_mtu = (uint16_t)id->adapter->host->active_path_mtu;
	rc = vb_id_fill_path(id);
	if (rc)
		return rc;
	vb_id_set_state(id, VB_ID_ROUTE);
	rc = vb_id_raise(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	if (rc)
		vb_id_set_state(id, VB_ID_ADDRESS);
	return rc;
}

int rdma_resolve_route(struct rdma_cm_id *pub, int timeout_ms)
{
	struct vb_id *id = vb_id(pub);
	int rc;

	(void)timeout_ms;
	pthread_mutex_lock(&id->busy);
	rc = vb_id_route(id);
	pthread_mutex_unlock(&id->busy);
	return rc ? vb_cma_result(rc) : vb_id_complete(id);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.src_storage);
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.dst_storage);
}
