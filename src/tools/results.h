/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * results.h - numbers out of what the programs print.
 *
 * Each reads one program's whole output and writes a result with its unit into out. False: the
 * output holds no result, or one that cannot be (a bandwidth of zero).
 */
#ifndef VB_TOOLS_RESULTS_H
#define VB_TOOLS_RESULTS_H

#include <stdbool.h>
#include <stddef.h>

typedef bool vb_result_fn(const char *output, char *out, size_t size);

/* vb_result_devinfo - ibv_devinfo: the first device, its port's state. */
vb_result_fn vb_result_devinfo;
/* vb_result_pingpong - ibv_*_pingpong: time of a round trip. */
vb_result_fn vb_result_pingpong;
/* vb_result_bandwidth - perftest's *_bw: the average over the run. */
vb_result_fn vb_result_bandwidth;
/* vb_result_rate - the same table: messages a second. */
vb_result_fn vb_result_rate;
/* vb_result_latency - perftest's *_lat: the typical (median) time one way. */
vb_result_fn vb_result_latency;

#endif
