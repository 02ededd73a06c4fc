/* SPDX-License-Identifier: BSD-2-Clause */
/* results.c - see results.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/results.h"

/* perftest prints one line of headings that begins with " #bytes", and one of numbers below it:
 *
 *      #bytes  #iterations  BW peak[MiB/sec]  BW average[MiB/sec]  MsgRate[Mpps]
 *      #bytes  #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  t_avg[usec] ...
 */
#define BANDWIDTH_AVERAGE 3
#define MESSAGE_RATE 4
#define LATENCY_TYPICAL 4
#define FIELDS_MAX 9

/* perftest_fields - the numbers below the headings. Returns how many. */
static int perftest_fields(const char *output, double field[FIELDS_MAX])
{
	const char *at = strstr(output, "#bytes");
	int count = 0;
	char *end;

	at = at ? strchr(at, '\n') : NULL;
	if (!at)
		return 0;
	at++;
	while (count < FIELDS_MAX && *at && *at != '\n') {
		field[count] = strtod(at, &end);
		if (end == at)
			break;
		count++;
		at = end + strspn(end, " \t");
	}
	return count;
}

bool vb_result_bandwidth(const char *output, char *out, size_t size)
{
	double field[FIELDS_MAX];

	if (perftest_fields(output, field) <= BANDWIDTH_AVERAGE || field[BANDWIDTH_AVERAGE] <= 0)
		return false;
	snprintf(out, size, "%.0f MiB/s", field[BANDWIDTH_AVERAGE]);
	return true;
}

bool vb_result_rate(const char *output, char *out, size_t size)
{
	double field[FIELDS_MAX];

	if (perftest_fields(output, field) <= MESSAGE_RATE || field[MESSAGE_RATE] <= 0)
		return false;
	snprintf(out, size, "%.3f million/s", field[MESSAGE_RATE]);
	return true;
}

bool vb_result_latency(const char *output, char *out, size_t size)
{
	double field[FIELDS_MAX];

	if (perftest_fields(output, field) <= LATENCY_TYPICAL || field[LATENCY_TYPICAL] <= 0)
		return false;
	snprintf(out, size, "%.2f us one way", field[LATENCY_TYPICAL]);
	return true;
}

/* "1000 iters in 0.01 seconds = 12.34 usec/iter" */
bool vb_result_pingpong(const char *output, char *out, size_t size)
{
	const char *at = strstr(output, " iters in ");
	double seconds, microseconds;

	if (!at ||
	    sscanf(at, " iters in %lf seconds = %lf usec/iter", &seconds, &microseconds) != 2)
		return false;
	if (microseconds <= 0)
		return false;
	snprintf(out, size, "%.2f us round trip", microseconds);
	return true;
}

bool vb_result_devinfo(const char *output, char *out, size_t size)
{
	const char *device = strstr(output, "hca_id:");
	const char *state = strstr(output, "state:");
	char name[64], port[32];

	if (!device || !state || sscanf(device, "hca_id: %63s", name) != 1 ||
	    sscanf(state, "state: %31s", port) != 1 || strcmp(port, "PORT_ACTIVE") != 0)
		return false;
	snprintf(out, size, "%s, %s", name, port);
	return true;
}
