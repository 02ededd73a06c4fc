/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm.c - the manager: what arrives finds its connection, its rule and its handler.
 *
 * Two tables, indexed by the message. rules says in which states of a connection a message may be
 * sent, is taken as the next step, or is known as a repetition: it is IBTA 12.9.7's state table for
 * what we speak. handlers says who does it. A message for which neither of the two last sets has
 * the state has no place there: it is counted and dropped.
 *
 *               sent in                     taken in                   repetition in
 *      REQ      IDLE                        (a new connection)         every passive state
 *      MRA      REQ_RCVD, REP_RCVD          REQ_SENT, REP_SENT
 *      REJ      before ESTABLISHED          anywhere but TIMEWAIT...   TIMEWAIT
 *      REP      REQ_RCVD                    REQ_SENT                   REP_RCVD, ESTABLISHED
 *      RTU      REP_RCVD                    REP_SENT                   ESTABLISHED
 *      DREQ     ESTABLISHED, DREQ_RCVD      ESTABLISHED, REP_SENT,     DREQ_RCVD, TIMEWAIT
 *                                           DREQ_SENT
 *      DREP     DREQ_RCVD                   DREQ_SENT                  TIMEWAIT
 *      SIDR_REQ IDLE                        (a new exchange)           SIDR_REQ_RCVD, SIDR_REP_SENT
 *      SIDR_REP SIDR_REQ_RCVD               SIDR_REQ_SENT
 */
#include <errno.h>
#include <stdlib.h>

#include "cm/cm_private.h"

#define MESSAGE(name) (VB_CM_ATTR_##name - VB_CM_ATTR_REQ)
#define IN(state) (1u << VB_CMS_##state)
#define REQ_DECIDED_ON (IN(REQ_RCVD) | IN(MRA_REQ_SENT))
#define REP_DECIDED_ON (IN(REP_RCVD) | IN(MRA_REP_SENT))
#define BEFORE_ESTABLISHED (IN(REQ_SENT) | REQ_DECIDED_ON | IN(REP_SENT) | REP_DECIDED_ON)
#define CONNECTED (IN(ESTABLISHED) | IN(DREQ_SENT) | IN(DREQ_RCVD) | IN(TIMEWAIT))

struct rule {
	uint32_t send, take, again; /* sets of states */
};

static const struct rule rules[VB_CM_ATTR_COUNT] = {
	[MESSAGE(REQ)] = {.send = IN(IDLE),
			  .again = REQ_DECIDED_ON | IN(REP_SENT) | CONNECTED | REP_DECIDED_ON},
	[MESSAGE(MRA)] = {.send = REQ_DECIDED_ON | REP_DECIDED_ON,
			  .take = IN(REQ_SENT) | IN(REP_SENT)},
	[MESSAGE(REJ)] = {.send = BEFORE_ESTABLISHED,
			  .take = BEFORE_ESTABLISHED | IN(ESTABLISHED) | IN(DREQ_SENT),
			  .again = IN(TIMEWAIT)},
	[MESSAGE(REP)] = {.send = REQ_DECIDED_ON,
			  .take = IN(REQ_SENT),
			  .again = REP_DECIDED_ON | IN(ESTABLISHED)},
	[MESSAGE(RTU)] = {.send = REP_DECIDED_ON, .take = IN(REP_SENT), .again = IN(ESTABLISHED)},
	[MESSAGE(DREQ)] = {.send = IN(ESTABLISHED) | IN(DREQ_RCVD),
			   .take = IN(ESTABLISHED) | IN(REP_SENT) | IN(DREQ_SENT),
			   .again = IN(DREQ_RCVD) | IN(TIMEWAIT)},
	[MESSAGE(DREP)] = {.send = IN(DREQ_RCVD), .take = IN(DREQ_SENT), .again = IN(TIMEWAIT)},
	[MESSAGE(SIDR_REQ)] = {.send = IN(IDLE), .again = IN(SIDR_REQ_RCVD) | IN(SIDR_REP_SENT)},
	[MESSAGE(SIDR_REP)] = {.send = IN(SIDR_REQ_RCVD), .take = IN(SIDR_REQ_SENT)},
};

struct handler {
	struct vb_cm_conn *(*find)(struct vb_cm *cm, const struct vb_cm_rx *rx);
	void (*take)(struct vb_cm_conn *conn, const struct vb_cm_rx *rx);
	void (*again)(struct vb_cm_conn *conn, const struct vb_cm_rx *rx); /* NULL: no answer */
	void (*stranger)(struct vb_cm *cm, const struct vb_cm_rx *rx);	   /* none was found */
};

static struct vb_cm_conn *find_pair(struct vb_cm *cm, const struct vb_cm_rx *rx)
{
	return vb_cm_find_pair(cm, rx->message.remote_id, rx->message.local_id);
}

static const struct handler handlers[VB_CM_ATTR_COUNT] = {
	[MESSAGE(REQ)] = {.find = vb_cm_req_find,
			  .again = vb_cm_req_again,
			  .stranger = vb_cm_req_new},
	[MESSAGE(MRA)] = {.find = vb_cm_mra_find, .take = vb_cm_mra_take},
	[MESSAGE(REJ)] = {.find = vb_cm_rej_find, .take = vb_cm_rej_take},
	[MESSAGE(REP)] = {.find = vb_cm_rep_find,
			  .take = vb_cm_rep_take,
			  .again = vb_cm_rep_again,
			  .stranger = vb_cm_rep_stranger},
	[MESSAGE(RTU)] = {.find = find_pair, .take = vb_cm_rtu_take},
	[MESSAGE(DREQ)] = {.find = find_pair,
			   .take = vb_cm_dreq_take,
			   .again = vb_cm_dreq_again,
			   .stranger = vb_cm_dreq_stranger},
	[MESSAGE(DREP)] = {.find = find_pair, .take = vb_cm_drep_take},
	[MESSAGE(SIDR_REQ)] = {.find = vb_cm_find_sidr,
			       .again = vb_cm_sidr_req_again,
			       .stranger = vb_cm_sidr_req_new},
	[MESSAGE(SIDR_REP)] = {.find = vb_cm_sidr_rep_find, .take = vb_cm_sidr_rep_take},
};

bool vb_cm_may_send(const struct vb_cm_conn *conn, enum vb_cm_attr attr)
{
	return rules[attr - VB_CM_ATTR_REQ].send >> conn->state & 1;
}

void vb_cm_rx(struct vb_cm *cm, const struct vb_cm_path *from, const uint8_t *mad, size_t size,
	      uint64_t now_ns)
{
	struct vb_cm_rx rx = {.from = from, .now_ns = now_ns};
	const struct handler *handler;
	const struct rule *rule;
	struct vb_cm_conn *conn;
	int err = vb_cm_message_decode(&rx.message, mad, size);

	cm->counters.rx_messages++;
	if (err) {
		if (err == -ENOMSG)
			cm->counters.rx_unknown++;
		else
			cm->counters.rx_malformed++;
		return;
	}
	handler = &handlers[rx.message.mad.attr_id - VB_CM_ATTR_REQ];
	rule = &rules[rx.message.mad.attr_id - VB_CM_ATTR_REQ];
	conn = handler->find(cm, &rx);
	if (!conn && handler->stranger) {
		handler->stranger(cm, &rx);
	} else if (conn && rule->take >> conn->state & 1) {
		handler->take(conn, &rx);
	} else if (conn && rule->again >> conn->state & 1) {
		cm->counters.duplicates++;
		if (handler->again)
			handler->again(conn, &rx);
	} else {
		cm->counters.rx_unknown++;
	}
}

static int init_tables(struct vb_cm *cm)
{
	int err = vb_cm_table_init(&cm->local_ids);

	err = err ? err : vb_cm_table_init(&cm->remote_ids);
	err = err ? err : vb_cm_table_init(&cm->remote_qps);
	err = err ? err : vb_cm_table_init(&cm->sidr_requests);
	return err ? err : vb_cm_table_init(&cm->services);
}

static void finish(struct vb_cm *cm)
{
	vb_cm_table_finish(&cm->local_ids);
	vb_cm_table_finish(&cm->remote_ids);
	vb_cm_table_finish(&cm->remote_qps);
	vb_cm_table_finish(&cm->sidr_requests);
	vb_cm_table_finish(&cm->services);
	vb_heap_finish(&cm->timers);
	free(cm);
}

struct vb_cm *vb_cm_create(const struct vb_cm_ops *ops, void *env,
			   const struct vb_cm_config *config)
{
	struct vb_cm *cm = calloc(1, sizeof(*cm));

	VB_ASSERT(config->id_bits >= 16 && config->id_bits <= 31);
	VB_ASSERT(!(config->id_base & ((1u << config->id_bits) - 1)));
	if (!cm) {
		errno = ENOMEM;
		return NULL;
	}
	cm->ops = *ops;
	cm->env = env;
	cm->config = *config;
	cm->secret = (uint64_t)ops->random(env) << 32 | ops->random(env);
	cm->max_connections = VB_MIN(VB_CM_MAX_CONNECTIONS, 1u << (config->id_bits - 1));
	vb_list_init(&cm->conns);
	vb_list_init(&cm->listeners);
	if (init_tables(cm)) {
		finish(cm);
		errno = ENOMEM;
		return NULL;
	}
	return cm;
}

void vb_cm_destroy(struct vb_cm *cm)
{
	struct vb_list *link, *tmp;

	if (!cm)
		return;
	vb_cm_conn_end_all(cm);
	vb_list_for_each(link, tmp, &cm->listeners)
		vb_cm_unlisten(vb_list_entry(link, struct vb_cm_listener, link));
	finish(cm);
}

void vb_cm_read_counters(const struct vb_cm *cm, struct vb_cm_counters *out)
{
	*out = cm->counters;
}
