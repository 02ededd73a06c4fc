/* SPDX-License-Identifier: BSD-2-Clause */
/* clock.h - the time, for carriers and the parts above them: core, cm and wire are told it. */
#ifndef VB_CARRIER_CLOCK_H
#define VB_CARRIER_CLOCK_H

#include <stdint.h>
#include <time.h>

/* vb_clock_ns - nanoseconds since some moment in the past; they never go back. */
static inline uint64_t vb_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
