/* SPDX-License-Identifier: BSD-2-Clause */
/* raw.h - what the core asks for raw packets (core/nic.h), answered with a packet socket. */
#ifndef VB_HOST_RAW_H
#define VB_HOST_RAW_H

#include "host/engine.h"

int vb_engine_raw_open(void *env, struct vb_raw_port *port);
void vb_engine_raw_close(void *env);
int vb_engine_raw_allowed(void *env);
int vb_engine_raw_tx(void *env, const uint8_t *frame, uint32_t size);
int vb_engine_raw_listen(void *env, const struct vb_raw_wanted *wanted);

#endif
