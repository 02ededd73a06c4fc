/* SPDX-License-Identifier: BSD-2-Clause */
/* fixture.c - see fixture.h. */
#include "fixture.h"

#include <stdio.h>
#include <unistd.h>

#define QP1_QKEY 0x80010000u

static uint8_t address[4];

int fixture_begin(void **state)
{
	char text[64];
	int pid = getpid();

	/* of this run alone: several may run on one machine */
	address[0] = 127;
	address[1] = (uint8_t)(192 + pid % 32);
	address[2] = (uint8_t)(pid / 32);
	snprintf(text, sizeof(text), "127.%u.%u.2,127.%u.%u.3", address[1], address[2], address[1],
		 address[2]);
	return setenv("VERBENA_ADDR", text, 1);
}

void fixture_gid(int host, uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, address, sizeof(address));
	gid[15] = (uint8_t)(2 + host);
}

uint64_t field(const struct mad *mad, int at, int bytes)
{
	uint64_t value = 0;

	for (int i = 0; i < bytes; i++)
		value = value << 8 | mad->bytes[at + i];
	return value;
}

void set_field(struct mad *mad, int at, int bytes, uint64_t value)
{
	for (int i = bytes; i-- > 0; value >>= 8)
		mad->bytes[at + i] = (uint8_t)value;
}

struct mad request(uint8_t mgmt_class, uint16_t attribute, uint32_t modifier, uint32_t tid)
{
	int subnet = mgmt_class == UMAD_CLASS_SUBN_LID_ROUTED ||
		     mgmt_class == UMAD_CLASS_SUBN_DIRECTED_ROUTE;
	struct mad mad = {0};

	umad_set_addr(&mad, subnet ? 0xffff : 0, subnet ? 0 : 1, 0, subnet ? 0 : (int)QP1_QKEY);
	set_field(&mad, 0, 4, 0x01000101u | (uint32_t)mgmt_class << 16);
	set_field(&mad, 12, 4, tid);
	set_field(&mad, 16, 2, attribute);
	set_field(&mad, 20, 4, modifier);
	return mad;
}

void to_gid(struct mad *mad, const uint8_t gid[16])
{
	struct ib_mad_addr addr = {.hop_limit = 64};

	memcpy(addr.gid, gid, 16);
	umad_set_grh(mad, &addr);
}

struct mad ask(int port, int agent, const struct mad *mad)
{
	struct mad copy = *mad, answer = {0};
	int length = MAD_BYTES;

	assert_int_equal(umad_send(port, agent, &copy, MAD_BYTES, PATIENCE_MS, 0), 0);
	assert_int_equal(umad_recv(port, &answer, &length, -1), agent);
	assert_int_equal(umad_status(&answer), 0);
	assert_int_equal(length, MAD_BYTES);
	assert_int_equal(field(&answer, 12, 4), field(mad, 12, 4)); /* transaction ID, ours */
	assert_int_equal(field(&answer, 3, 1), UMAD_METHOD_GET_RESP);
	assert_int_equal(field(&answer, 16, 2), field(mad, 16, 2));
	return answer;
}
