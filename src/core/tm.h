/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tm.h - tag matching on a shared receive queue.
 *
 * A SEND to an RC queue pair of such an SRQ begins with a header that says what it is:
 *
 *      TMH    operation 1 | reserved 3 | the program's own 4 | tag 8
 *      RVH    remote address 8 | rkey 4 | length 4                      rendezvous only
 *
 *      EAGER      TMH, data         matched: the data goes into the tagged buffer
 *      RNDV       TMH, RVH, more    matched: the NIC READs what the RVH names into the tagged
 *                                   buffer, then sends both headers back, as FIN
 *      NO_TAG     anything          never matched
 *      FIN        TMH, RVH          never matched
 *
 * What is not matched goes as a whole, headers too, into the next ordinary buffer of the SRQ.
 *
 * The list of tagged buffers is searched in the order in which they were added. A message that
 * could have been matched and was not is "unexpected", and counted: it and a buffer that is being
 * added may miss each other. So while the program has not said that it dealt with as many as were
 * counted, buffers that are added wait without being matched; it says so with any list operation.
 *
 * The send queue of a queue pair on such an SRQ is the NIC's own.
 */
#ifndef VB_CORE_TM_H
#define VB_CORE_TM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "core/cq.h"
#include "core/reason.h"
#include "core/rq.h"

struct vb_headers;
struct vb_qp;
struct vb_send_wqe;

#define VB_TMH_BYTES 16u
#define VB_TM_HEADERS_BYTES 32u /* TMH and RVH */
#define VB_TM_SENDS 64u		/* places in the send queue of a QP on such an SRQ */

/* enum vb_tmh - numerically equal to enum ibv_tmh_op. */
enum vb_tmh { VB_TMH_NO_TAG, VB_TMH_RNDV, VB_TMH_FIN, VB_TMH_EAGER };

/* What the message under way at a responder is. */
enum vb_tm_kind {
	VB_TM_NO_TAG,
	VB_TM_UNEXPECTED,
	VB_TM_EAGER, /* this and the next: matched */
	VB_TM_RNDV,
};

struct vb_tm_message {
	uint8_t kind;  /* enum vb_tm_kind */
	uint32_t skip; /* bytes at the beginning of the next packet that are not data */
	uint32_t app_ctx;
	uint64_t tag;
	uint8_t headers[VB_TM_HEADERS_BYTES]; /* RNDV */
};

struct vb_tm_entry {
	struct vb_list link; /* in list, or in free */
	bool listed, enabled;
	uint16_t generation; /* part of the handle: how often the place was given before */
	uint32_t num_sge, length;
	uint64_t tag, mask, wr_id;
	struct vb_sge *sges;
};

struct vb_tm {
	uint32_t max_tags;
	uint32_t unexpected; /* messages, since the beginning */
	uint32_t handled;    /* of them, as the program said last */
	struct vb_list list; /* in the order of addition */
	struct vb_list free;
	struct vb_tm_entry *entries;
	struct vb_sge *sges; /* VB_MAX_TM_SGE for each entry */
};

/* enum vb_tm_opcode - numerically equal to enum ibv_ops_wr_opcode. */
enum vb_tm_opcode { VB_TM_ADD, VB_TM_DEL, VB_TM_SYNC };

struct vb_tm_op {
	uint64_t wr_id;
	enum vb_tm_opcode opcode;
	bool signaled;
	bool sync; /* unexpected is to be heeded; SYNC heeds it always */
	uint32_t unexpected;
	uint32_t handle; /* DEL: in; ADD: out */
	/* ADD */
	uint64_t recv_wr_id, tag, mask;
	const struct vb_sge *sges;
	uint32_t num_sge;
};

/* vb_tm_init - makes srq, to which no queue pair is attached yet, one of tag matching, that
 * completes into cq. -EINVAL: max_tags 0 or over VB_MAX_TM_TAGS; -ENOMEM. */
int vb_tm_init(struct vb_srq *srq, struct vb_cq *cq, uint32_t max_tags) VB_MUST_USE;
/* vb_tm_finish - for vb_srq_destroy(). */
void vb_tm_finish(struct vb_srq *srq);

/* vb_tm_post - a list operation, carried out at once. -EINVAL: no SRQ of tag matching, a wrong
 * opcode, too many SGEs or bytes; -ENOMEM: the list is full. */
int vb_tm_post(struct vb_srq *srq, struct vb_tm_op *op) VB_MUST_USE;

/* --- for the responder: qp is on an SRQ of tag matching ---------------------------------- */
/* vb_tm_take - the first packet of a SEND: decides what becomes of the message, and takes the
 * tagged buffer or an ordinary one into resp.recv. False: there is none now, or no place for a
 * READ. */
bool vb_tm_take(struct vb_qp *qp, const uint8_t *payload, uint32_t bytes, bool only);
/* vb_tm_begun - the first of several packets of a message was placed. */
void vb_tm_begun(struct vb_qp *qp);
/* vb_tm_complete - the message has ended, with total bytes placed; only: it was one packet. */
void vb_tm_complete(struct vb_qp *qp, const struct vb_headers *h, uint32_t total, bool only);
/* vb_tm_sent - a request that the NIC itself had put into the send queue completed. */
void vb_tm_sent(struct vb_qp *qp, const struct vb_send_wqe *w, enum vb_status status,
		const struct vb_reason *reason);

#endif
