/* SPDX-License-Identifier: BSD-2-Clause */
/* timing.c - the two time encodings of the transport: RNR NAK timer and local ACK timeout. */
#include "core/transport.h"

/* IBTA table 45, in units of 10 us. Field 0 is the longest: 655.36 ms. */
static const uint32_t rnr_timer_10us[32] = {
	65536, 1,    2,	   3,	 4,    6,     8,     12,    16,	   24,	  32,
	48,    64,   96,   128,	 192,  256,   384,   512,   768,   1024,  1536,
	2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

uint64_t vb_rnr_timer_ns(uint8_t field)
{
	return (uint64_t)rnr_timer_10us[field & 31] * 10000;
}

uint64_t vb_ack_timeout_ns(const struct vb_nic *nic, uint8_t exponent)
{
	if (exponent == 0)
		return 0;
	return VB_MAX((uint64_t)4096 << (exponent & 31), nic->config.ack_timeout_min_ns);
}
