/* SPDX-License-Identifier: BSD-2-Clause */
/* timers.h - the deadline heap, for nic.c; vb_nic_arm_timer() is in nic.h. */
#ifndef VB_CORE_TIMERS_H
#define VB_CORE_TIMERS_H

#include "core/nic.h"

/* vb_timers_pop - takes out and returns a QP whose key is due, or NULL. */
struct vb_qp *vb_timers_pop(struct vb_nic *nic, uint64_t now_ns);

#endif
