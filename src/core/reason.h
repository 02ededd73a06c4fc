/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reason.h - why a work request failed: the fact, kept where it was known.
 *
 * A work completion has room for a status; the reason says which check failed, with which values,
 * about which peer. The check's number is also the completion's vendor_err. The text for people
 * is made elsewhere; here is only the fact.
 */
#ifndef VB_CORE_REASON_H
#define VB_CORE_REASON_H

#include <netinet/in.h>
#include <stdint.h>

enum vb_check {
	VB_CHECK_NONE = 0,
	/* Local checks, requester. Values: as the comment says, in order. */
	VB_CHECK_SGE_LKEY_UNKNOWN, /* lkey, address, length */
	VB_CHECK_SGE_IS_RKEY,	   /* the key is a region's rkey; lkey, address, length */
	VB_CHECK_SGE_RANGE,	   /* address, length, region start, region length */
	VB_CHECK_SGE_PD,	   /* lkey, region's PD, QP's PD */
	VB_CHECK_SGE_RIGHTS,	   /* lkey, rights wanted, rights held */
	VB_CHECK_MESSAGE_TOO_LONG, /* length, limit */
	VB_CHECK_NO_RD_ATOMIC,	   /* a READ or atomic on a QP with max_rd_atomic 0: opcode */
	VB_CHECK_SGE_ABSENT,	   /* a region on demand: no memory there; lkey, address, length */
	VB_CHECK_BIND_WINDOW,	   /* no such window, or bound already (type 2): its new rkey */
	VB_CHECK_BIND_PD,	   /* PDs of the window, of the QP, of the region */
	VB_CHECK_BIND_REGION,	   /* no such region, or it is not for windows: lkey, rights held */
	VB_CHECK_BIND_RIGHTS,	   /* lkey, the window's rights, those of the region */
	VB_CHECK_BIND_RANGE,	   /* address, length, region start, region length */
	VB_CHECK_INVALIDATE,	   /* no type 2 window of this QP: rkey */
	/* The local queue pair's state */
	VB_CHECK_FLUSHED, /* the QP was in ERR: not a cause, see the QP's first reason */
	/* Receive side */
	VB_CHECK_RECV_TOO_SHORT,     /* message bytes so far, receive buffer bytes */
	VB_CHECK_REQ_OPCODE_ORDER,   /* opcode, opcode before it */
	VB_CHECK_REQ_LENGTH,	     /* payload bytes, expected bytes, path MTU */
	VB_CHECK_REQ_NOT_ENABLED,    /* opcode, the QP's access flags */
	VB_CHECK_REQ_ATOMIC_ALIGNED, /* address */
	VB_CHECK_REQ_RD_ATOMIC,	     /* outstanding, max_dest_rd_atomic */
	VB_CHECK_RKEY_UNKNOWN,	     /* rkey, address, length */
	VB_CHECK_RKEY_IS_LKEY,	     /* the key is a region's lkey; rkey, address, length */
	VB_CHECK_RKEY_RANGE,	     /* address, length, region start, region length */
	VB_CHECK_RKEY_PD,	     /* rkey, region's PD, QP's PD */
	VB_CHECK_RKEY_RIGHTS,	     /* rkey, rights wanted, rights held */
	VB_CHECK_RKEY_QP,	     /* a window of another QP: rkey, that QP, this one */
	VB_CHECK_RKEY_ABSENT,	 /* a region on demand: no memory there; rkey, address, length */
	VB_CHECK_REQ_INVALIDATE, /* no type 2 window of this QP: rkey */
	/* What the peer said */
	VB_CHECK_NAK_INVALID_REQUEST,	 /* PSN */
	VB_CHECK_NAK_REMOTE_ACCESS,	 /* PSN, rkey, address, length */
	VB_CHECK_NAK_REMOTE_OPERATIONAL, /* PSN */
	VB_CHECK_RETRY_EXCEEDED,	 /* PSN, timeout exponent, retry_cnt */
	VB_CHECK_RNR_RETRY_EXCEEDED,	 /* PSN, rnr_retry, last timer value */
	VB_CHECK_BAD_RESPONSE,		 /* opcode, PSN, payload bytes, expected bytes */
	/* Outside this QP */
	VB_CHECK_CQ_OVERRUN, /* CQ capacity */
	VB_CHECK_PATH,	     /* the carrier refused the packet: errno */
	/* Behind what scripts may already know by number */
	VB_CHECK_XRC_SRQ,	/* receive side, no such SRQ in the QP's XRC domain: SRQ number */
	VB_CHECK_REQ_PLACEMENT, /* a FLUSH of no known kind: placement, selectivity */
	/* Raw packets: what is to be repeated is not up to a TCP header's end: bytes */
	VB_CHECK_TSO_HEADER,
	VB_CHECK_COUNT,
};

struct vb_reason {
	enum vb_check check;
	uint32_t qpn;	      /* the local QP */
	uint32_t peer_qpn;    /* 0: not known */
	struct in6_addr peer; /* GID; :: when not known */
	uint64_t value[4];    /* as named beside the check */
};

/* vb_check_name - a short fixed word for the check, for example "rkey-range". Never NULL. */
const char *vb_check_name(enum vb_check check);

#endif
