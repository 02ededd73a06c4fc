/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_config.c - the defaults of rsockets: built in, or the administrator's. Each file of
 * /etc/rdma/rsocket holds one number, as rsocket(7) says; what is no number is passed over.
 */
#include "rdmacm/rsocket.h"

#include <inttypes.h>
#include <stdio.h>

#define FOLDER "/etc/rdma/rsocket/"

static struct vb_rs_config config = {
	.receive_bytes = 1 << 20,
	.send_bytes = 1 << 20,
	.sq_size = 384,
	.rq_size = 384,
	.inline_bytes = 64,
	.polling_us = 10,
	.wake_up_ms = 5000,
};

static void take(const char *path, uint32_t *value, uint32_t lowest, uint32_t highest)
{
	FILE *file = fopen(path, "re");
	uint32_t number;

	if (!file)
		return;
	if (fscanf(file, "%" SCNu32, &number) == 1)
		*value = number < lowest ? lowest : number > highest ? highest : number;
	fclose(file);
}

static void read_files(void)
{
	take(FOLDER "mem_default", &config.receive_bytes, VB_RS_BUFFER_MIN, VB_RS_BUFFER_MAX);
	take(FOLDER "wmem_default", &config.send_bytes, VB_RS_BUFFER_MIN, VB_RS_BUFFER_MAX);
	take(FOLDER "sqsize_default", &config.sq_size, VB_RS_QUEUE_MIN, VB_RS_QUEUE_MAX);
	take(FOLDER "rqsize_default", &config.rq_size, VB_RS_QUEUE_MIN, VB_RS_QUEUE_MAX);
	take(FOLDER "inline_default", &config.inline_bytes, 0, VB_RS_QUEUE_MAX);
	take(FOLDER "iomap_size", &config.iomap_slots, 0, VB_RS_QUEUE_MAX);
	take(FOLDER "polling_time", &config.polling_us, 0, 1000000);
	take(FOLDER "wake_up_interval", &config.wake_up_ms, 1, 1 << 30);
	config.iomap_slots = vb_rs_iomap_slots(config.iomap_slots);
}

const struct vb_rs_config *vb_rs_config(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_files);
	return &config;
}
