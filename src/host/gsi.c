/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gsi.c - QP 1 of a live NIC (IBTA 13.5.1, annex A17.9): MADs in and out.
 *
 *      vb_engine_deliver -> vb_gsi_rx -> class CM  -> the connection manager -> the faces' handler
 *                                     -> others    -> the agent that asked, or registered for it
 *                                     -> the port's counters, where no agent answers for them;
 *                                        a refusal, where nobody does
 *
 *      the connection manager, vb_gsi_send -> at once, or the queue -> a carrier, flushed
 *
 * A MAD in: UD SEND_ONLY with the default P_Key, the Q_Key of QP 1 and 256 bytes; everything else
 * is counted and dropped. A MAD out the same, its PSN counting up over all peers, from where
 * Soft-RoCE's begin.
 *
 * Nobody acknowledges a MAD, and what runs over the receiver's socket buffer (208 KiB on a usual
 * Linux: some hundred MADs) is repeated seconds later. So over UDP they are paced. What is early,
 * or finds a ring full, waits in a queue; what waited for too long is dropped, as a wire would:
 * whoever sent it repeats it.
 *
 * Paths are kept by address, since resolving one takes several system calls. They do not count as
 * what may come by UDP (struct vb_engine.udp_paths): the answers are found by the background
 * thread, within about a millisecond while the program polls, and nobody waits for less.
 *
 * A process that never connects has no manager until a MAD of its class comes here that is nobody's
 * in particular: it refuses it.
 */
#include "host/gsi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/list.h"
#include "host/address.h"
#include "host/engine.h"
#include "host/performance.h"
#include "registry/ports.h"

#define PATHS 64u
#define QUEUE_MAX 8192u /* MADs, of some 400 bytes each */
#define QUEUE_NS (2000ull * 1000 * 1000)
#define RETRY_NS (500ull * 1000) /* between looks for room */
#define PROGRESS_FACTOR 20ull	 /* of the patience at the end, as long as MADs leave */
#define REFUSALS 16		 /* of one look, until it is given up */
#define PACE_NS (62500ull)	 /* a MAD over UDP: 16 in a millisecond */
#define BURST_NS (64 * PACE_NS)
#define FLOW_LABEL 1u			 /* of all MADs: the packets to one peer keep their order */
#define WATCH_NS (5000ull * 1000 * 1000) /* of silence, until a peer is asked */
#define CM_ID_BITS VB_GSI_SLOT_SHIFT
#define CM_INSIST 7 /* 127 ms until a program hears that nobody listens */

struct vb_gsi_agent {
	struct vb_list link; /* in the gsi's agents */
	struct vb_engine *engine;
	uint8_t mgmt_class, class_version;
	uint32_t methods[4];
	uint32_t tid; /* upper half of its transaction IDs */
	void (*received)(void *env, const struct vb_gsi_rx *rx);
	void *env;
};

/* Where a MAD goes. */
struct target {
	struct vb_ah_attr ah;
	uint32_t qpn, qkey;
};

struct waiting {
	struct vb_list link;
	struct target to;
	uint64_t until_ns;
	uint8_t mad[VB_MAD_BYTES];
};

struct kept_path {
	bool valid;
	struct vb_ah_attr ah;
	struct vb_path path;
};

struct vb_gsi {
	struct vb_cm *cm; /* NULL: not needed so far */
	struct vb_list agents;
	uint32_t next_agent;
	uint32_t psn;
	struct vb_list queue;
	uint32_t queued;
	uint64_t retry_ns; /* when the queue is looked at next */
	uint64_t paced_ns; /* until when what was sent by UDP is taken as arriving */
	struct vb_gsi_counters counters;
	struct kept_path paths[PATHS];
};

static vb_cm_handler_fn cm_handler;

void vb_host_set_cm_handler(vb_cm_handler_fn handler)
{
	cm_handler = handler;
}

/* --- out --------------------------------------------------------------------------------- */

static uint32_t hash_address(const struct vb_ah_attr *ah)
{
	uint32_t word[4];

	memcpy(word, &ah->dgid, sizeof(word));
	return ((word[0] ^ word[1] ^ word[2] ^ word[3]) + ah->sgid_index) * 0x9e3779b1u;
}

static bool same_way(const struct vb_ah_attr *a, const struct vb_ah_attr *b)
{
	return a->sgid_index == b->sgid_index && a->traffic_class == b->traffic_class &&
	       a->hop_limit == b->hop_limit && memcmp(&a->dgid, &b->dgid, sizeof(a->dgid)) == 0;
}

/* NULL with errno. */
static const struct vb_path *find_path(struct vb_engine *engine, const struct vb_ah_attr *ah)
{
	struct kept_path *kept = &engine->gsi->paths[hash_address(ah) % PATHS];
	int rc;

	if (kept->valid && same_way(&kept->ah, ah))
		return &kept->path;
	kept->valid = false;
	rc = -EINVAL;
	if (!vb_address_is_multicast(&ah->dgid))
		rc = vb_engine_resolve(engine, ah, &kept->path);
	if (rc) {
		errno = -rc;
		return NULL;
	}
	kept->ah = *ah;
	kept->valid = true;
	return &kept->path;
}

static int send_now(struct vb_engine *engine, const struct vb_path *path, const struct target *to,
		    const uint8_t *mad)
{
	struct vb_gsi *gsi = engine->gsi;
	struct vb_carrier *carrier = path->carrier;
	const struct vb_headers headers = {
		.opcode = vb_opcode(VB_TRANSPORT_UD, VB_OP_SEND_ONLY),
		.pkey = VB_DEFAULT_PKEY,
		.ack_req = true, /* nobody acknowledges; the bit is as Soft-RoCE has it */
		.qpn = to->qpn,
		.psn = gsi->psn & VB_QPN_MASK,
		.deth = {.qkey = to->qkey, .src_qpn = VB_GSI_QPN},
	};
	const struct iovec payload = {(void *)(uintptr_t)mad, VB_MAD_BYTES};
	const struct vb_tx tx = {
		.headers = &headers,
		.payload = &payload,
		.payload_parts = 1,
		.payload_bytes = VB_MAD_BYTES,
	};
	int rc = engine->nic->ops.tx(engine, path, &tx);

	carrier->ops->flush(carrier); /* the MAD's memory is its sender's */
	if (rc == -EAGAIN)
		return rc;
	gsi->psn++;
	if (carrier == engine->udp)
		gsi->paced_ns = VB_MAX(gsi->paced_ns, engine->nic->now_ns) + PACE_NS;
	if (rc == 0) {
		gsi->counters.tx_mads++;
		engine->nic->counters.tx_packets++;
	} else {
		gsi->counters.tx_dropped++;
	}
	return rc;
}

static bool is_early(const struct vb_engine *engine, const struct vb_path *path)
{
	return path->carrier == engine->udp &&
	       engine->gsi->paced_ns > engine->nic->now_ns + BURST_NS;
}

static uint64_t next_look(const struct vb_engine *engine, bool paced)
{
	const struct vb_gsi *gsi = engine->gsi;

	return paced ? gsi->paced_ns - BURST_NS : engine->nic->now_ns + RETRY_NS;
}

static int enqueue(struct vb_engine *engine, const struct target *to, const uint8_t *mad,
		   bool paced)
{
	struct vb_gsi *gsi = engine->gsi;
	struct waiting *w = gsi->queued < QUEUE_MAX ? malloc(sizeof(*w)) : NULL;

	if (!w) {
		gsi->counters.tx_dropped++;
		return -ENOMEM;
	}
	w->to = *to;
	w->until_ns = engine->nic->now_ns + QUEUE_NS;
	memcpy(w->mad, mad, VB_MAD_BYTES);
	if (vb_list_is_empty(&gsi->queue))
		gsi->retry_ns = next_look(engine, paced);
	vb_list_append(&gsi->queue, &w->link);
	gsi->queued++;
	engine->gsi_busy = true;
	return 0;
}

static int send_mad(struct vb_engine *engine, const struct target *to, const uint8_t *mad)
{
	const struct vb_path *path = find_path(engine, &to->ah);
	bool paced;
	int rc;

	if (!path)
		return -errno;
	paced = is_early(engine, path);
	if (paced || !vb_list_is_empty(&engine->gsi->queue))
		return enqueue(engine, to, mad, paced);
	rc = send_now(engine, path, to, mad);
	return rc == -EAGAIN ? enqueue(engine, to, mad, false) : rc;
}

static void drop(struct vb_gsi *gsi, struct waiting *w)
{
	vb_list_remove(&w->link);
	gsi->queued--;
	free(w);
}

/* Sends what may go now. One peer without room holds up no other. */
static void work_queue_off(struct vb_engine *engine)
{
	struct vb_gsi *gsi = engine->gsi;
	struct vb_list *link, *tmp;
	bool paced = false;
	int refusals = 0;

	vb_list_for_each(link, tmp, &gsi->queue)
	{
		struct waiting *w = vb_list_entry(link, struct waiting, link);
		const struct vb_path *path = find_path(engine, &w->to.ah);

		if (!path || w->until_ns <= engine->nic->now_ns) {
			gsi->counters.tx_dropped++;
			drop(gsi, w);
		} else if (is_early(engine, path)) {
			paced = true;
			if (!engine->local)
				break;
		} else if (send_now(engine, path, &w->to, w->mad) != -EAGAIN) {
			drop(gsi, w);
		} else if (++refusals == REFUSALS) {
			break;
		}
	}
	gsi->retry_ns = next_look(engine, paced && refusals == 0);
}

/* --- the connection manager -------------------------------------------------------------- */

static struct target gsi_of(const struct vb_cm_path *path)
{
	struct target to = {.ah = path->ah, .qpn = VB_GSI_QPN, .qkey = VB_GSI_QKEY};

	to.ah.is_global = true;
	to.ah.flow_label = FLOW_LABEL;
	return to;
}

static void cm_send(void *env, const struct vb_cm_path *path, const uint8_t mad[VB_MAD_BYTES])
{
	const struct target to = gsi_of(path);

	(void)send_mad(env, &to, mad);
}

static bool cm_event(void *env, const struct vb_cm_event *event)
{
	return cm_handler && cm_handler(env, event);
}

static uint32_t cm_random(void *env)
{
	struct vb_engine *engine = env;

	return engine->nic->ops.random(engine->nic->env);
}

struct vb_cm *vb_engine_cm(struct vb_engine *engine)
{
	static const struct vb_cm_ops ops = {
		.send = cm_send,
		.event = cm_event,
		.random = cm_random,
	};
	const struct vb_cm_config config = {
		.ca_guid = engine->device->guid,
		.id_base = (uint32_t)engine->registry->slot << VB_GSI_SLOT_SHIFT,
		.id_bits = CM_ID_BITS,
		.insist = CM_INSIST,
	};
	struct vb_gsi *gsi = engine->gsi;

	if (!gsi->cm)
		gsi->cm = vb_cm_create(&ops, engine, &config);
	if (gsi->cm)
		engine->gsi_busy = true;
	return gsi->cm;
}

void vb_engine_watch_peer(struct vb_engine *engine, uint32_t qpn)
{
	struct vb_qp *qp = vb_nic_find_qp(engine->nic, qpn);

	if (qp)
		vb_qp_watch(qp, WATCH_NS);
}

void vb_gsi_peer_lost(struct vb_engine *engine, uint32_t qpn)
{
	if (engine->gsi->cm)
		vb_cm_peer_lost(engine->gsi->cm, qpn, engine->nic->now_ns);
}

/* --- in ---------------------------------------------------------------------------------- */

/* The GID that was addressed: the one that is the address itself rather than a synthetic one. */
static uint8_t sgid_index_of(const struct vb_device *device, const struct in6_addr *address)
{
	uint8_t found = 0;

	for (unsigned int i = device->gid_count; i-- > 0;) {
		const struct vb_gid *gid = &device->gids[i];

		if (memcmp(&gid->address, address, sizeof(*address)) != 0)
			continue;
		found = (uint8_t)i;
		if (memcmp(&gid->gid, address, sizeof(*address)) == 0)
			break;
	}
	return found;
}

/* The MAD of a packet to QP 1, or NULL, counted. */
static const uint8_t *open_packet(struct vb_engine *engine, const struct vb_rx *rx,
				  struct vb_headers *h)
{
	struct vb_counters *c = &engine->nic->counters;
	int used = vb_headers_decode(h, rx->data, rx->size);

	if (used < 0 || h->tver != 0 || h->pad != 0 || rx->size - (size_t)used != VB_MAD_BYTES)
		c->rx_malformed++;
	else if (h->opcode != vb_opcode(VB_TRANSPORT_UD, VB_OP_SEND_ONLY))
		c->rx_wrong_transport++;
	else if (!vb_pkey_is_default(h->pkey))
		c->rx_wrong_pkey++;
	else if (h->deth.qkey != VB_GSI_QKEY)
		c->rx_wrong_qkey++;
	else
		return rx->data + used;
	return NULL;
}

static bool wants(const struct vb_gsi_agent *agent, const struct vb_mad *mad)
{
	if (mad->method & VB_MAD_RESPONSE_BIT)
		return agent->tid == (uint32_t)(mad->tid >> 32);
	return agent->mgmt_class == mad->mgmt_class && agent->class_version == mad->class_version &&
	       agent->methods[mad->method / 32] & 1u << mad->method % 32;
}

/* What no agent wants. The port's counters are the same whichever process of the host is asked;
 * another Get or Set is refused, as Linux does it, so that the asker need not wait in vain. */
static void answer(struct vb_engine *engine, const struct vb_mad *mad, const struct vb_gsi_rx *rx)
{
	struct target to = gsi_of(&rx->path);
	uint8_t out[VB_MAD_BYTES];

	if (!vb_engine_performance(engine, rx->mad, out)) {
		engine->gsi->counters.rx_unwanted++;
		if (mad->method != VB_MAD_GET && mad->method != VB_MAD_SET)
			return;
		memcpy(out, rx->mad, sizeof(out));
		out[3] = VB_MAD_GET_RESPONSE;
		out[4] = 0;
		out[5] = VB_MAD_STATUS_UNSUPPORTED;
	}
	to.qpn = rx->src_qpn;
	if (to.qpn > 0 && to.qpn < VB_QPN_MULTICAST)
		(void)send_mad(engine, &to, out);
}

static void to_agents(struct vb_engine *engine, const struct vb_mad *mad,
		      const struct vb_gsi_rx *rx)
{
	struct vb_gsi *gsi = engine->gsi;
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &gsi->agents)
	{
		struct vb_gsi_agent *agent = vb_list_entry(link, struct vb_gsi_agent, link);

		if (!wants(agent, mad))
			continue;
		agent->received(agent->env, rx);
		return;
	}
	answer(engine, mad, rx);
}

void vb_gsi_rx(struct vb_engine *engine, const struct vb_rx *packet)
{
	struct vb_nic *nic = engine->nic;
	struct vb_headers h;
	struct vb_mad mad;
	struct vb_gsi_rx rx = {
		.path.ah = {.is_global = true,
			    .port_num = 1,
			    .dgid = packet->src,
			    .sgid_index = sgid_index_of(engine->device, &packet->dst),
			    .traffic_class = packet->traffic_class},
	};

	nic->counters.rx_packets++;
	rx.mad = open_packet(engine, packet, &h);
	if (!rx.mad)
		return;
	if (vb_mad_decode(&mad, rx.mad, VB_MAD_BYTES)) {
		nic->counters.rx_malformed++;
		return;
	}
	engine->gsi->counters.rx_mads++;
	rx.src_qpn = h.deth.src_qpn;
	rx.qkey = h.deth.qkey;
	if (mad.mgmt_class != VB_MAD_CM)
		to_agents(engine, &mad, &rx);
	else if (vb_engine_cm(engine))
		vb_cm_rx(engine->gsi->cm, &rx.path, rx.mad, VB_MAD_BYTES, nic->now_ns);
}

/* --- agents ------------------------------------------------------------------------------ */

static bool collides(const struct vb_gsi_agent *a, const struct vb_gsi_agent *b)
{
	bool methods = false;

	for (unsigned int i = 0; i < VB_ARRAY_SIZE(a->methods); i++)
		methods = methods || a->methods[i] & b->methods[i];
	return methods && a->mgmt_class == b->mgmt_class && a->class_version == b->class_version;
}

static bool takes_requests(const struct vb_gsi_agent *agent)
{
	return agent->methods[0] | agent->methods[1] | agent->methods[2] | agent->methods[3];
}

/* What they share with nobody else of this host: numbers that are not in use. */
static bool is_free(const struct vb_gsi *gsi, uint32_t tid)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &gsi->agents)
	{
		if (vb_list_entry(link, struct vb_gsi_agent, link)->tid == tid)
			return false;
	}
	return true;
}

/* Which process of the host takes the requests of a class. */
static int claim_class(struct vb_engine *engine, const struct vb_gsi_agent *agent)
{
	uint16_t port = vb_mad_class_port(agent->mgmt_class, agent->class_version);
	int rc;

	if (!takes_requests(agent) || port == 0)
		return 0;
	rc = vb_ports_claim(engine->registry, VB_PS_MAD, VB_PORT_IPV4, &port);
	if (rc)
		return rc == -EADDRINUSE ? -EBUSY : rc;
	vb_ports_set_listening(engine->registry, VB_PS_MAD, VB_PORT_IPV4, port, true);
	return 0;
}

static void release_class(struct vb_engine *engine, const struct vb_gsi_agent *agent)
{
	uint16_t port = vb_mad_class_port(agent->mgmt_class, agent->class_version);

	if (takes_requests(agent) && port != 0)
		vb_ports_release(engine->registry, VB_PS_MAD, VB_PORT_IPV4, port);
}

static int add_agent(struct vb_engine *engine, struct vb_gsi_agent *agent)
{
	struct vb_gsi *gsi = engine->gsi;
	struct vb_list *link, *tmp;
	int rc;

	vb_list_for_each(link, tmp, &gsi->agents)
	{
		if (collides(vb_list_entry(link, struct vb_gsi_agent, link), agent))
			return -EBUSY;
	}
	rc = claim_class(engine, agent);
	if (rc)
		return rc;
	do
		agent->tid = (uint32_t)engine->registry->slot << VB_GSI_SLOT_SHIFT |
			     (++gsi->next_agent & ((1u << VB_GSI_SLOT_SHIFT) - 1));
	while (!is_free(gsi, agent->tid));
	vb_list_append(&gsi->agents, &agent->link);
	return 0;
}

int vb_gsi_agent_create(struct vb_engine *engine, uint8_t mgmt_class, uint8_t class_version,
			const uint32_t methods[4],
			void (*received)(void *env, const struct vb_gsi_rx *rx), void *env,
			struct vb_gsi_agent **out)
{
	struct vb_gsi_agent *agent = calloc(1, sizeof(*agent));
	int rc;

	if (!agent)
		return -ENOMEM;
	agent->engine = engine;
	agent->mgmt_class = mgmt_class;
	agent->class_version = class_version;
	memcpy(agent->methods, methods, sizeof(agent->methods));
	agent->received = received;
	agent->env = env;
	rc = -EBUSY; /* the manager's own class */
	if (mgmt_class == VB_MAD_CM && takes_requests(agent))
		goto err;
	rc = -EIO;
	if (!vb_engine_enter(engine))
		goto err;
	rc = add_agent(engine, agent);
	vb_engine_leave(engine);
	if (rc)
		goto err;
	*out = agent;
	return 0;
err:
	free(agent);
	return rc;
}

void vb_gsi_agent_destroy(struct vb_gsi_agent *agent)
{
	if (!agent)
		return;
	if (vb_engine_enter(agent->engine)) {
		vb_list_remove(&agent->link);
		release_class(agent->engine, agent);
		vb_engine_leave(agent->engine);
	}
	free(agent);
}

uint32_t vb_gsi_agent_tid(const struct vb_gsi_agent *agent)
{
	return agent->tid;
}

int vb_gsi_send(struct vb_engine *engine, const struct vb_cm_path *path, uint32_t qpn,
		uint32_t qkey, const uint8_t mad[VB_MAD_BYTES])
{
	struct target to = gsi_of(path);
	int rc;

	if (qpn == 0 || qpn >= VB_QPN_MULTICAST)
		return -EINVAL;
	to.qpn = qpn;
	to.qkey = qkey;
	if (!vb_engine_enter(engine))
		return -EIO;
	rc = send_mad(engine, &to, mad);
	vb_engine_leave(engine);
	return rc;
}

/* --- time -------------------------------------------------------------------------------- */

uint64_t vb_gsi_deadline(const struct vb_engine *engine)
{
	const struct vb_gsi *gsi = engine->gsi;
	uint64_t due = gsi->cm ? vb_cm_deadline(gsi->cm) : VB_NEVER;

	return vb_list_is_empty(&gsi->queue) ? due : VB_MIN(due, gsi->retry_ns);
}

void vb_gsi_run(struct vb_engine *engine)
{
	struct vb_gsi *gsi = engine->gsi;
	uint64_t now_ns = engine->nic->now_ns;

	if (!vb_list_is_empty(&gsi->queue) && gsi->retry_ns <= now_ns)
		work_queue_off(engine);
	if (gsi->cm && vb_cm_deadline(gsi->cm) <= now_ns)
		vb_cm_run(gsi->cm, now_ns);
}

/* --- ports ------------------------------------------------------------------------------- */

/* Without the lock, since they are called inside too; counted, so that exit does not take the
 * registry away meanwhile. */
static bool begin_outside(struct vb_engine *engine)
{
	atomic_fetch_add(&engine->outside, 1);
	if (atomic_load(&engine->life) == VB_ALIVE)
		return true;
	atomic_fetch_sub(&engine->outside, 1);
	return false;
}

static void end_outside(struct vb_engine *engine)
{
	atomic_fetch_sub(&engine->outside, 1);
}

int vb_engine_port_claim(struct vb_engine *engine, uint16_t space, unsigned int families,
			 uint16_t *port)
{
	int rc;

	if (!begin_outside(engine))
		return -EIO;
	rc = vb_ports_claim(engine->registry, space, families, port);
	end_outside(engine);
	return rc;
}

void vb_engine_port_set_listening(struct vb_engine *engine, uint16_t space, unsigned int families,
				  uint16_t port, bool listening)
{
	if (!begin_outside(engine))
		return;
	vb_ports_set_listening(engine->registry, space, families, port, listening);
	end_outside(engine);
}

void vb_engine_port_release(struct vb_engine *engine, uint16_t space, unsigned int families,
			    uint16_t port)
{
	if (!begin_outside(engine))
		return;
	vb_ports_release(engine->registry, space, families, port);
	end_outside(engine);
}

/* --- life -------------------------------------------------------------------------------- */

int vb_gsi_open(struct vb_engine *engine)
{
	struct vb_gsi *gsi = calloc(1, sizeof(*gsi));

	if (!gsi)
		return -ENOMEM;
	vb_list_init(&gsi->agents);
	vb_list_init(&gsi->queue);
	engine->gsi = gsi;
	return 0;
}

static void free_gsi(struct vb_engine *engine)
{
	struct vb_gsi *gsi = engine->gsi;
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &gsi->queue)
		drop(gsi, vb_list_entry(link, struct waiting, link));
	free(gsi);
	engine->gsi = NULL;
	engine->gsi_busy = false;
}

void vb_gsi_close(struct vb_engine *engine, uint64_t patience_ns)
{
	const struct timespec nap = {.tv_nsec = RETRY_NS};
	struct vb_gsi *gsi = engine->gsi;
	uint64_t until, at_last;

	vb_engine_refresh(engine);
	until = engine->nic->now_ns + patience_ns;
	at_last = engine->nic->now_ns + PROGRESS_FACTOR * patience_ns;
	vb_cm_destroy(gsi->cm);
	gsi->cm = NULL;
	while (!vb_list_is_empty(&gsi->queue) && engine->nic->now_ns < until) {
		uint32_t queued = gsi->queued;

		nanosleep(&nap, NULL);
		vb_engine_refresh(engine);
		work_queue_off(engine);
		if (gsi->queued < queued)
			until = VB_MIN(engine->nic->now_ns + patience_ns, at_last);
	}
	free_gsi(engine);
}

void vb_gsi_drop_in_child(struct vb_engine *engine)
{
	/* The manager's connections are the parent's: ending them here would tell their peers. */
	free_gsi(engine);
}

void vb_gsi_read_counters(const struct vb_engine *engine, struct vb_gsi_counters *out)
{
	*out = engine->gsi->counters;
	out->queued = engine->gsi->queued;
}
