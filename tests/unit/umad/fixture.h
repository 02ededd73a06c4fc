/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fixture.h - two virtual hosts in one process, for the tests of libibumad: verbena0 and verbena1,
 * on addresses of their own.
 */
#ifndef VB_TESTS_UMAD_FIXTURE_H
#define VB_TESTS_UMAD_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/umad.h>
#include <infiniband/umad_types.h>

#define MAD_BYTES 256
#define PATIENCE_MS 10000 /* for what must come */

/* fixture_begin - for cmocka's group: sets VERBENA_ADDR. */
int fixture_begin(void **state);
/* fixture_gid - the IPv4-mapped GID of verbena0 (host 0) or verbena1; of a host that is not there
 * for 2. */
void fixture_gid(int host, uint8_t gid[16]);

struct mad {
	struct ib_user_mad umad;
	uint8_t bytes[MAD_BYTES];
};

/* Fields of a MAD, host order. */
uint64_t field(const struct mad *mad, int at, int bytes);
void set_field(struct mad *mad, int at, int bytes, uint64_t value);

/* request - a Get of a class, base and class version 1, to LID 0 and QP qpn of this host. */
struct mad request(uint8_t mgmt_class, uint16_t attribute, uint32_t modifier, uint32_t tid);
/* to_gid - the same to QP 1 of the host that the GID names. */
void to_gid(struct mad *mad, const uint8_t gid[16]);
/* ask - sends it and receives what comes back, which must be its answer. */
struct mad ask(int port, int agent, const struct mad *mad);

#endif
