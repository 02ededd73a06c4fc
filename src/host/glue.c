/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * glue.c - what the core asks of its surroundings, answered with the carriers.
 *
 * A path's sgid and dgid are what the receiver sees as destination and source of a packet, because
 * the core takes packets only from its peer. Over UDP that is the address in the IP header, which a
 * synthetic GID is not; between processes of one host the local carrier says the host's address, by
 * whichever GID the peer was named.
 *
 * Whoever posts comes in without the shield against cancellation (engine.h): what may make a system
 * call here puts it up first.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "carrier/local.h"
#include "carrier/udp.h"
#include "core/mcast.h"
#include "core/tally.h"
#include "host/address.h"
#include "host/device.h"
#include "host/engine.h"
#include "host/foreign.h"
#include "host/memory.h"
#include "host/raw.h"
#include "wire/cursor.h"
#include "wire/mad.h"

#define DEFAULT_HOP_LIMIT 64 /* what a program means that leaves it 0 */

static const struct vb_host_hooks *hooks;

void vb_host_set_hooks(const struct vb_host_hooks *faces)
{
	hooks = faces;
}

static uint32_t draw(void *env)
{
	struct vb_engine *engine = env;
	uint32_t value;

	if (engine->random_left == 0) {
		uint8_t *to = (uint8_t *)engine->random;
		size_t have = 0;

		vb_engine_shield(engine);
		while (have < sizeof(engine->random)) {
			ssize_t got = getrandom(to + have, sizeof(engine->random) - have, 0);

			VB_ASSERT(got > 0 || errno == EINTR);
			have += got > 0 ? (size_t)got : 0;
		}
		engine->random_left = VB_ARRAY_SIZE(engine->random);
	}
	value = engine->random[--engine->random_left];
	engine->random[engine->random_left] = 0; /* keys are made of it */
	return value;
}

/* --- paths ------------------------------------------------------------------------------- */

static int route_by_udp(struct vb_engine *engine, const struct vb_ah_attr *ah,
			const struct vb_gid *source, const struct in6_addr *address,
			struct vb_path *path)
{
	uint32_t scope_id = IN6_IS_ADDR_LINKLOCAL(address) || IN6_IS_ADDR_MC_LINKLOCAL(address)
				    ? source->ifindex
				    : 0;
	int rc;

	path->sgid = source->address;
	path->dgid = *address;
	rc = vb_udp_route(engine->udp, path, &source->address, address, scope_id,
			  ah->flow_label, ah->traffic_class, ah->hop_limit ? ah->hop_limit : DEFAULT_HOP_LIMIT);
	if (rc)
		return rc;
	path->carrier = engine->udp;
	return 0;
}

int vb_engine_resolve(struct vb_engine *engine, const struct vb_ah_attr *ah, struct vb_path *path)
{
	const struct vb_device *device = engine->device;
	const struct vb_gid *source;
	struct in6_addr address = vb_gid_to_address(&ah->dgid);

	if (!ah->is_global || ah->sgid_index >= device->gid_count)
		return -EINVAL;
	source = &device->gids[ah->sgid_index];
	if (IN6_IS_ADDR_UNSPECIFIED(&address) ||
	    (vb_address_is_multicast(&address) && !vb_mcast_gid_is_valid(&address)) ||
	    vb_address_is_ipv4(&address) != vb_address_is_ipv4(&source->address))
		return -EINVAL;
	memset(path, 0, sizeof(*path));
	if (!engine->local || !vb_device_owns(device, &address))
		return route_by_udp(engine, ah, source, &address, path);
	path->sgid = path->dgid = engine->registry->address;
	vb_local_route(engine->local, path);
	path->carrier = engine->local;
	if (!engine->direct) {
		path->direct = false;
		path->lend_from = 0;
	}
	return 0;
}

static int resolve(void *env, const struct vb_ah_attr *ah, struct vb_path *path)
{
	struct vb_engine *engine = env;
	int rc = vb_engine_resolve(engine, ah, path);

	if (rc == 0 && path->carrier == engine->udp)
		engine->udp_paths++;
	return rc;
}

static void release(void *env, struct vb_path *path)
{
	struct vb_engine *engine = env;

	if (path->carrier == engine->udp)
		engine->udp_paths--;
}

static int join(void *env, const struct in6_addr *group)
{
	struct vb_engine *engine = env;

	return vb_udp_join(engine->udp, group);
}

static void leave(void *env, const struct in6_addr *group)
{
	struct vb_engine *engine = env;

	vb_udp_leave(engine->udp, group);
}

/* --- packets and copies ------------------------------------------------------------------ */

/* A ring that cannot be made drops its packets as a wire would, and the program sees retries run
 * out: the cause is said where it is known. */
static void say_memory_is_full(struct vb_engine *engine)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	vb_engine_shield(engine);
	if (!atomic_flag_test_and_set(&said))
		fprintf(stderr,
			"verbena: shared memory (/dev/shm) is full, so that no data reaches "
			"another "
			"process of this host; each pair of processes needs 260 KiB there for each "
			"direction. Make it larger, or set VERBENA_LOCAL=0 for all of them.\n");
}

static int tx(void *env, const struct vb_path *path, const struct vb_tx *packet)
{
	struct vb_engine *engine = env;
	struct vb_carrier *carrier = path->carrier;
	int rc;

	if (carrier != engine->local) /* which looks after itself */
		vb_engine_shield(engine);
	rc = carrier->ops->tx(carrier, path, packet);
	if (__builtin_expect(rc == 0, 1))
		vb_traffic_sent(&engine->traffic, packet);
	else if (rc == -ENOSPC)
		say_memory_is_full(engine);
	return rc;
}

static int tx_short(void *env, const struct vb_short *packet)
{
	struct vb_engine *engine = env;
	const int rc = vb_local_tx_short(engine->local, packet);

	if (__builtin_expect(rc == 0, 1))
		vb_traffic_sent_short(&engine->traffic, packet);
	else if (rc == -ENOSPC)
		say_memory_is_full(engine);
	return rc;
}

static ssize_t direct(void *env, const struct vb_qp *qp, enum vb_direction direction, uint32_t rkey,
		      uint64_t va, const struct iovec *local, int parts, uint32_t length)
{
	struct vb_engine *engine = env;
	ssize_t moved;

	vb_engine_shield(engine);
	moved = vb_local_direct(engine->local, direction == VB_DIRECT_WRITE, qp->qpn,
				qp->attr.dest_qpn, rkey, va, local, parts, length);
	if (moved > 0)
		vb_engine_refresh(engine);
	return moved;
}

static bool lend(void *env, struct vb_mr *mr)
{
	struct vb_engine *engine = env;

	if (mr->lending == VB_LENT_NEVER_YET) {
		mr->lending = VB_LENT;
		vb_engine_shield(engine);
		if (!(mr->access & VB_ACCESS_REMOTE_ALL)) /* else it is there already */
			vb_engine_publish_mr(engine, mr);
	}
	return mr->lending == VB_LENT;
}

static int fetch(void *env, const struct vb_qp *qp, const struct vb_lent *lent,
		 const struct iovec *to, int parts)
{
	struct vb_engine *engine = env;

	if (!engine->local || !engine->direct)
		return -EPERM;
	vb_engine_shield(engine);
	return vb_local_fetch(engine->local, qp->qpn, qp->attr.dest_qpn, lent, to, parts);
}

static int direct_atomic(void *env, const struct vb_qp *qp, uint32_t rkey, uint64_t va,
			 const struct vb_atomic *wanted, uint64_t *before)
{
	struct vb_engine *engine = env;
	const struct vb_local_atomic op = {
		.swap = wanted->kind == VB_ATOMIC_COMPARE_SWAP,
		.qpn = qp->qpn,
		.dest_qpn = qp->attr.dest_qpn,
		.rkey = rkey,
		.va = va,
		.compare = wanted->compare,
		.swap_add = wanted->operand,
	};

	vb_engine_shield(engine);
	return vb_local_atomic(engine->local, &op, before);
}

static void show_window(void *env, const struct vb_mr *window)
{
	vb_engine_shield(env);
	vb_engine_publish_mr(env, window);
}

/* Under the lock, as for a queue pair (publish() below): a copy is at most 1 MiB long. */
static int hide_window(void *env, const struct vb_mr *window)
{
	vb_engine_shield(env);
	return vb_engine_withdraw_mr(env, window);
}

static bool present(void *env, const void *at, uint64_t length, bool write)
{
	const struct vb_foreign *foreign = vb_foreign_at(env, at);

	vb_engine_shield(env);
	return foreign ? vb_foreign_is_there(env, foreign)
		       : vb_memory_bring_in(at, length, write) == 0;
}

static bool copy(void *env, bool write, void *region, void *ours, uint32_t length)
{
	const struct vb_foreign *foreign = vb_foreign_at(env, region);

	vb_engine_shield(env);
	if (foreign)
		return vb_foreign_copy(env, foreign, write, region, ours, length) == 0;
	return (write ? vb_memory_write(region, ours, length)
		      : vb_memory_read(ours, region, length)) == 0;
}

static bool atomic(void *env, uint64_t *word, const struct vb_atomic *op, uint64_t *before)
{
	vb_engine_shield(env);
	return !vb_foreign_at(env, word) && vb_memory_atomic(word, op, before) == 0;
}

/* 0, which is nobody's, where not even the BTH is there. */
static inline uint32_t destination(const struct vb_rx *rx)
{
	return rx->size >= VB_BTH_BYTES ? vb_load_be32(rx->data + 4) & VB_QPN_MASK : 0;
}

void vb_engine_deliver(void *env, const struct vb_rx *rx)
{
	struct vb_engine *engine = env;
	const uint32_t qpn = destination(rx);

	if (!engine->now_is_fresh)
		vb_engine_refresh(engine);
	vb_traffic_received(&engine->traffic, rx, qpn);
	if (__builtin_expect(qpn == VB_GSI_QPN, 0))
		vb_gsi_rx(engine, rx);
	else
		vb_nic_rx(engine->nic, rx, engine->nic->now_ns);
}

bool vb_engine_is_next(void *env, const uint8_t *packet)
{
	const struct vb_engine *engine = env;

	return vb_nic_is_next(engine->nic, packet);
}

/* --- queue pairs that changed ------------------------------------------------------------ */

static bool bit_change(uint64_t *bitmap, uint32_t index, bool value)
{
	uint64_t bit = 1ull << index % 64, *word = &bitmap[index / 64];
	bool before = *word & bit;

	*word = value ? *word | bit : *word & ~bit;
	return before;
}

/* In RTR a queue pair takes requests too, but the first one must come as a packet: it raises
 * COMM_EST. Many responders never leave RTR, so from then on copies are welcome. */
static bool is_open(const struct vb_engine *engine, const struct vb_qp *qp)
{
	bool receives = qp->state == VB_QPS_RTS || qp->state == VB_QPS_SQD ||
			(qp->state == VB_QPS_RTR && qp->resp.comm_est);

	return receives && qp->path_valid && qp->path.carrier == engine->local && engine->direct;
}

static void publish(struct vb_engine *engine, const struct vb_qp *qp)
{
	struct vb_local_qp shown = {
		.qpn = qp->qpn,
		.dest_qpn = qp->attr.dest_qpn,
		.pd_id = qp->pd->id,
		.access = qp->attr.access_flags,
		.open = is_open(engine, qp),
	};
	bool was_open =
		bit_change(engine->published, qp->qpn - engine->nic->config.qpn_base, shown.open);

	/* what is counted comes as packets */
	shown.access &= ~vb_tally_hidden(qp->tally);
	/* without responder resources a READ or an atomic is an invalid request: the packets' way
	 * says so */
	if (qp->attr.max_dest_rd_atomic == 0)
		shown.access &= ~(uint32_t)(VB_ACCESS_REMOTE_READ | VB_ACCESS_REMOTE_ATOMIC);
	if (shown.open || was_open)
		vb_local_publish_qp(engine->local, &shown);
	/* A copy under way belongs to the connection that ends here: it may not run into what
	 * follows. It is at most 1 MiB long, so the wait under the lock is short. */
	if (was_open && !shown.open)
		vb_local_quiesce_qp(engine->local, qp->qpn);
}

static void qp_changed(void *env, struct vb_qp *qp)
{
	struct vb_engine *engine = env;
	bool open;

	vb_engine_shield(engine);
	if (qp->type == VB_QPT_RAW_PACKET)
		return; /* neither RoCE's nor other processes' */
	if (qp->type == VB_QPT_UD) {
		open = qp->state == VB_QPS_RTR || qp->state == VB_QPS_RTS ||
		       qp->state == VB_QPS_SQD || qp->state == VB_QPS_SQE;
		engine->ud_qps += open;
		engine->ud_qps -=
			bit_change(engine->ud_open, qp->qpn - engine->nic->config.qpn_base, open);
	} else if (engine->local && qp->type != VB_QPT_XRC_SEND && qp->type != VB_QPT_XRC_RECV) {
		publish(engine, qp);
	}
	if (qp->state == VB_QPS_ERR && qp->watch.interval_ns &&
	    qp->reason.check == VB_CHECK_RETRY_EXCEEDED) {
		vb_qp_watch(qp, 0);
		vb_gsi_peer_lost(engine, qp->qpn);
	}
}

/* --- events ------------------------------------------------------------------------------ */

static void event(void *env, const struct vb_event *raised)
{
	vb_engine_shield(env);
	if (raised->type == VB_EVENT_COMM_EST)
		qp_changed(env, raised->qp);
	if (hooks && hooks->event)
		hooks->event(env, raised);
}

static void cq_event(void *env, struct vb_cq *cq)
{
	vb_engine_shield(env);
	if (hooks && hooks->cq_event)
		hooks->cq_event(env, cq);
}

const struct vb_nic_ops vb_engine_nic_ops = {
	.tx = tx,
	.tx_short = tx_short,
	.direct = direct,
	.direct_atomic = direct_atomic,
	.lend = lend,
	.fetch = fetch,
	.resolve = resolve,
	.release = release,
	.event = event,
	.cq_event = cq_event,
	.qp_changed = qp_changed,
	.show_window = show_window,
	.hide_window = hide_window,
	.present = present,
	.copy = copy,
	.atomic = atomic,
	.join = join,
	.leave = leave,
	.raw_open = vb_engine_raw_open,
	.raw_close = vb_engine_raw_close,
	.raw_allowed = vb_engine_raw_allowed,
	.raw_tx = vb_engine_raw_tx,
	.raw_listen = vb_engine_raw_listen,
	.random = draw,
};
