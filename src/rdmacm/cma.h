/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cma.h - the objects behind librdmacm.so.1.
 *
 * The face is thin: it names queue pairs by IP address and port, and tells the connection manager
 * (cm/cm.h), which the engine of the device drives (host/gsi.h), what to say. Each public struct is
 * the first member of ours, so that a program's pointer is our pointer.
 *
 *      program --> rdma_connect() ...  busy -> engine -> vb_cm_send_req()
 *              <-- rdma_get_cm_event() <- channel <- vb_on_cm_event() <- engine, on any thread
 *
 * Locks, outermost first:
 *
 *      vb_id.busy       one call of the program on an id at a time; never held where a call waits
 *                       for an event
 *      ports, adapters  the process's tables
 *      the engine's     the connection manager is only called inside
 *      vb_cma_lock      queues of events and the state of every id; a leaf: nothing is called under
 *                       it but the system
 *
 * What happens to an id:
 *
 *      IDLE - bind -> BOUND - listen -> LISTENING
 *        |              |
 *        +- resolve_addr -> ADDRESS - resolve_route -> ROUTE - connect -> CONNECTING
 *                                                                             | REP
 *      a listener's child: REQUESTED - accept -> ACCEPTED - RTU -> CONNECTED <- RESPONDED
 *                                                                     | DREQ, DREP
 *                          FAILED: rejected, nobody answered       DISCONNECTED
 */
#ifndef VB_RDMACM_CMA_H
#define VB_RDMACM_CMA_H

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* What the headers declare is what the library exports. */
#pragma GCC visibility push(default)
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#pragma GCC visibility pop

#include "base/list.h"
#include "cm/cm.h"
#include "cm/ip.h"
#include "host/gsi.h"
#include "host/host.h"

#define VB_CMA_PORT 1u /* the only port of a device */
#define VB_CMA_PKEY 0xffffu
#define VB_CMA_HOP_LIMIT 64u

/* Bytes of private data that are the program's. */
#define VB_CMA_CONNECT_PRIVATE (VB_CM_REQ_PRIVATE - VB_CM_IP_HEADER_BYTES)
#define VB_CMA_LOOKUP_PRIVATE (VB_CM_SIDR_REQ_PRIVATE - VB_CM_IP_HEADER_BYTES)

/* struct vb_adapter - a device of this process; opened when it is first needed, then for good. */
struct vb_adapter {
	struct ibv_device *ibv;
	struct vb_device *host;
	unsigned int index;
	/* once opened */
	struct ibv_context *verbs;
	struct ibv_pd *pd;     /* for ids whose program brings none */
	struct ibv_xrcd *xrcd; /* the same; NULL until one is needed */
	struct vb_engine *engine;
	uint8_t max_responder_resources, max_initiator_depth;
	uint8_t ack_delay; /* local_ca_ack_delay */
};

/* struct vb_endpoint - a socket address. */
struct vb_endpoint {
	struct in6_addr address; /* IPv4 mapped */
	uint32_t scope_id;
	uint16_t port; /* host order */
	uint8_t family;
	bool any; /* the family's wildcard, or a loopback address that names no device */
};

struct vb_channel {
	struct rdma_event_channel pub; /* fd: an eventfd, one token for each event that waits */
	struct vb_list events;	       /* struct vb_id_event */
	uint32_t debt;		       /* tokens that a taker holds for events that vanished */
	uint32_t takers;	       /* threads inside rdma_get_cm_event() */
	bool destroyed;		       /* the last taker ends it */
	pthread_t destroyer;
};

enum vb_id_state {
	VB_ID_IDLE,
	VB_ID_BOUND,
	VB_ID_ADDRESS,
	VB_ID_ROUTE,
	VB_ID_LISTENING,
	VB_ID_CONNECTING,
	VB_ID_RESPONDED, /* REP received, RTU not sent */
	VB_ID_REQUESTED, /* REQ received, not answered */
	VB_ID_ACCEPTED,	 /* REP sent, RTU not received */
	VB_ID_CONNECTED,
	VB_ID_DISCONNECTED,
	VB_ID_FAILED,
	VB_ID_DYING, /* being destroyed: no event comes any more */
};

/* struct vb_binding - the port that an id holds, on some of the devices. */
struct vb_binding {
	struct vb_list link;   /* in the process's list of bound ids */
	unsigned int adapters; /* bit i: adapter i */
	unsigned int families; /* enum vb_port_families */
	struct vb_endpoint at;
	bool listening;
};

/* struct vb_peering - what both ends have said about a connection (cm/cm.h). */
struct vb_peering {
	struct vb_ah_attr ah; /* to the peer */
	uint32_t qpn;	      /* the peer's */
	uint32_t sq_psn;      /* with which we are to begin */
	uint16_t path_mtu;    /* bytes */
	uint8_t ack_timeout, retry_count, rnr_retry_count;
	uint8_t responder_resources, initiator_depth; /* ours */
	bool known;				      /* the peer's numbers have come */
};

struct vb_id {
	struct rdma_cm_id pub;
	pthread_mutex_t busy;
	bool sync; /* it owns its channel, and calls wait for their event */
	struct vb_adapter *adapter;
	/* the adapter's when it was bound; another than the adapter's now in a forked child */
	struct vb_engine *engine;
	unsigned int sgid_index;
	struct vb_binding binding;

	/* options */
	uint8_t tos, ack_timeout;
	bool ack_timeout_set, reuse_address, one_family;
	struct ibv_qp_init_attr *request_qp; /* rdma_create_ep: of the QPs of requests */
	void *connect_data;		     /* rdma_create_ep: goes before private data */
	size_t connect_data_len;

	uint32_t qpn;	 /* what our REQ said */
	uint32_t rq_psn; /* with which the peer is to begin: what a REQ or REP calls the starting
			    PSN */
	struct vb_cm_conn *conn;
	struct vb_cm_listener *listeners[VB_MAX_DEVICES];
	struct vb_list groups;

	/* under vb_cma_lock */
	enum vb_id_state state;
	struct vb_channel *channel;
	struct vb_id *listener; /* whose request this is, until the program has taken it */
	struct vb_peering peering;
	uint32_t unacknowledged; /* events that the program has */
	unsigned int backlog, requests;
	bool peer_disconnects; /* a DREQ waits for our DREP */
	bool told_of_failure;  /* CONNECT_ERROR was given: neither REJECTED nor DISCONNECTED are */
};

struct vb_group {
	struct vb_list link;
	struct sockaddr_storage address;
	void *context;
	union ibv_gid mgid;
	bool send_only, attached;
	uint32_t unacknowledged;
};

struct vb_id_event {
	struct rdma_cm_event pub;
	struct vb_list link;
	struct vb_id *owner; /* who waits for its acknowledgement */
	struct vb_group *group;
	uint8_t private_data[VB_CM_PRIVATE_MAX];
};

extern pthread_mutex_t vb_cma_lock;

static inline struct vb_id *vb_id(struct rdma_cm_id *id)
{
	return vb_container_of(id, struct vb_id, pub);
}

/* vb_cma_result - the face's convention for 0 or -errno. */
static inline int vb_cma_result(int rc)
{
	if (rc >= 0)
		return rc;
	errno = -rc;
	return -1;
}

/* --- device.c ---------------------------------------------------------------------------- */
/* vb_adapters - all devices. Returns how many (at least one) or -errno. */
int vb_adapters(struct vb_adapter **list);
/* vb_adapter_open - 0 or -errno. */
int vb_adapter_open(struct vb_adapter *adapter) VB_MUST_USE;
/* vb_adapter_xrcd - of an open adapter. NULL with errno. */
struct ibv_xrcd *vb_adapter_xrcd(struct vb_adapter *adapter);
/* vb_adapters_prepare_wait - the program is going to wait for an event: takes what has arrived,
 * then the engines' threads take over. */
void vb_adapters_prepare_wait(void);

/* --- address.c --------------------------------------------------------------------------- */
/* vb_endpoint_read - 0, or -EINVAL: no address, or neither IPv4 nor IPv6. */
int vb_endpoint_read(struct vb_endpoint *out, const struct sockaddr *address) VB_MUST_USE;
/* vb_endpoint_write - family AF_INET and AF_INET6 as they stand. */
void vb_endpoint_write(const struct vb_endpoint *endpoint, struct sockaddr_storage *out);
size_t vb_sockaddr_size(const struct sockaddr *address); /* 0: an unknown family */
/* vb_id_attach - the id gets its device, and its local address. 0 or -errno. */
int vb_id_attach(struct vb_id *id, struct vb_adapter *adapter, unsigned int sgid_index) VB_MUST_USE;
/* vb_id_bind - under busy: to one device, or with the wildcard to all. 0 or -errno. */
int vb_id_bind(struct vb_id *id, const struct vb_endpoint *at) VB_MUST_USE;
/* vb_id_route - under busy: peering.ah leads to the destination. 0 or -errno. */
int vb_id_route(struct vb_id *id) VB_MUST_USE;
/* vb_id_fill_path - route.path_rec from id's peering and addresses. 0 or -ENOMEM. */
int vb_id_fill_path(struct vb_id *id) VB_MUST_USE;
void vb_ah_attr_to_ibv(const struct vb_ah_attr *from, struct ibv_ah_attr *to);
enum ibv_mtu vb_mtu_to_ibv(uint16_t bytes);

/* --- port.c ------------------------------------------------------------------------------ */
/* vb_port_bind - claims at's port (0: chooses one) for the id on the given adapters, which are
 * open. 0; -EADDRINUSE and others. */
int vb_port_bind(struct vb_id *id, const struct vb_endpoint *at, unsigned int adapters) VB_MUST_USE;
/* vb_port_listen - connections to the port come to this process from now on. 0; -EADDRINUSE:
 * another id is bound to it, although both allow that. */
int vb_port_listen(struct vb_id *id) VB_MUST_USE;
/* vb_port_release - gives the port back; an id without one is accepted. */
void vb_port_release(struct vb_id *id);
void vb_ports_drop_in_child(void);

/* --- channel.c --------------------------------------------------------------------------- */
struct vb_channel *vb_channel_create(void); /* NULL with errno */
/* vb_channel_destroy - a thread that waits for its events goes on waiting, as it would in the
 * kernel; programs end that way. */
void vb_channel_destroy(struct vb_channel *channel);
/* vb_channel_raise - under vb_cma_lock: never blocks, allocates nothing. */
void vb_channel_raise(struct vb_channel *channel, struct vb_id_event *event);
/* vb_channel_withdraw - under vb_cma_lock: the events of the id, and those of requests to it that
 * nobody has taken, or only those of a group, leave their channel. */
void vb_channel_withdraw(struct vb_id *id, const struct vb_group *group, struct vb_list *out);
/* vb_channel_move - under vb_cma_lock: the same go to another channel, and the id with them. */
void vb_channel_move(struct vb_id *id, struct vb_channel *to);
/* vb_id_wait_acknowledged - until the program has acknowledged every event that it took. */
void vb_id_wait_acknowledged(struct vb_id *id);
void vb_group_wait_acknowledged(struct vb_group *group);

/* --- id.c -------------------------------------------------------------------------------- */
/* vb_id_new - NULL with errno. channel NULL: one of its own, and the id is synchronous. */
struct vb_id *vb_id_new(struct vb_channel *channel, void *context, enum rdma_port_space ps,
			enum ibv_qp_type type);
int vb_id_create(struct vb_id **out, struct vb_channel *channel, void *context,
		 enum rdma_port_space ps, enum ibv_qp_type type) VB_MUST_USE;
void vb_id_destroy(struct vb_id *id);
/* vb_id_own_channel - a request to a synchronous listener is synchronous. 0 or -errno. */
int vb_id_own_channel(struct vb_id *id) VB_MUST_USE;
/* vb_id_complete - outside of busy: a synchronous id waits for its event, and says what it says.
 * 0, or -1 with errno. */
int vb_id_complete(struct vb_id *id);
enum vb_id_state vb_id_state(struct vb_id *id);
void vb_id_set_state(struct vb_id *id, enum vb_id_state state);
/* vb_id_is_datagram - it looks services up (SIDR) instead of connecting. */
static inline bool vb_id_is_datagram(const struct vb_id *id)
{
	return id->pub.qp_type == IBV_QPT_UD;
}

/* --- event.c ----------------------------------------------------------------------------- */
/* vb_on_cm_event - the connection manager's events (vb_cm_handler_fn). */
bool vb_on_cm_event(struct vb_engine *engine, const struct vb_cm_event *event);
/* vb_id_event_new - NULL: no memory. */
struct vb_id_event *vb_id_event_new(struct vb_id *id, enum rdma_cm_event_type type, int status);
/* vb_id_raise - an event without parameters. 0 or -ENOMEM. */
int vb_id_raise(struct vb_id *id, enum rdma_cm_event_type type, int status) VB_MUST_USE;
/* vb_id_event_process - what belongs to the moment at which the program takes the event. False: the
 * program does not see it. */
bool vb_id_event_process(struct vb_id_event *event);

/* --- connect.c --------------------------------------------------------------------------- */
/* vb_id_respond - the peer's REP is answered: the QP to RTS, then RTU. 0 or -errno. */
int vb_id_respond(struct vb_id *id) VB_MUST_USE;
/* vb_ack_timeout - 5 bits: of a path with that packet life time to or from a device that takes so
 * long to acknowledge (IBTA 12.7.34). */
uint8_t vb_ack_timeout(uint8_t ack_delay, uint8_t packet_life_time);

/* --- qp.c -------------------------------------------------------------------------------- */
int vb_qp_to_rtr(struct vb_id *id, uint8_t responder_resources) VB_MUST_USE;
int vb_qp_to_rts(struct vb_id *id, uint8_t initiator_depth) VB_MUST_USE;
/* vb_qp_to_error - without a queue pair, nothing. */
int vb_qp_to_error(struct vb_id *id);

/* --- multicast.c ------------------------------------------------------------------------- */
/* vb_group_joined - the program takes the event: attaches the id's queue pair. 0 or errno. */
int vb_group_joined(struct vb_id *id, struct vb_group *group);
void vb_id_leave_groups(struct vb_id *id);

#endif
