/* SPDX-License-Identifier: BSD-2-Clause */
/* limits.h - what one NIC can do: query_device reports these numbers and every call enforces them.
 */
#ifndef VB_CORE_LIMITS_H
#define VB_CORE_LIMITS_H

#define VB_MAX_QP_BITS 15u		       /* QPN bits that one NIC chooses */
#define VB_MAX_QP (1u << (VB_MAX_QP_BITS - 1)) /* half of them: free numbers stay easy to find */
/* Numbers of queue pairs that are gone and not yet given again: peers keep them in timewait. */
#define VB_QPN_REST 8192u
#define VB_MAX_QP_WR 16384u
#define VB_MAX_SGE 32u
#define VB_MAX_SGE_RD 32u
#define VB_MAX_INLINE 1024u
#define VB_MAX_CQ 65536u
#define VB_MAX_CQE 4194303u
#define VB_MAX_MR_BITS 17u /* slots in the table of regions and windows */
#define VB_MAX_MR (1u << (VB_MAX_MR_BITS - 1))
#define VB_MAX_MW (1u << (VB_MAX_MR_BITS - 2)) /* a quarter of the slots stays free */
#define VB_KEY_TAG_BITS 8u /* a key's low bits: those of a type 2 window are the consumer's */
#define VB_MAX_PD 32768u
#define VB_MAX_COUNTERS 65536u /* of completions */
#define VB_MAX_DM (1u << 20)   /* bytes of device memory that one process has on a device */
#define VB_MAX_DM_ALIGN 12u    /* log2 of the largest alignment of a piece of it */
#define VB_MAX_AH 65536u
#define VB_MAX_SRQ 32768u
#define VB_MAX_SRQ_WR 32768u
#define VB_MAX_SRQ_SGE 32u
#define VB_MAX_XRCD 4096u
#define VB_MAX_XRC_SRQ (1u << (VB_MAX_QP_BITS - 1)) /* their numbers are chosen like QPs' */
#define VB_MAX_RD_ATOMIC 16u			    /* both as initiator and as target, per QP */
#define VB_MAX_MESSAGE (1u << 31)		    /* bytes */
#define VB_MAX_PATH_MTU 4096u			    /* bytes */
#define VB_PKEY_TABLE 1u
#define VB_MAX_FLOWS 4096u
#define VB_MAX_WQ 16384u
#define VB_MAX_WQ_TABLES 4096u
#define VB_MAX_WQ_TABLE_BITS 9u /* 512 places */
#define VB_MAX_TSO (256u << 10) /* payload bytes that are cut */
#define VB_MAX_TSO_HEADER 512u
#define VB_MAX_TM_TAGS 1024u /* tagged buffers of one SRQ */
#define VB_MAX_TM_OPS 1024u  /* list operations under way: they are carried out at once */
#define VB_MAX_TM_SGE 16u
#define VB_TM_RNDV_BYTES 64u	/* the longest rendezvous message that is matched */
#define VB_MAX_MCAST_GROUPS 64u /* multicast groups that a NIC is in; each costs a socket */
#define VB_MAX_MCAST_QPS 1024u	/* queue pairs attached to one of them */

#endif
