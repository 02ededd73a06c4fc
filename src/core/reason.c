/* SPDX-License-Identifier: BSD-2-Clause */
/* reason.c - the fixed words for checks; scripts and vendor_err tables may rely on them. */
#include "core/reason.h"

#include "base/macros.h"

static const char *const names[VB_CHECK_COUNT] = {
	[VB_CHECK_NONE] = "none",
	[VB_CHECK_SGE_LKEY_UNKNOWN] = "sge-lkey-unknown",
	[VB_CHECK_SGE_IS_RKEY] = "sge-is-rkey",
	[VB_CHECK_SGE_RANGE] = "sge-range",
	[VB_CHECK_SGE_PD] = "sge-pd",
	[VB_CHECK_SGE_RIGHTS] = "sge-rights",
	[VB_CHECK_MESSAGE_TOO_LONG] = "message-too-long",
	[VB_CHECK_NO_RD_ATOMIC] = "no-rd-atomic",
	[VB_CHECK_SGE_ABSENT] = "sge-absent",
	[VB_CHECK_BIND_WINDOW] = "bind-window",
	[VB_CHECK_BIND_PD] = "bind-pd",
	[VB_CHECK_BIND_REGION] = "bind-region",
	[VB_CHECK_BIND_RIGHTS] = "bind-rights",
	[VB_CHECK_BIND_RANGE] = "bind-range",
	[VB_CHECK_INVALIDATE] = "invalidate",
	[VB_CHECK_FLUSHED] = "flushed",
	[VB_CHECK_RECV_TOO_SHORT] = "receive-too-short",
	[VB_CHECK_REQ_OPCODE_ORDER] = "request-opcode-order",
	[VB_CHECK_REQ_LENGTH] = "request-length",
	[VB_CHECK_REQ_NOT_ENABLED] = "request-not-enabled",
	[VB_CHECK_REQ_ATOMIC_ALIGNED] = "request-atomic-aligned",
	[VB_CHECK_REQ_RD_ATOMIC] = "request-rd-atomic",
	[VB_CHECK_RKEY_UNKNOWN] = "rkey-unknown",
	[VB_CHECK_RKEY_IS_LKEY] = "rkey-is-lkey",
	[VB_CHECK_RKEY_RANGE] = "rkey-range",
	[VB_CHECK_RKEY_PD] = "rkey-pd",
	[VB_CHECK_RKEY_RIGHTS] = "rkey-rights",
	[VB_CHECK_RKEY_QP] = "rkey-qp",
	[VB_CHECK_RKEY_ABSENT] = "rkey-absent",
	[VB_CHECK_REQ_INVALIDATE] = "request-invalidate",
	[VB_CHECK_NAK_INVALID_REQUEST] = "nak-invalid-request",
	[VB_CHECK_NAK_REMOTE_ACCESS] = "nak-remote-access",
	[VB_CHECK_NAK_REMOTE_OPERATIONAL] = "nak-remote-operational",
	[VB_CHECK_RETRY_EXCEEDED] = "retry-exceeded",
	[VB_CHECK_RNR_RETRY_EXCEEDED] = "rnr-retry-exceeded",
	[VB_CHECK_BAD_RESPONSE] = "bad-response",
	[VB_CHECK_CQ_OVERRUN] = "cq-overrun",
	[VB_CHECK_PATH] = "path",
	[VB_CHECK_XRC_SRQ] = "xrc-srq",
	[VB_CHECK_REQ_PLACEMENT] = "request-placement",
	[VB_CHECK_TSO_HEADER] = "tso-header",
};

const char *vb_check_name(enum vb_check check)
{
	if ((unsigned int)check >= VB_ARRAY_SIZE(names) || !names[check])
		return "unknown";
	return names[check];
}
