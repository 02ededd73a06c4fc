/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rmpp.c - messages longer than one MAD: the reliable multi-packet protocol (IBTA 13.6).
 *
 *     24  version 1 | type | response time 5, flags 3 | status
 *     28  DATA, ACK: segment number, from 1
 *     32  DATA: payload length; ACK: the last segment that may be sent now
 *     36  what the class puts before its data: it is in every segment
 *
 * A message is its header, up to where its class's data begins, and the data, which is cut:
 *
 *      sender      DATA 1 (first)                 DATA 2, 3, ...      DATA n (last)
 *      receiver               ACK 1, window 65               ACK 64, ...           ACK n
 *
 * The first segment goes alone: its acknowledgement opens the window. Payload lengths count what
 * follows the RMPP header of every segment: the first segment's says them all together, the last
 * one's its own.
 *
 * The receiver takes segments in order and drops others; the sender goes back to what was
 * acknowledged last when its time is up. A message that is complete is remembered for a while,
 * since its last acknowledgement may have been lost.
 *
 * Answers come in under the engine's lock, where nothing can be sent: what is to go out waits in
 * the port's outbox for the timer's thread.
 */
#include <errno.h>
#include <string.h>

#include "umad/face.h"
#include "wire/cursor.h"

#define VERSION_AT 24
#define TYPE_AT 25
#define FLAGS_AT 26
#define STATUS_AT 27
#define SEGMENT_AT 28
#define LENGTH_AT 32 /* or the window */
#define PAYLOAD_AT 36
#define PAYLOAD_BYTES (VB_MAD_BYTES - PAYLOAD_AT)
#define METHOD_AT 3
#define TID_AT 8

enum { TYPE_DATA = 1, TYPE_ACK = 2, TYPE_STOP = 3, TYPE_ABORT = 4 };
enum { FLAG_ACTIVE = 1, FLAG_FIRST = 2, FLAG_LAST = 4, FLAGS = 7 };

#define WINDOW 64u
#define SEGMENTS_MAX 4096u /* about 0.9 MB */
#define ASSEMBLIES_MAX 64u /* of a port */
#define OUTBOX_MAX 1024u
#define REST_NS (40ull * 1000 * 1000 * 1000)	 /* between two segments */
#define REMEMBER_NS (10ull * 1000 * 1000 * 1000) /* a message that is complete */
#define ACK_TIMEOUT_MS 2000u			 /* at most: the time on the way is not known */

/* One MAD that is to go out. */
struct parcel {
	struct vb_list link;
	struct vb_cm_path to;
	uint32_t qpn, qkey;
	uint8_t mad[VB_MAD_BYTES];
};

/* A message that comes in, or has come. */
struct assembly {
	struct vb_list link;
	struct vb_umad_agent *agent;
	struct in6_addr source;
	uint8_t head[VB_MAD_BYTES]; /* of its first segment */
	uint32_t got;		    /* segments */
	uint32_t window;	    /* the last that the sender may send */
	uint64_t until_ns;
	bool complete;
	uint8_t *data; /* what the segments brought, NULL once it is complete */
};

/* Where the data of a class begins (IBTA 13.6.2.1 and the classes' own chapters). */
static uint32_t data_at(uint8_t mgmt_class)
{
	if (mgmt_class == VB_MAD_SUBNET_ADMIN)
		return 56;
	if (mgmt_class >= VB_UMAD_VENDOR_FIRST && mgmt_class <= VB_UMAD_VENDOR_LAST)
		return 40;
	return 64; /* device management and the like */
}

static bool is_active(const uint8_t *mad)
{
	return vb_umad_has_rmpp(mad[1]) && mad[FLAGS_AT] & FLAG_ACTIVE;
}

bool vb_umad_rmpp_is_ours(const struct vb_umad_agent *agent, const uint8_t *mad)
{
	return agent->rmpp && is_active(mad);
}

bool vb_umad_rmpp_is_programs(const struct vb_umad_agent *agent, const uint8_t *mad)
{
	return !agent->rmpp && is_active(mad);
}

/* --- the outbox -------------------------------------------------------------------------- */

static void post(struct vb_umad_port *port, const struct vb_cm_path *to, uint32_t qpn,
		 uint32_t qkey, const uint8_t *mad)
{
	struct parcel *parcel = port->outbox_count < OUTBOX_MAX ? calloc(1, sizeof(*parcel)) : NULL;

	if (!parcel) /* lost, as on the way */
		return;
	parcel->to = *to;
	parcel->qpn = qpn;
	parcel->qkey = qkey;
	memcpy(parcel->mad, mad, VB_MAD_BYTES);
	vb_list_append(&port->outbox, &parcel->link);
	port->outbox_count++;
}

void vb_umad_rmpp_flush(struct vb_umad_port *port)
{
	struct vb_list *link;

	while ((link = vb_list_pop(&port->outbox)) != NULL) {
		struct parcel *parcel = vb_list_entry(link, struct parcel, link);
		int ignored;

		port->outbox_count--;
		pthread_mutex_unlock(&port->lock);
		ignored = vb_gsi_send(port->engine, &parcel->to, parcel->qpn, parcel->qkey,
				      parcel->mad);
		(void)ignored; /* one more that is lost */
		free(parcel);
		pthread_mutex_lock(&port->lock);
	}
}

/* --- sending ----------------------------------------------------------------------------- */

int vb_umad_rmpp_begin(struct vb_umad_send *send, uint32_t length)
{
	uint32_t head = data_at(send->message->mad[1]), room = VB_MAD_BYTES - head;
	struct vb_umad_transfer *t = &send->transfer;

	if (length < head)
		return -EINVAL;
	t->segments = VB_MAX((length - head + room - 1) / room, 1u);
	if (t->segments > SEGMENTS_MAX)
		return -EMSGSIZE;
	t->pad = t->segments * room - (length - head);
	t->window = 1;
	return 0;
}

/* Segment number i, from 1. */
static void cut(const struct vb_umad_send *send, uint32_t i, uint8_t out[VB_MAD_BYTES])
{
	const struct vb_umad_transfer *t = &send->transfer;
	uint32_t head = data_at(send->message->mad[1]), room = VB_MAD_BYTES - head;
	uint32_t used = room - (i == t->segments ? t->pad : 0), length = 0;
	uint8_t flags = FLAG_ACTIVE;

	memset(out, 0, VB_MAD_BYTES);
	memcpy(out, send->message->mad, head);
	memcpy(out + head, send->message->mad + head + (size_t)(i - 1) * room, used);
	if (i == 1) {
		flags |= FLAG_FIRST;
		length = t->segments * PAYLOAD_BYTES - t->pad;
	}
	if (i == t->segments) {
		flags |= FLAG_LAST;
		length = PAYLOAD_BYTES - t->pad;
	}
	out[VERSION_AT] = 1;
	out[TYPE_AT] = TYPE_DATA;
	out[FLAGS_AT] = (uint8_t)((out[FLAGS_AT] & ~FLAGS) | flags);
	out[STATUS_AT] = 0;
	vb_store_be32(out + SEGMENT_AT, i);
	vb_store_be32(out + LENGTH_AT, length);
}

void vb_umad_rmpp_push(struct vb_umad_port *port, struct vb_umad_send *send)
{
	struct vb_umad_transfer *t = &send->transfer;
	uint32_t timeout_ms = send->message->head.timeout_ms;
	uint8_t mad[VB_MAD_BYTES];

	while (t->sent < VB_MIN(t->window, t->segments)) {
		cut(send, ++t->sent, mad);
		post(port, &send->to, send->qpn, send->qkey, mad);
	}
	timeout_ms = timeout_ms ? VB_MIN(timeout_ms, ACK_TIMEOUT_MS) : ACK_TIMEOUT_MS;
	send->deadline_ns = vb_engine_now() + timeout_ms * 1000000ull;
}

bool vb_umad_rmpp_is_sending(const struct vb_umad_send *send)
{
	return send->transfer.acked < send->transfer.segments;
}

void vb_umad_rmpp_repeat(struct vb_umad_port *port, struct vb_umad_send *send)
{
	send->transfer.sent = send->transfer.acked;
	vb_umad_rmpp_push(port, send);
}

/* The message under way that an acknowledgement, or a refusal, is about. */
static struct vb_umad_send *find_transfer(const struct vb_umad_agent *agent,
					  const struct vb_gsi_rx *rx)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &agent->port->sends)
	{
		struct vb_umad_send *send = vb_list_entry(link, struct vb_umad_send, link);
		const uint8_t *mad = send->message->mad;

		if (send->message->head.agent_id == agent->id && vb_umad_rmpp_is_sending(send) &&
		    memcmp(mad + TID_AT, rx->mad + TID_AT, 8) == 0 && mad[1] == rx->mad[1] &&
		    (mad[METHOD_AT] ^ VB_MAD_RESPONSE_BIT) == rx->mad[METHOD_AT] &&
		    vb_umad_is_from(agent->port, &rx->path.ah.dgid, &send->to.ah.dgid))
			return send;
	}
	return NULL;
}

static void take_ack(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx)
{
	uint32_t segment = vb_load_be32(rx->mad + SEGMENT_AT);
	uint32_t window = vb_load_be32(rx->mad + LENGTH_AT);
	struct vb_umad_send *send = find_transfer(agent, rx);
	uint32_t timeout_ms;

	if (!send || segment > send->transfer.sent || window < segment ||
	    segment < send->transfer.acked)
		return;
	if (segment > send->transfer.acked)
		send->retries = send->message->head.retries;
	send->transfer.acked = segment;
	send->transfer.window =
		VB_MAX(send->transfer.window, segment + VB_MIN(window - segment, WINDOW));
	timeout_ms = send->message->head.timeout_ms;
	if (vb_umad_rmpp_is_sending(send))
		vb_umad_rmpp_push(agent->port, send);
	else if (timeout_ms == 0 || vb_umad_is_response(send->message->mad))
		vb_umad_send_forget(agent->port, send);
	else /* now for the answer */
		send->deadline_ns = vb_umad_deadline(timeout_ms);
}

/* STOP and ABORT: the receiver gave up. */
static void take_refusal(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx)
{
	struct vb_umad_send *send = find_transfer(agent, rx);

	if (send)
		vb_umad_give_up(agent->port, send, ECONNABORTED);
}

/* --- receiving --------------------------------------------------------------------------- */

static void drop(struct vb_umad_port *port, struct assembly *a)
{
	vb_list_remove(&a->link);
	port->assembly_count--;
	free(a->data);
	free(a);
}

void vb_umad_rmpp_forget(struct vb_umad_port *port, const struct vb_umad_agent *agent)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &port->assemblies)
	{
		struct assembly *a = vb_list_entry(link, struct assembly, link);

		if (!agent || a->agent == agent)
			drop(port, a);
	}
	while (!agent && (link = vb_list_pop(&port->outbox)) != NULL)
		free(vb_list_entry(link, struct parcel, link));
}

static struct assembly *find_assembly(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx)
{
	uint64_t now = vb_engine_now();
	struct assembly *found = NULL;
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &agent->port->assemblies)
	{
		struct assembly *a = vb_list_entry(link, struct assembly, link);

		if (a->until_ns <= now)
			drop(agent->port, a);
		else if (a->agent == agent && memcmp(a->head + TID_AT, rx->mad + TID_AT, 8) == 0 &&
			 a->head[1] == rx->mad[1] && a->head[METHOD_AT] == rx->mad[METHOD_AT] &&
			 memcmp(&a->source, &rx->path.ah.dgid, sizeof(a->source)) == 0)
			found = a;
	}
	return found;
}

/* Makes room: a message that is complete is only remembered. */
static bool has_room(struct vb_umad_port *port)
{
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &port->assemblies)
	{
		if (port->assembly_count < ASSEMBLIES_MAX)
			break;
		if (vb_list_entry(link, struct assembly, link)->complete)
			drop(port, vb_list_entry(link, struct assembly, link));
	}
	return port->assembly_count < ASSEMBLIES_MAX;
}

static struct assembly *begin(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx)
{
	struct vb_umad_port *port = agent->port;
	struct assembly *a = NULL;

	if (rx->mad[FLAGS_AT] & FLAG_FIRST && vb_load_be32(rx->mad + SEGMENT_AT) == 1 &&
	    has_room(port))
		a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->agent = agent;
	a->source = rx->path.ah.dgid;
	a->window = 1;
	memcpy(a->head, rx->mad, VB_MAD_BYTES);
	vb_list_append(&port->assemblies, &a->link);
	port->assembly_count++;
	return a;
}

static void acknowledge(struct vb_umad_agent *agent, struct assembly *a, const struct vb_gsi_rx *rx)
{
	uint8_t mad[VB_MAD_BYTES] = {0};

	memcpy(mad, rx->mad, data_at(rx->mad[1]));
	mad[METHOD_AT] ^= VB_MAD_RESPONSE_BIT;
	mad[TYPE_AT] = TYPE_ACK;
	mad[FLAGS_AT] = (uint8_t)((mad[FLAGS_AT] & ~FLAGS) | FLAG_ACTIVE);
	a->window = a->got + WINDOW;
	vb_store_be32(mad + SEGMENT_AT, a->got);
	vb_store_be32(mad + LENGTH_AT, a->window);
	post(agent->port, &rx->path, rx->src_qpn, VB_GSI_QKEY, mad);
}

/* The next segment's data. False: it cannot be held. */
static bool append(struct assembly *a, const uint8_t *mad)
{
	uint32_t head = data_at(mad[1]), room = VB_MAD_BYTES - head;
	uint8_t *data =
		a->got < SEGMENTS_MAX ? realloc(a->data, (size_t)(a->got + 1) * room) : NULL;

	if (!data)
		return false;
	a->data = data;
	memcpy(data + (size_t)a->got * room, mad + head, room);
	a->got++;
	return true;
}

static void complete(struct vb_umad_agent *agent, struct assembly *a, const struct vb_gsi_rx *rx)
{
	uint32_t head = data_at(rx->mad[1]), room = VB_MAD_BYTES - head;
	uint32_t payload = vb_load_be32(rx->mad + LENGTH_AT), pad = 0;
	struct vb_umad_message *message;

	if (payload <= PAYLOAD_BYTES)
		pad = VB_MIN(PAYLOAD_BYTES - payload, room);
	message = vb_umad_message_create(head + a->got * room);
	if (message) {
		message->length = head + a->got * room - pad;
		memcpy(message->mad, a->head, head);
		memcpy(message->mad + head, a->data, (size_t)a->got * room);
		vb_umad_deliver(agent, rx, message);
	}
	free(a->data);
	a->data = NULL;
	a->complete = true;
	a->until_ns = vb_engine_now() + REMEMBER_NS;
}

/* An answer to nobody's question is not even begun. */
static bool is_expected(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx)
{
	struct vb_umad_send *send;

	if (!vb_umad_is_response(rx->mad))
		return vb_umad_is_for_vendor(agent, rx->mad);
	send = vb_umad_find_request(agent, rx);
	if (send && send->deadline_ns != VB_NEVER) /* it comes, if slowly */
		send->deadline_ns = vb_umad_deadline(send->message->head.timeout_ms);
	return send != NULL;
}

static void take_data(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx)
{
	uint32_t segment = vb_load_be32(rx->mad + SEGMENT_AT);
	struct assembly *a = find_assembly(agent, rx);

	if (!a || !a->complete) {
		if (!is_expected(agent, rx))
			return;
		if (!a)
			a = begin(agent, rx);
		if (!a)
			return;
	}
	if (!a->complete)
		a->until_ns = vb_engine_now() + REST_NS;
	if (segment > a->got + 1)
		return; /* one before it was lost: the sender goes back */
	if (segment == a->got + 1 && !a->complete) {
		if (!append(a, rx->mad)) {
			drop(agent->port, a);
			return;
		}
		if (rx->mad[FLAGS_AT] & FLAG_LAST)
			complete(agent, a, rx);
		else if (a->got < a->window)
			return; /* the window's last segment is acknowledged for all */
	}
	acknowledge(agent, a, rx);
}

void vb_umad_rmpp_received(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx)
{
	int rc;

	if (rx->mad[VERSION_AT] != 1)
		return;
	switch (rx->mad[TYPE_AT]) {
	case TYPE_DATA:
		take_data(agent, rx);
		break;
	case TYPE_ACK:
		take_ack(agent, rx);
		break;
	case TYPE_STOP:
	case TYPE_ABORT:
		take_refusal(agent, rx);
		break;
	}
	rc = vb_umad_timer_watch(agent->port);
	(void)rc; /* without a thread what waits goes out when the program calls */
}
