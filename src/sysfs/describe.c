/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * describe.c - which files there are, and what each one says; the formats are those of the kernel's
 * own files (Documentation/ABI/stable/sysfs-class-infiniband).
 *
 * The adapter's directory ends in ":00.0" as PCI's do: programs take the last digits for a function
 * of one adapter and merge what differs in them alone. It is no PCI address, since nobody's PCI
 * device may be taken for ours.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/limits.h"
#include "host/identity.h"
#include "host/look.h"
#include "sysfs/writer.h"

#define VERBS_ABI 6    /* IB_USER_VERBS_ABI_VERSION */
#define UMAD_ABI 5     /* IB_USER_MAD_ABI_VERSION */
#define CHAR_MAJOR 231 /* of InfiniBand's character devices; umad from minor 0, uverbs from 192 */
#define UVERBS_MINOR 192

#define CAPABILITY_MASK 0x04010000u /* connection manager, IP based GIDs */

void vb_sysfs_say(struct vb_sysfs_writer *w, const char *name, const char *format, ...)
{
	char path[PATH_MAX], text[VB_SYSFS_TEXT_MAX];
	va_list arguments;

	if (w->rc)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	snprintf(path, sizeof(path), "%s/%s", w->directory, name);
	w->rc = w->sink->file(w->sink, path, text, vb_sysfs_is_moving(path));
}

void vb_sysfs_point(struct vb_sysfs_writer *w, const char *name, const char *target)
{
	char path[PATH_MAX];

	if (w->rc)
		return;
	snprintf(path, sizeof(path), "%s/%s", w->directory, name);
	w->rc = w->sink->link(w->sink, path, target);
}

void vb_sysfs_enter(struct vb_sysfs_writer *w, const struct vb_device *device, const char *below)
{
	snprintf(w->directory, sizeof(w->directory), "sys/devices/verbena/%s:00.0%s%s",
		 device->name, *below ? "/" : "", below);
}

/* --- what moves -------------------------------------------------------------------------- */

/* By its path alone: a port's state and what is counted there. */
bool vb_sysfs_is_moving(const char *path)
{
	const char *port = strstr(path, "/ports/1/");

	if (!port)
		return false;
	port += strlen("/ports/1/");
	return strcmp(port, "state") == 0 || strcmp(port, "phys_state") == 0 ||
	       strncmp(port, "counters/", 9) == 0 || strncmp(port, "hw_counters/", 12) == 0;
}

static void describe_state(struct vb_sysfs_writer *w, enum vb_port_state state)
{
	static const char *const physical[] = {
		[VB_PHYS_POLLING] = "Polling",
		[VB_PHYS_DISABLED] = "Disabled",
		[VB_PHYS_LINK_UP] = "LinkUp",
	};
	unsigned int code = vb_physical_state(state);

	vb_sysfs_say(w, "ports/1/state", state == VB_PORT_UP ? "4: ACTIVE\n" : "1: DOWN\n");
	vb_sysfs_say(w, "ports/1/phys_state", "%u: %s\n", code, physical[code]);
}

static void describe_counters(struct vb_sysfs_writer *w, const struct vb_port_counters *c)
{
	const struct {
		const char *name;
		uint64_t value;
	} all[] = {
		{"port_xmit_data", c->xmit_data},
		{"port_rcv_data", c->rcv_data},
		{"port_xmit_packets", c->xmit_packets},
		{"port_rcv_packets", c->rcv_packets},
		{"unicast_xmit_packets", c->unicast_xmit_packets},
		{"unicast_rcv_packets", c->unicast_rcv_packets},
		{"multicast_xmit_packets", c->multicast_xmit_packets},
		{"multicast_rcv_packets", c->multicast_rcv_packets},
		{"port_rcv_errors", c->rcv_errors},
		{"port_xmit_discards", c->xmit_discards},
		/* what cannot happen here is 0 */
		{"symbol_error", 0},
		{"link_error_recovery", 0},
		{"link_downed", 0},
		{"port_rcv_remote_physical_errors", 0},
		{"port_rcv_switch_relay_errors", 0},
		{"port_xmit_constraint_errors", 0},
		{"port_rcv_constraint_errors", 0},
		{"local_link_integrity_errors", 0},
		{"excessive_buffer_overrun_errors", 0},
		{"VL15_dropped", 0},
		{"port_xmit_wait", 0},
	};
	char name[64];

	for (size_t i = 0; i < VB_ARRAY_SIZE(all); i++) {
		snprintf(name, sizeof(name), "ports/1/counters/%s", all[i].name);
		vb_sysfs_say(w, name, "%llu\n", (unsigned long long)all[i].value);
	}
}

/* The names are those of Soft-RoCE and of mlx5, where one of them counts the same. */
static void describe_hw_counters(struct vb_sysfs_writer *w,
				 const uint64_t traffic[VB_TRAFFIC_KINDS])
{
	static const struct {
		const char *name;
		enum vb_traffic_kind kind;
	} all[] = {
		{"sent_pkts", VB_TRAFFIC_TX_PACKETS},
		{"rcvd_pkts", VB_TRAFFIC_RX_PACKETS},
		{"sent_bytes", VB_TRAFFIC_TX_BYTES},
		{"rcvd_bytes", VB_TRAFFIC_RX_BYTES},
		{"duplicate_request", VB_TRAFFIC_RX_DUPLICATES},
		{"out_of_seq_request", VB_TRAFFIC_RX_OUT_OF_SEQUENCE},
		{"rcvd_seq_err", VB_TRAFFIC_RX_NAKS},
		{"rcvd_rnr_err", VB_TRAFFIC_RX_RNR_NAKS},
		{"send_rnr_err", VB_TRAFFIC_TX_RNR_NAKS},
		{"completer_retry_err", VB_TRAFFIC_RETRIES},
		{"local_ack_timeout_err", VB_TRAFFIC_TIMEOUTS},
		{"rx_icrc_encapsulated", VB_TRAFFIC_RX_BAD_ICRC},
		{"send_err", VB_TRAFFIC_TX_DISCARDS},
	};
	char name[64];

	for (size_t i = 0; i < VB_ARRAY_SIZE(all); i++) {
		snprintf(name, sizeof(name), "ports/1/hw_counters/%s", all[i].name);
		vb_sysfs_say(w, name, "%llu\n", (unsigned long long)traffic[all[i].kind]);
	}
	vb_sysfs_say(w, "ports/1/hw_counters/lifespan",
		     "0\n"); /* ms that the kernel may show old values */
}

/* --- what stays -------------------------------------------------------------------------- */

/* A GUID as the kernel prints it, of a value in host order. */
static const char *guid_text(uint64_t guid, char text[20])
{
	snprintf(text, 20, "%04x:%04x:%04x:%04x", (unsigned int)(guid >> 48 & 0xffff),
		 (unsigned int)(guid >> 32 & 0xffff), (unsigned int)(guid >> 16 & 0xffff),
		 (unsigned int)(guid & 0xffff));
	return text;
}

static const char *gid_text(const struct in6_addr *gid, char text[40])
{
	for (int i = 0; i < 8; i++)
		snprintf(text + 5 * i, 40 - (size_t)(5 * i), "%02x%02x%s", gid->s6_addr[2 * i],
			 gid->s6_addr[2 * i + 1], i < 7 ? ":" : "");
	return text;
}

/* An entry without a GID has zeros, and no type and no interface: the kernel's file then refuses to
 * be read. */
static void describe_gids(struct vb_sysfs_writer *w, const struct vb_device *device)
{
	static const struct in6_addr none;
	char name[64], text[40];

	for (unsigned int i = 0; i < VB_MAX_GIDS; i++) {
		bool there = i < device->gid_count;

		snprintf(name, sizeof(name), "ports/1/gids/%u", i);
		vb_sysfs_say(w, name, "%s\n", gid_text(there ? &device->gids[i].gid : &none, text));
		snprintf(name, sizeof(name), "ports/1/gid_attrs/types/%u", i);
		vb_sysfs_say(w, name, "%s", there ? "RoCE v2\n" : "");
		snprintf(name, sizeof(name), "ports/1/gid_attrs/ndevs/%u", i);
		vb_sysfs_say(w, name, "%s%s", there ? device->gids[i].ifname : "",
			     there ? "\n" : "");
	}
}

static void describe_port(struct vb_sysfs_writer *w, const struct vb_device *device)
{
	char name[64];

	vb_sysfs_say(w, "ports/1/rate", "%u Gb/sec (4X EDR)\n", VB_PORT_GBPS);
	vb_sysfs_say(w, "ports/1/lid", "0x%x\n", device->lid);
	vb_sysfs_say(w, "ports/1/lid_mask_count", "0\n");
	vb_sysfs_say(w, "ports/1/sm_lid", "0x0\n");
	vb_sysfs_say(w, "ports/1/sm_sl", "0\n");
	vb_sysfs_say(w, "ports/1/link_layer", "%s\n", device->lid ? "InfiniBand" : "Ethernet");
	vb_sysfs_say(w, "ports/1/cap_mask", "0x%08x\n", CAPABILITY_MASK);
	for (unsigned int i = 0; i < VB_PKEY_TABLE; i++) {
		snprintf(name, sizeof(name), "ports/1/pkeys/%u", i);
		vb_sysfs_say(w, name, "0xffff\n");
	}
	describe_gids(w, device);
}

static void describe_moving(struct vb_sysfs_writer *w, struct vb_device *device)
{
	struct vb_look look;

	vb_host_look(device, &look);
	describe_state(w, look.port);
	describe_counters(w, &look.counters);
	describe_hw_counters(w, look.traffic);
}

static void describe_ib(struct vb_sysfs_writer *w, struct vb_device *device)
{
	char below[96], target[96], guid[20];

	snprintf(below, sizeof(below), "infiniband/%s", device->name);
	vb_sysfs_enter(w, device, below);
	guid_text(device->guid, guid);
	vb_sysfs_say(w, "node_type", "1: CA\n");
	vb_sysfs_say(w, "node_guid", "%s\n", guid);
	vb_sysfs_say(w, "sys_image_guid", "%s\n", guid);
	vb_sysfs_say(w, "node_desc", "%s\n", device->name);
	vb_sysfs_say(w, "fw_ver", VB_VERSION "\n");
	vb_sysfs_say(w, "hw_rev", "0x%x\n", VB_HARDWARE_VERSION);
	vb_sysfs_say(w, "hca_type", "Verbena\n");
	vb_sysfs_say(w, "board_id", "Verbena\n");
	snprintf(target, sizeof(target), "../../../%s:00.0", device->name);
	vb_sysfs_point(w, "device", target);
	vb_sysfs_point(w, "subsystem", "../../../../../class/infiniband");
	describe_port(w, device);
	describe_moving(w, device);
}

/* The character devices are named only: nobody opens the kernel's. */
static void describe_characters(struct vb_sysfs_writer *w, const struct vb_device *device)
{
	char below[96], target[96];
	unsigned int n = device->index;

	snprintf(target, sizeof(target), "../../../%s:00.0", device->name);
	snprintf(below, sizeof(below), "infiniband_verbs/uverbs%u", n);
	vb_sysfs_enter(w, device, below);
	vb_sysfs_say(w, "ibdev", "%s\n", device->name);
	vb_sysfs_say(w, "abi_version", "1\n");
	vb_sysfs_say(w, "dev", "%u:%u\n", CHAR_MAJOR, UVERBS_MINOR + n);
	vb_sysfs_point(w, "device", target);
	vb_sysfs_point(w, "subsystem", "../../../../../class/infiniband_verbs");
	snprintf(below, sizeof(below), "infiniband_mad/umad%u", n);
	vb_sysfs_enter(w, device, below);
	vb_sysfs_say(w, "ibdev", "%s\n", device->name);
	vb_sysfs_say(w, "port", "1\n");
	vb_sysfs_say(w, "dev", "%u:%u\n", CHAR_MAJOR, n);
	vb_sysfs_point(w, "device", target);
	vb_sysfs_point(w, "subsystem", "../../../../../class/infiniband_mad");
}

static void describe_links(struct vb_sysfs_writer *w, const struct vb_device *device)
{
	const struct {
		const char *class;
		char name[64];
	} all[] = {
		{"infiniband", ""},
		{"infiniband_verbs", "uverbs"},
		{"infiniband_mad", "umad"},
	};
	char name[64], target[192];

	for (size_t i = 0; i < VB_ARRAY_SIZE(all); i++) {
		if (*all[i].name)
			snprintf(name, sizeof(name), "%.32s%u", all[i].name, device->index);
		else
			snprintf(name, sizeof(name), "%s", device->name);
		snprintf(w->directory, sizeof(w->directory), "sys/class/%s", all[i].class);
		snprintf(target, sizeof(target), "../../devices/verbena/%s:00.0/%s/%s",
			 device->name, all[i].class, name);
		vb_sysfs_point(w, name, target);
		if (!*all[i].name)
			continue;
		strcpy(w->directory, "dev/infiniband");
		vb_sysfs_point(w, name, "/dev/null");
	}
}

int vb_sysfs_describe(struct vb_device *const *list, int count, struct vb_sysfs_sink *sink)
{
	struct vb_sysfs_writer w = {.sink = sink};

	vb_sysfs_describe_driver(&w);
	for (int i = 0; i < count; i++) {
		vb_sysfs_describe_adapter(&w, list[i]);
		describe_ib(&w, list[i]);
		describe_characters(&w, list[i]);
		describe_links(&w, list[i]);
	}
	strcpy(w.directory, "sys/class/infiniband_verbs");
	vb_sysfs_say(&w, "abi_version", "%u\n", VERBS_ABI);
	strcpy(w.directory, "sys/class/infiniband_mad");
	vb_sysfs_say(&w, "abi_version", "%u\n", UMAD_ABI);
	strcpy(w.directory, "dev/infiniband");
	vb_sysfs_point(&w, "rdma_cm", "/dev/null");
	return w.rc;
}

int vb_sysfs_describe_moving(struct vb_device *device, struct vb_sysfs_sink *sink)
{
	struct vb_sysfs_writer w = {.sink = sink};
	char below[96];

	snprintf(below, sizeof(below), "infiniband/%s", device->name);
	vb_sysfs_enter(&w, device, below);
	describe_moving(&w, device);
	return w.rc;
}
