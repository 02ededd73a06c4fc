/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_cm.c - any bytes, as MADs for a connection manager that listens, connects, is connected and
 * is disconnecting.
 *
 * The input is a list of steps: a call of the program, a message, some time. The program keeps
 * eight connections; a message names one of them. What a fuzzer would not guess is put right as the
 * step's control byte says: the header, the communication IDs and the transaction, the GUID and
 * the queue pairs. So every state meets every message.
 *
 * Whatever comes: the counters count what is alive, deadlines lie in the future once the manager
 * ran, no event comes to a connection that is gone, a refused call sends nothing, and when all is
 * closed nothing is left.
 */
#include <errno.h>
#include <string.h>

#include "cm/cm.h"
#include "cm/ip.h"
#include "fuzz.h"

#define STEPS_MAX 96
#define SLOTS 8
#define SERVICE vb_cm_service_id(0x0106, 7174)
#define PEER_GUID 0x027700fffe000011ull
#define PEER_ID 0x40000000u
#define RUNS_MAX 4096

enum step {
	STEP_MAD,
	STEP_MAD_WHOLE,
	STEP_AGAIN,
	STEP_CALL,
	STEP_TIME,
	STEP_DEADLINE,
	STEP_LISTEN,
	STEPS
};

/* What is put right in a message; the upper five bits of the control byte name its attribute where
 * HEADER is set. */
enum control { HEADER = 1 << 0, IDS = 1 << 1, CONTENT = 1 << 2 };

enum call {
	CALL_REQ,
	CALL_SIDR_REQ,
	CALL_REP,
	CALL_RTU,
	CALL_REJ,
	CALL_MRA,
	CALL_DREQ,
	CALL_DREP,
	CALL_SIDR_REP,
	CALL_ESTABLISHED,
	CALL_DESTROY,
	CALLS,
};

struct slot {
	struct vb_cm_conn *conn;
	uint32_t local_id, remote_id; /* as messages have shown them; 0: not yet */
	uint32_t qpn;		      /* ours */
	uint64_t tid;
};

static struct {
	struct vb_cm *cm;
	struct vb_cm_listener *listener;
	struct slot slots[SLOTS];
	struct slot *calling;
	const uint8_t *arriving;
	uint64_t now_ns, tx, rx;
	uint32_t random, peers;
	uint32_t alive;
	bool refuses, ends;
	uint8_t last[VB_MAD_BYTES];
} s;

static void put32(uint8_t *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t get32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put64(uint8_t *at, uint64_t value)
{
	put32(at, (uint32_t)(value >> 32));
	put32(at + 4, (uint32_t)value);
}

/* --- the manager's surroundings ---------------------------------------------------------- */

static void on_send(void *env, const struct vb_cm_path *to, const uint8_t mad[VB_MAD_BYTES])
{
	VB_ASSERT(mad[0] == VB_MAD_BASE_VERSION && mad[1] == VB_MAD_CM && mad[2] == 2);
	VB_ASSERT(mad[3] == VB_MAD_SEND && !mad[16] && mad[17] >= 0x10 && mad[17] <= 0x18);
	s.tx++;
	if (!s.calling || mad[17] == 0x18)
		return;
	s.calling->local_id = get32(mad + 24);
	s.calling->tid = (uint64_t)get32(mad + 8) << 32 | get32(mad + 12);
}

static struct slot *free_slot(void)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		if (!s.slots[i].conn)
			return &s.slots[i];
	return NULL;
}

static bool on_event(void *env, const struct vb_cm_event *event)
{
	struct slot *slot;
	uint8_t sum = 0;

	/* All of what the event shows is there. */
	for (size_t i = 0; event->private_data && i < event->private_data_len; i++)
		sum ^= ((const uint8_t *)event->private_data)[i];
	VB_ASSERT(event->private_data || !event->private_data_len);
	if (event->type == VB_CM_REJ_RECEIVED && event->rej->ari)
		for (size_t i = 0; i < event->rej->ari_len; i++)
			sum ^= ((const uint8_t *)event->rej->ari)[i];
	if (event->type != VB_CM_REQ_RECEIVED && event->type != VB_CM_SIDR_REQ_RECEIVED) {
		slot = vb_cm_conn_user(event->conn);
		VB_ASSERT(slot && slot->conn == event->conn && !s.ends);
		return sum != 1;
	}
	VB_ASSERT(event->listener == s.listener && event->path && s.arriving);
	slot = free_slot();
	if (!slot || s.refuses) {
		*event->later = !slot;
		return false;
	}
	*slot = (struct slot){.conn = event->conn, .remote_id = get32(s.arriving + 24)};
	slot->tid = (uint64_t)get32(s.arriving + 8) << 32 | get32(s.arriving + 12);
	vb_cm_conn_set_user(event->conn, slot);
	s.alive++;
	return true;
}

static uint32_t on_random(void *env)
{
	s.random = s.random * 1664525 + 1013904223;
	return s.random ^ s.random >> 16;
}

static void check(void)
{
	struct vb_cm_counters c;

	vb_cm_read_counters(s.cm, &c);
	VB_ASSERT(c.connections == s.alive);
	VB_ASSERT(c.listeners == (s.listener != NULL));
	VB_ASSERT(c.rx_messages == s.rx && c.tx_messages == s.tx);
}

/* --- steps ------------------------------------------------------------------------------- */

static struct vb_cm_path peer_path(void)
{
	struct vb_cm_path path = {
		.ah = {.sgid_index = 1, .hop_limit = 64, .port_num = 1, .is_global = true},
	};

	path.ah.dgid.s6_addr[10] = path.ah.dgid.s6_addr[11] = 0xff;
	path.ah.dgid.s6_addr[12] = 10;
	path.ah.dgid.s6_addr[15] = 9;
	return path;
}

static void deliver(const uint8_t *bytes, size_t size)
{
	const struct vb_cm_path from = peer_path();

	s.arriving = bytes;
	s.rx++;
	vb_cm_rx(s.cm, &from, bytes, size, s.now_ns);
	s.arriving = NULL;
}

static void put_right(uint8_t *mad, struct slot *slot, uint8_t control)
{
	uint8_t kind;

	if (control & HEADER) {
		mad[0] = VB_MAD_BASE_VERSION;
		mad[1] = VB_MAD_CM;
		mad[2] = 2;
		mad[3] = VB_MAD_SEND;
		mad[16] = 0;
		mad[17] = (uint8_t)(0x10 + (control >> 3) % 11);
	}
	kind = mad[17];
	if (control & IDS) {
		if (!slot->remote_id)
			slot->remote_id = PEER_ID | ++s.peers;
		put64(mad + 8, slot->tid);
		put32(mad + 24, kind == 0x18 ? slot->local_id : slot->remote_id);
		if (kind != 0x10 && kind < 0x17)
			put32(mad + 28, slot->local_id);
	}
	if (control & CONTENT) {
		if (kind == 0x10 || kind == 0x17)
			put64(mad + 32, SERVICE);
		if (kind == 0x10 || kind == 0x13) {
			put64(mad + (kind == 0x10 ? 40 : 52), PEER_GUID);
			put32(mad + (kind == 0x10 ? 56 : 36), slot->remote_id << 8);
		}
		if (kind == 0x15)
			put32(mad + 32, slot->qpn << 8);
	}
}

/* A message from its first byte on, of any size; or its data, with zeros behind. */
static void step_mad(struct vb_fuzz_input *in, bool whole)
{
	uint8_t control = vb_fuzz_u8(in);
	struct slot *slot = &s.slots[vb_fuzz_below(in, SLOTS)];
	size_t given = vb_fuzz_u8(in), at = 0, size = given;
	uint8_t mad[VB_MAD_BYTES + 1] = {0};

	if (whole) {
		at = VB_MAD_HEADER_BYTES;
		given = VB_MIN(given, (size_t)VB_MAD_DATA_BYTES);
		size = VB_MAD_BYTES;
	} else if (given >= UINT8_MAX - 1) {
		given = size = given == UINT8_MAX ? VB_MAD_BYTES : VB_MAD_BYTES + 1;
	}
	for (size_t i = 0; i < given; i++)
		mad[at + i] = vb_fuzz_u8(in);
	put_right(mad, slot, control);
	memcpy(s.last, mad, sizeof(s.last));
	deliver(mad, size);
}

static const uint8_t *draw_data(struct vb_fuzz_input *in, size_t *length)
{
	static const uint8_t data[256] = {1, 2, 3};

	*length = vb_fuzz_u8(in);
	return data;
}

static int start(struct vb_fuzz_input *in, struct slot *slot, enum call call)
{
	const struct vb_cm_path to = peer_path();
	struct vb_cm_req req = {
		.service_id = SERVICE,
		.qpn = 0x100 + (uint32_t)(slot - s.slots),
		.transport = VB_CM_RC,
		.path_mtu = 1024,
	};
	struct vb_cm_sidr_req sidr = {.service_id = SERVICE};
	uint8_t habits = vb_fuzz_u8(in);

	slot->qpn = req.qpn;
	req.ack_timeout = habits & 31;
	req.remote_cm_timeout = sidr.timeout = 31 - (habits & 31);
	req.local_cm_timeout = habits >> 3;
	req.max_cm_retries = sidr.max_retries = habits >> 5;
	req.private_data = draw_data(in, &req.private_data_len);
	sidr.private_data = req.private_data;
	sidr.private_data_len = req.private_data_len;
	if (call == CALL_REQ)
		return vb_cm_send_req(slot->conn, &to, &req, s.now_ns);
	return vb_cm_send_sidr_req(slot->conn, &to, &sidr, s.now_ns);
}

static int make_call(struct vb_fuzz_input *in, struct slot *slot, enum call call)
{
	size_t length = 0;
	const uint8_t *data = call < CALL_REP ? NULL : draw_data(in, &length);
	const struct vb_cm_rep rep = {
		.qpn = 0x200,
		.failover_accepted = 1,
		.private_data = data,
		.private_data_len = length,
	};
	const struct vb_cm_rej rej = {
		.reason = 28,
		.ari = data,
		.ari_len = length / 2,
		.private_data = data,
		.private_data_len = length,
	};
	const struct vb_cm_sidr_rep sidr_rep = {
		.status = length & 3,
		.qpn = 0x300,
		.private_data = data,
		.private_data_len = length,
	};

	switch (call) {
	case CALL_REQ:
	case CALL_SIDR_REQ:
		return start(in, slot, call);
	case CALL_REP:
		slot->qpn = rep.qpn;
		return vb_cm_send_rep(slot->conn, &rep, s.now_ns);
	case CALL_RTU:
		return vb_cm_send_rtu(slot->conn, data, length, s.now_ns);
	case CALL_REJ:
		return vb_cm_send_rej(slot->conn, &rej, s.now_ns);
	case CALL_MRA:
		return vb_cm_send_mra(slot->conn, length & 31, data, length, s.now_ns);
	case CALL_DREQ:
		return vb_cm_send_dreq(slot->conn, data, length, s.now_ns);
	case CALL_DREP:
		return vb_cm_send_drep(slot->conn, data, length, s.now_ns);
	case CALL_SIDR_REP:
		return vb_cm_send_sidr_rep(slot->conn, &sidr_rep, s.now_ns);
	case CALL_ESTABLISHED:
		return vb_cm_notify_established(slot->conn, s.now_ns);
	case CALL_DESTROY:
	case CALLS:
		break;
	}
	return 0;
}

static void let_go(struct slot *slot)
{
	struct vb_cm_conn *conn = slot->conn;

	slot->conn = NULL;
	s.alive -= conn != NULL;
	vb_cm_conn_destroy(conn, s.now_ns);
	*slot = (struct slot){0};
}

static void step_call(struct vb_fuzz_input *in)
{
	struct slot *slot = &s.slots[vb_fuzz_below(in, SLOTS)];
	enum call call = (enum call)vb_fuzz_below(in, CALLS);
	uint64_t tx = s.tx;
	int result;

	if (!slot->conn && call <= CALL_SIDR_REQ) {
		*slot = (struct slot){.conn = vb_cm_conn_create(s.cm, slot)};
		VB_ASSERT(slot->conn);
		s.alive++;
	}
	if (!slot->conn)
		return;
	if (call == CALL_DESTROY) {
		let_go(slot);
		return;
	}
	s.calling = slot;
	result = make_call(in, slot, call);
	s.calling = NULL;
	VB_ASSERT(!result || s.tx == tx);
	VB_ASSERT(!result || result == -EINVAL || result == -EMSGSIZE ||
		  (result == -EISCONN && call == CALL_ESTABLISHED));
}

static void run(void)
{
	vb_cm_run(s.cm, s.now_ns);
	VB_ASSERT(vb_cm_deadline(s.cm) > s.now_ns);
}

static void run_to_deadline(void)
{
	uint64_t deadline = vb_cm_deadline(s.cm);

	if (deadline == UINT64_MAX)
		return;
	s.now_ns = VB_MAX(s.now_ns, deadline);
	run();
}

static void step_listen(void)
{
	struct vb_cm_listener *other;

	if (s.listener) {
		VB_ASSERT(vb_cm_listen(s.cm, SERVICE, NULL, NULL, &other) == -EADDRINUSE);
		vb_cm_unlisten(s.listener);
		s.listener = NULL;
	} else {
		VB_ASSERT(vb_cm_listen(s.cm, SERVICE, NULL, NULL, &s.listener) == 0);
	}
}

static void step(struct vb_fuzz_input *in)
{
	uint8_t byte = vb_fuzz_u8(in);

	s.refuses = byte & 0x80;
	switch ((enum step)((byte & 0x7f) % STEPS)) {
	case STEP_MAD:
		step_mad(in, false);
		break;
	case STEP_MAD_WHOLE:
		step_mad(in, true);
		break;
	case STEP_AGAIN:
		deliver(s.last, sizeof(s.last));
		break;
	case STEP_CALL:
		step_call(in);
		break;
	case STEP_TIME:
		s.now_ns += 1ull << vb_fuzz_below(in, 40);
		run();
		break;
	case STEP_DEADLINE:
		run_to_deadline();
		break;
	case STEP_LISTEN:
		step_listen();
		break;
	case STEPS:
		break;
	}
	check();
}

/* Everything is let go, or the manager is destroyed with all that is in it. */
static void finish(bool by_hand)
{
	struct vb_cm_counters c;

	s.ends = true;
	for (uint32_t i = 0; by_hand && i < SLOTS; i++)
		let_go(&s.slots[i]);
	if (by_hand) {
		vb_cm_unlisten(s.listener);
		for (uint32_t i = 0; i < RUNS_MAX && vb_cm_deadline(s.cm) != UINT64_MAX; i++)
			run_to_deadline();
		VB_ASSERT(vb_cm_deadline(s.cm) == UINT64_MAX);
		vb_cm_read_counters(s.cm, &c);
		VB_ASSERT(!c.connections && !c.listeners && !c.timewaits);
	}
	vb_cm_destroy(s.cm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct vb_cm_ops ops = {on_send, on_event, on_random};
	static const struct vb_cm_config config = {
		.ca_guid = 0x027700fffe000010ull,
		.id_base = 0x00800000,
		.id_bits = 22,
	};
	struct vb_fuzz_input in = {data, data + size};

	memset(&s, 0, sizeof(s));
	s.random = 1;
	s.cm = vb_cm_create(&ops, NULL, &config);
	VB_ASSERT(s.cm);
	step_listen();
	for (uint32_t i = 0; i < STEPS_MAX && !vb_fuzz_is_empty(&in); i++)
		step(&in);
	finish(size & 1);
	return 0;
}
