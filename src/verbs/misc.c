/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * misc.c - words for numbers, rates, fork, sysfs, and what this library does not do.
 *
 * The words are those that programs print and their users search for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "verbs/face.h"

static const char *word(const char *const *words, size_t count, int n)
{
	return n >= 0 && (size_t)n < count && words[n] ? words[n] : "unknown";
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const words[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
		[IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
		[IBV_WC_MW_BIND_ERR] = "memory window bind error",
		[IBV_WC_BAD_RESP_ERR] = "bad response error",
		[IBV_WC_LOC_ACCESS_ERR] = "local access error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
		[IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation error",
		[IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request",
		[IBV_WC_REM_ABORT_ERR] = "remote aborted error",
		[IBV_WC_INV_EECN_ERR] = "invalid EE context number",
		[IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
		[IBV_WC_FATAL_ERR] = "fatal error",
		[IBV_WC_RESP_TIMEOUT_ERR] = "response timeout error",
		[IBV_WC_GENERAL_ERR] = "general error",
		[IBV_WC_TM_ERR] = "tag matching error",
		[IBV_WC_TM_RNDV_INCOMPLETE] = "tag matching rendezvous incomplete",
	};

	return word(words, VB_ARRAY_SIZE(words), (int)status);
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	static const char *const words[] = {
		[IBV_EVENT_CQ_ERR] = "CQ error",
		[IBV_EVENT_QP_FATAL] = "QP fatal error",
		[IBV_EVENT_QP_REQ_ERR] = "QP invalid request error",
		[IBV_EVENT_QP_ACCESS_ERR] = "QP access violation error",
		[IBV_EVENT_COMM_EST] = "communication established",
		[IBV_EVENT_SQ_DRAINED] = "send queue drained",
		[IBV_EVENT_PATH_MIG] = "path migrated",
		[IBV_EVENT_PATH_MIG_ERR] = "path migration error",
		[IBV_EVENT_DEVICE_FATAL] = "device fatal error",
		[IBV_EVENT_PORT_ACTIVE] = "port active",
		[IBV_EVENT_PORT_ERR] = "port error",
		[IBV_EVENT_LID_CHANGE] = "LID change",
		[IBV_EVENT_PKEY_CHANGE] = "P_Key change",
		[IBV_EVENT_SM_CHANGE] = "SM change",
		[IBV_EVENT_SRQ_ERR] = "SRQ error",
		[IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
		[IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached",
		[IBV_EVENT_CLIENT_REREGISTER] = "client reregistration",
		[IBV_EVENT_GID_CHANGE] = "GID table change",
		[IBV_EVENT_WQ_FATAL] = "WQ fatal error",
	};

	return word(words, VB_ARRAY_SIZE(words), (int)event);
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const words[] = {
		[IBV_PORT_NOP] = "no state change (NOP)",
		[IBV_PORT_DOWN] = "down",
		[IBV_PORT_INIT] = "init",
		[IBV_PORT_ARMED] = "armed",
		[IBV_PORT_ACTIVE] = "active",
		[IBV_PORT_ACTIVE_DEFER] = "active defer",
	};

	return word(words, VB_ARRAY_SIZE(words), (int)state);
}

const char *ibv_node_type_str(enum ibv_node_type type)
{
	static const char *const words[] = {
		[IBV_NODE_CA] = "InfiniBand channel adapter",
		[IBV_NODE_SWITCH] = "InfiniBand switch",
		[IBV_NODE_ROUTER] = "InfiniBand router",
		[IBV_NODE_RNIC] = "iWARP NIC",
		[IBV_NODE_USNIC] = "usNIC",
		[IBV_NODE_USNIC_UDP] = "usNIC UDP",
		[IBV_NODE_UNSPECIFIED] = "unspecified",
	};

	return word(words, VB_ARRAY_SIZE(words), (int)type);
}

/* --- rates: as a multiple of 2.5 Gbit/s where the rate is one, and in Mbit/s on the wire - */

static const struct {
	int mult, mbps;
} rates[] = {
	[IBV_RATE_2_5_GBPS] = {1, 2500},       [IBV_RATE_5_GBPS] = {2, 5000},
	[IBV_RATE_10_GBPS] = {4, 10000},       [IBV_RATE_14_GBPS] = {0, 14062},
	[IBV_RATE_20_GBPS] = {8, 20000},       [IBV_RATE_25_GBPS] = {0, 25781},
	[IBV_RATE_28_GBPS] = {11, 28125},      [IBV_RATE_30_GBPS] = {12, 30000},
	[IBV_RATE_40_GBPS] = {16, 40000},      [IBV_RATE_50_GBPS] = {20, 53125},
	[IBV_RATE_56_GBPS] = {0, 56250},       [IBV_RATE_60_GBPS] = {24, 60000},
	[IBV_RATE_80_GBPS] = {32, 80000},      [IBV_RATE_100_GBPS] = {0, 103125},
	[IBV_RATE_112_GBPS] = {0, 112500},     [IBV_RATE_120_GBPS] = {48, 120000},
	[IBV_RATE_168_GBPS] = {0, 168750},     [IBV_RATE_200_GBPS] = {0, 206250},
	[IBV_RATE_300_GBPS] = {0, 309375},     [IBV_RATE_400_GBPS] = {160, 425000},
	[IBV_RATE_600_GBPS] = {240, 637500},   [IBV_RATE_800_GBPS] = {320, 850000},
	[IBV_RATE_1200_GBPS] = {480, 1275000},
};

static bool is_rate(enum ibv_rate rate)
{
	return (size_t)rate < VB_ARRAY_SIZE(rates) && rates[rate].mbps;
}

int ibv_rate_to_mult(enum ibv_rate rate)
{
	return is_rate(rate) && rates[rate].mult ? rates[rate].mult : -1;
}

enum ibv_rate mult_to_ibv_rate(int mult)
{
	size_t rate;

	for (rate = 0; mult > 0 && rate < VB_ARRAY_SIZE(rates); rate++)
		if (rates[rate].mult == mult)
			return (enum ibv_rate)rate;
	return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(enum ibv_rate rate)
{
	return is_rate(rate) ? rates[rate].mbps : -1;
}

enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	size_t rate;

	for (rate = 0; mbps > 0 && rate < VB_ARRAY_SIZE(rates); rate++)
		if (rates[rate].mbps == mbps)
			return (enum ibv_rate)rate;
	return IBV_RATE_MAX;
}

/* --- fork: registered memory stays the parent's, whatever a child writes ----------------- */

int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

VB_EXPORT int ibv_dontfork_range(void *base, size_t size);
VB_EXPORT int ibv_dofork_range(void *base, size_t size);

VB_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

VB_EXPORT int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}

/* --- sysfs ------------------------------------------------------------------------------- */

VB_EXPORT const char *ibv_get_sysfs_path(void);
VB_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

VB_EXPORT const char *ibv_get_sysfs_path(void)
{
	const char *path = secure_getenv("SYSFS_PATH");

	return path && *path ? path : "/sys";
}

/* Bytes read, without the newline at the end; -1. */
VB_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[PATH_MAX];
	ssize_t n;
	int fd;

	if (!size || snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return -1;
	fd = vb_face_open_beside(path);
	if (fd < 0)
		return -1;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n < 0)
		return -1;
	if (n > 0 && buf[n - 1] == '\n')
		n--;
	buf[n] = '\0';
	return (int)n;
}
