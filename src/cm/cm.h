/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm.h - the InfiniBand connection manager (IBTA 12), sans I/O: what two hosts say to each other
 * over QP 1 to connect, refuse and disconnect queue pairs, and to look up a datagram service.
 *
 *      active                                  passive
 *        |  REQ  ------------------------------->  |  VB_CM_REQ_RECEIVED, a new connection
 *        |  <----------------------(MRA)- REP / REJ |
 *        |  RTU  ------------------------------->  |  VB_CM_ESTABLISHED
 *        |              queue pairs talk           |
 *        |  DREQ ------------------------------->  |  VB_CM_DREQ_RECEIVED
 *        |  <------------------------------- DREP  |
 *        |  timewait                    timewait   |
 *
 *        |  SIDR_REQ --------------------------->  |  VB_CM_SIDR_REQ_RECEIVED
 *        |  <--------------------------- SIDR_REP  |
 *
 * Messages and the time come in as arguments; messages, events and the next deadline come out.
 * Whoever owns it (a live engine, the simulator, a fuzzer) calls it from one thread at a time:
 *
 *      vb_cm_rx(cm, from, mad, size, now)     for each MAD of class CM that arrived
 *      vb_cm_run(cm, now)                     lets timers expire: retries, failures, timewaits
 *      vb_cm_deadline(cm)                     when to call vb_cm_run again at the latest
 *
 * It knows nothing of queue pairs: who connects says their numbers, and moves them. What belongs to
 * IP addresses (service IDs of ports, the private data header of the RDMA IP CM service) is
 * cm/ip.h's.
 *
 * Communication IDs begin with config.id_base: on a host of several processes the process's slot is
 * in their upper bits, so that whoever receives an answer knows whose it is (carrier/mad_route.h).
 *
 * Every vb_cm_send_* checks the connection's state first: -EINVAL, and nothing changes, when the
 * message has no place there or a field does not fit; -EMSGSIZE when there is more private data
 * than the message takes. A connection is used once: after its end it can only be destroyed.
 *
 * Where the manager answers by itself: a repeated REQ or REP gets the message that answered the
 * first one, or MRA (service timeout 24) while the program decides; a DREQ for no connection of
 * ours gets DREP, a REP for none REJ INVALID_COMM_ID. Of crossing DREQs both sides hear
 * DREP_RECEIVED. A REQ or REP from a queue pair (GUID and QPN) that we are connected to already is
 * refused as STALE_CONN, and the connection that we held gets a DREQ as if its program had sent
 * one, so that its owner hears DREP_RECEIVED or DREQ_FAILED without having asked. A connection in
 * timewait does not count as held.
 */
#ifndef VB_CM_CM_H
#define VB_CM_CM_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "core/ah.h"
#include "wire/mad.h"

/* Bytes of private data (IBTA 12.6.5 to 12.6.12, 12.11.1). */
#define VB_CM_REQ_PRIVATE 92u
#define VB_CM_REP_PRIVATE 196u
#define VB_CM_RTU_PRIVATE 224u
#define VB_CM_MRA_PRIVATE 222u
#define VB_CM_REJ_PRIVATE 148u
#define VB_CM_REJ_ARI 72u
#define VB_CM_DREQ_PRIVATE 220u
#define VB_CM_DREP_PRIVATE 224u
#define VB_CM_SIDR_REQ_PRIVATE 216u
#define VB_CM_SIDR_REP_PRIVATE 136u
#define VB_CM_PRIVATE_MAX 224u

struct vb_cm;
struct vb_cm_conn;     /* one connection, or one SIDR exchange */
struct vb_cm_listener; /* waits for REQ or SIDR_REQ of a service */

/* Where the messages of a connection go; for a message that arrived, where it came from and by
 * which of our GIDs (the answer's way). */
struct vb_cm_path {
	struct vb_ah_attr ah; /* dgid, sgid_index, flow_label, traffic_class, hop_limit */
};

/* Numerically the REQ's transport service type; 3 is an extended one, of which XRC is the first. */
enum vb_cm_transport { VB_CM_RC = 0, VB_CM_UC = 1, VB_CM_XRC = 3 };

/* REJ reasons (IBTA 12.6.7.2) that we say or act on; others pass through as numbers. */
enum vb_cm_reject {
	VB_CM_REJ_NO_QP = 1,
	VB_CM_REJ_NO_RESOURCES = 3,
	VB_CM_REJ_TIMEOUT = 4,
	VB_CM_REJ_UNSUPPORTED = 5,
	VB_CM_REJ_INVALID_COMM_ID = 6,
	VB_CM_REJ_INVALID_SERVICE_ID = 8,
	VB_CM_REJ_INVALID_TRANSPORT = 9,
	VB_CM_REJ_STALE_CONN = 10,
	VB_CM_REJ_CONSUMER_DEFINED = 28,
	VB_CM_REJ_DUPLICATE_LOCAL_COMM_ID = 30,
};

enum vb_cm_sidr_status {
	VB_CM_SIDR_VALID = 0,
	VB_CM_SIDR_UNSUPPORTED = 1,
	VB_CM_SIDR_REJECTED = 2,
	VB_CM_SIDR_NO_QP = 3,
};

struct vb_cm_req {
	uint64_t service_id;
	uint32_t qpn, psn; /* the requester's queue pair; the PSN with which the peer is to begin */
	uint32_t qkey;
	enum vb_cm_transport transport;
	uint8_t responder_resources; /* READs and atomics that the sender can answer at once */
	uint8_t initiator_depth;     /* ... and that it may send */
	bool flow_control, srq;
	uint8_t retry_count, rnr_retry_count; /* 3 bits each */
	uint16_t pkey;
	uint16_t path_mtu;   /* bytes: 256 .. 4096 */
	uint8_t ack_timeout; /* 5 bits: 4.096 us * 2^ack_timeout, of the primary path */
	/* 5 bits each; 4.096 us * 2^x: how long the peer and how long we take to answer */
	uint8_t remote_cm_timeout, local_cm_timeout;
	uint8_t max_cm_retries;	    /* 4 bits */
	struct in6_addr sgid, dgid; /* of the primary path, as they stand in the message */
	uint32_t flow_label;
	uint8_t traffic_class, hop_limit, sl;
	uint64_t ca_guid; /* the sender's; filled from config when sent */
	const void *private_data;
	size_t private_data_len;
};

struct vb_cm_rep {
	uint32_t qpn, psn, qkey;
	uint8_t responder_resources, initiator_depth;
	bool flow_control, srq;
	uint8_t rnr_retry_count;
	uint8_t target_ack_delay;  /* 5 bits */
	uint8_t failover_accepted; /* 2 bits; we say 1: not supported */
	uint64_t ca_guid;
	const void *private_data;
	size_t private_data_len;
};

struct vb_cm_rej {
	uint16_t reason; /* enum vb_cm_reject or any other */
	const void *ari; /* additional reject information */
	size_t ari_len;
	const void *private_data;
	size_t private_data_len;
};

struct vb_cm_sidr_req {
	uint64_t service_id;
	uint16_t pkey;
	uint8_t timeout; /* 5 bits, as remote_cm_timeout */
	uint8_t max_retries;
	const void *private_data;
	size_t private_data_len;
};

struct vb_cm_sidr_rep {
	uint8_t status; /* enum vb_cm_sidr_status */
	uint32_t qpn, qkey;
	const void *private_data;
	size_t private_data_len;
};

enum vb_cm_event_type {
	VB_CM_REQ_RECEIVED,	 /* conn is new and ours to answer: rep, rej or mra */
	VB_CM_REP_RECEIVED,	 /* answer with rtu or rej */
	VB_CM_REJ_RECEIVED,	 /* the connection is over */
	VB_CM_REQ_FAILED,	 /* nobody answered our REQ (also: the peer's MRA ran out) */
	VB_CM_REP_FAILED,	 /* nobody answered our REP */
	VB_CM_ESTABLISHED,	 /* the peer's RTU, or vb_cm_notify_established() */
	VB_CM_DREQ_RECEIVED,	 /* answer with vb_cm_send_drep() (destroy does it as well) */
	VB_CM_DREP_RECEIVED,	 /* our DREQ was answered, or both sides sent one */
	VB_CM_DREQ_FAILED,	 /* nobody answered our DREQ; the connection is over all the same */
	VB_CM_TIMEWAIT_EXIT,	 /* packets of the connection cannot be under way any more */
	VB_CM_MRA_RECEIVED,	 /* the peer takes longer; nothing to do */
	VB_CM_SIDR_REQ_RECEIVED, /* conn is new: answer with vb_cm_send_sidr_rep() */
	VB_CM_SIDR_REP_RECEIVED,
	VB_CM_SIDR_FAILED, /* nobody answered our SIDR_REQ */
};

/* What an event's callback sees; valid during the call. private_data is the whole field of the
 * message (zero beyond what the peer wrote), NULL for events without a message. */
struct vb_cm_event {
	enum vb_cm_event_type type;
	struct vb_cm_conn *conn;
	struct vb_cm_listener *listener; /* of *_REQ_RECEIVED */
	const struct vb_cm_path *path;	 /* of *_REQ_RECEIVED: the answer's way */
	union {
		const struct vb_cm_req *req;
		const struct vb_cm_rep *rep;
		const struct vb_cm_rej *rej;
		const struct vb_cm_sidr_req *sidr_req;
		const struct vb_cm_sidr_rep *sidr_rep;
	};
	const void *private_data;
	size_t private_data_len;
	/* of *_REQ_RECEIVED, which is refused: set there, the message counts as lost instead, and
	 * the peer asks again later */
	bool *later;
};

struct vb_cm_ops {
	/* send - one MAD to the peer's QP 1. May lose it: the manager repeats what matters. */
	void (*send)(void *env, const struct vb_cm_path *to, const uint8_t mad[VB_MAD_BYTES]);
	/* event - must not call back into the manager except vb_cm_conn_set_user(). False for a
	 * *_REQ_RECEIVED: nobody can take it; it is refused with NO_RESOURCES. */
	bool (*event)(void *env, const struct vb_cm_event *event);
	uint32_t (*random)(void *env);
};

struct vb_cm_config {
	uint64_t ca_guid;     /* of our device */
	uint32_t id_base;     /* communication IDs are id_base | 1 .. id_bits bits */
	unsigned int id_bits; /* 16 .. 31 */
	uint8_t insist; /* how often a peer where nobody listens is asked again, after 1 ms, 2, 4...
			 */
};

/* vb_cm_create - NULL with errno ENOMEM. */
VB_SHARED struct vb_cm *vb_cm_create(const struct vb_cm_ops *ops, void *env,
				     const struct vb_cm_config *config);
/* vb_cm_destroy - says DREQ or REJ to every peer that is connected or connecting, once, then frees
 * everything, connections and listeners included. NULL is accepted. */
VB_SHARED void vb_cm_destroy(struct vb_cm *cm);

/* vb_cm_rx - takes one MAD; anything from the wire is allowed. */
VB_SHARED void vb_cm_rx(struct vb_cm *cm, const struct vb_cm_path *from, const uint8_t *mad,
			size_t size, uint64_t now_ns);
VB_SHARED void vb_cm_run(struct vb_cm *cm, uint64_t now_ns);
VB_SHARED uint64_t vb_cm_deadline(const struct vb_cm *cm); /* UINT64_MAX: nothing waits */

/* vb_cm_listen - 0; -EADDRINUSE: the manager already has a listener of that service ID and mask
 * overlap and the same match; -EINVAL: match goes beyond; -ENOMEM. match/match_len (at most 16
 * bytes at offset match_at of the REQ's private data) narrow it to one IP address, as the RDMA IP
 * CM service does; match_len 0: any. */
struct vb_cm_match {
	uint8_t at, len;
	uint8_t bytes[16];
	uint8_t ip_version; /* 0: any; 4 or 6: upper half of private data byte 1 */
};
VB_SHARED int vb_cm_listen(struct vb_cm *cm, uint64_t service_id, const struct vb_cm_match *match,
			   void *user, struct vb_cm_listener **out) VB_MUST_USE;
/* vb_cm_unlisten - connections that came from it stay. NULL is accepted. */
VB_SHARED void vb_cm_unlisten(struct vb_cm_listener *listener);
VB_SHARED void *vb_cm_listener_user(const struct vb_cm_listener *listener);

/* vb_cm_conn_create - NULL with errno ENOMEM. */
VB_SHARED struct vb_cm_conn *vb_cm_conn_create(struct vb_cm *cm, void *user);
/* vb_cm_conn_destroy - ends it as its state wants: REJ to a peer that waits for our answer, DREQ
 * (once) to one that is connected, DREP to one that asked; timewait goes on without the owner. No
 * event comes afterwards. To one whose REQ nobody has answered yet it says REJ TIMEOUT. NULL is
 * accepted. */
VB_SHARED void vb_cm_conn_destroy(struct vb_cm_conn *conn, uint64_t now_ns);
VB_SHARED void vb_cm_conn_set_user(struct vb_cm_conn *conn, void *user);
VB_SHARED void *vb_cm_conn_user(const struct vb_cm_conn *conn);

VB_SHARED int vb_cm_send_req(struct vb_cm_conn *conn, const struct vb_cm_path *to,
			     const struct vb_cm_req *req, uint64_t now_ns) VB_MUST_USE;
VB_SHARED int vb_cm_send_rep(struct vb_cm_conn *conn, const struct vb_cm_rep *rep,
			     uint64_t now_ns) VB_MUST_USE;
VB_SHARED int vb_cm_send_rtu(struct vb_cm_conn *conn, const void *private_data, size_t len,
			     uint64_t now_ns) VB_MUST_USE;
VB_SHARED int vb_cm_send_rej(struct vb_cm_conn *conn, const struct vb_cm_rej *rej,
			     uint64_t now_ns) VB_MUST_USE;
/* vb_cm_send_mra - the answer takes up to 4.096 us * 2^service_timeout more. */
VB_SHARED int vb_cm_send_mra(struct vb_cm_conn *conn, uint8_t service_timeout, const void *data,
			     size_t len, uint64_t now_ns) VB_MUST_USE;
/* vb_cm_send_dreq - also where a DREQ has just come: both are then answered by DREP. */
VB_SHARED int vb_cm_send_dreq(struct vb_cm_conn *conn, const void *private_data, size_t len,
			      uint64_t now_ns) VB_MUST_USE;
VB_SHARED int vb_cm_send_drep(struct vb_cm_conn *conn, const void *private_data, size_t len,
			      uint64_t now_ns) VB_MUST_USE;
VB_SHARED int vb_cm_send_sidr_req(struct vb_cm_conn *conn, const struct vb_cm_path *to,
				  const struct vb_cm_sidr_req *req, uint64_t now_ns) VB_MUST_USE;
VB_SHARED int vb_cm_send_sidr_rep(struct vb_cm_conn *conn, const struct vb_cm_sidr_rep *rep,
				  uint64_t now_ns) VB_MUST_USE;
/* vb_cm_notify_established - the queue pair saw traffic before the RTU came (COMM_EST). -EISCONN:
 * it is established already. */
VB_SHARED int vb_cm_notify_established(struct vb_cm_conn *conn, uint64_t now_ns) VB_MUST_USE;

/* vb_cm_peer_lost - the connection's queue pair failed since the peer is silent: the connection is
 * over, as if a DREQ of ours had found no answer (VB_CM_DREQ_FAILED). */
VB_SHARED void vb_cm_peer_lost(struct vb_cm *cm, uint32_t local_qpn, uint64_t now_ns);

/* Objects that are alive, for tests and tools. timewaits: what remains of connections and SIDR
 * exchanges without an owner. */
struct vb_cm_counters {
	uint32_t connections, listeners, timewaits;
	uint64_t rx_messages, tx_messages, retries, duplicates, rx_malformed, rx_unknown;
};
VB_SHARED void vb_cm_read_counters(const struct vb_cm *cm, struct vb_cm_counters *out);

#endif
