/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * adapter.c - the adapter that carries a device: what a PCI device's directory would have.
 *
 * It is as near to the processors as its interface's adapter; an interface without one is as near
 * to all of them. The interface is a link to the system's own directory.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/identity.h"
#include "sysfs/writer.h"

#define CPUS_MAX 4096u

/* A short file of the system's, without its newline. False: there is none. */
static bool read_line(const char *path, char text[VB_SYSFS_TEXT_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size;

	if (fd < 0)
		return false;
	size = read(fd, text, VB_SYSFS_TEXT_MAX - 1);
	close(fd);
	if (size <= 0)
		return false;
	text[size] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return true;
}

static bool read_of_interface(const struct vb_device *device, const char *file,
			      char text[VB_SYSFS_TEXT_MAX])
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/net/%s/device/%s", device->ifname, file);
	return read_line(path, text);
}

/* "0-3,8" as "0000010f", 32 processors a word, the highest first. */
static void list_to_mask(const char *list, char mask[VB_SYSFS_TEXT_MAX])
{
	uint32_t words[CPUS_MAX / 32] = {0};
	unsigned int first, last, highest = 0;
	size_t length = 0;

	while (*list >= '0' && *list <= '9') {
		char *end;

		first = last = (unsigned int)strtoul(list, &end, 10);
		if (*end == '-')
			last = (unsigned int)strtoul(end + 1, &end, 10);
		for (unsigned int cpu = first; cpu <= last && cpu < CPUS_MAX; cpu++) {
			words[cpu / 32] |= 1u << cpu % 32;
			highest = cpu / 32;
		}
		list = *end == ',' ? end + 1 : "";
	}
	for (unsigned int i = highest + 1; i-- > 0 && length < VB_SYSFS_TEXT_MAX - 12;)
		length += (size_t)snprintf(mask + length, VB_SYSFS_TEXT_MAX - length, "%08x%s",
					   words[i], i ? "," : "");
}

static void describe_place(struct vb_sysfs_writer *w, const struct vb_device *device)
{
	char node[VB_SYSFS_TEXT_MAX] = "-1", list[VB_SYSFS_TEXT_MAX] = "0";
	char mask[VB_SYSFS_TEXT_MAX] = "00000001";

	(void)read_of_interface(device, "numa_node", node);
	if (!read_of_interface(device, "local_cpulist", list) ||
	    !read_of_interface(device, "local_cpus", mask)) {
		(void)read_line("/sys/devices/system/cpu/online", list);
		list_to_mask(list, mask);
	}
	vb_sysfs_say(w, "numa_node", "%s\n", node);
	vb_sysfs_say(w, "local_cpulist", "%s\n", list);
	vb_sysfs_say(w, "local_cpus", "%s\n", mask);
}

void vb_sysfs_describe_adapter(struct vb_sysfs_writer *w, const struct vb_device *device)
{
	char name[64], target[64];

	vb_sysfs_enter(w, device, "");
	/* a PCI vendor has 16 bits: those that make our OUI ours */
	vb_sysfs_say(w, "vendor", "0x%04x\n", VB_VENDOR_ID & 0xffff);
	vb_sysfs_say(w, "device", "0x%04x\n", VB_DEVICE_ID);
	vb_sysfs_say(w, "subsystem_vendor", "0x%04x\n", VB_VENDOR_ID & 0xffff);
	vb_sysfs_say(w, "subsystem_device", "0x%04x\n", VB_DEVICE_ID);
	vb_sysfs_say(w, "class", "0x020000\n"); /* an Ethernet controller */
	vb_sysfs_say(w, "revision", "0x%02x\n", VB_HARDWARE_VERSION);
	vb_sysfs_say(w, "uevent", "DRIVER=verbena\n");
	describe_place(w, device);
	snprintf(name, sizeof(name), "net/%s", device->ifname);
	snprintf(target, sizeof(target), "/sys/class/net/%s", device->ifname);
	vb_sysfs_point(w, name, target);
	vb_sysfs_point(w, "driver", "../bus/verbena/drivers/verbena");
	vb_sysfs_point(w, "subsystem", "../bus/verbena");
}

void vb_sysfs_describe_driver(struct vb_sysfs_writer *w)
{
	strcpy(w->directory, "sys/devices/verbena/bus/verbena/drivers/verbena");
	vb_sysfs_say(w, "uevent", "%s", "");
}
