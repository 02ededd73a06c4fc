/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.c - which devices this process has, and what each one's GID table holds.
 *
 * A host, in the registry's sense, is one of:
 *
 *   an address of 127.0.0.0/8, or any other address of a loopback interface   a virtual host
 *   an interface's first IPv4 address with all its IPv6 addresses             the usual case
 *   a further IPv4 address of an interface                                    alone
 *
 * Whichever address of an interface VERBENA_ADDR names, it is the same host: processes must agree
 * on it to find each other and to share the port. What the name changes is the order of the GID
 * table:
 *
 *   GID 0   the interface's link-local address; where there is none, the synthetic GID of the
 *           IPv4 address (address.h); where there is no IPv4 either, the same as GID 1
 *   GID 1   the address that was named (a link-local one: as if the interface's first had been)
 *   GID 2.. the interface's other addresses, IPv4 first, when the host has them
 */
#include "host/device.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "host/address.h"
#include "wire/packet.h"

/* IPv6, UDP, the longest headers before a payload (BTH, RETH, ImmDt), ICRC */
#define HEADERS_AROUND_PAYLOAD (40 + 8 + VB_BTH_BYTES + 16 + 4 + VB_ICRC_BYTES)

static bool equal(const struct in6_addr *a, const struct in6_addr *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static uint32_t path_mtu(uint32_t interface_mtu)
{
	uint32_t mtu = VB_MAX_PATH_MTU;

	while (mtu > 256 && mtu + HEADERS_AROUND_PAYLOAD > interface_mtu)
		mtu /= 2;
	return mtu;
}

static void add_gid(struct vb_device *device, const struct in6_addr *gid)
{
	struct vb_gid *entry = &device->gids[device->gid_count];

	if (device->gid_count == VB_MAX_GIDS)
		return;
	entry->gid = *gid;
	entry->address = vb_gid_to_address(gid);
	entry->ifindex = device->ifindex;
	memcpy(entry->ifname, device->ifname, sizeof(entry->ifname));
	device->gid_count++;
}

static void finish(struct vb_device *device, unsigned int index)
{
	const uint8_t *b = device->gids[0].gid.s6_addr;
	uint64_t high = 0, low = 0;

	for (int i = 0; i < 8; i++) {
		high = high << 8 | b[i];
		low = low << 8 | b[8 + i];
	}
	/* what a link-local address has in its last half is an EUI-64, and so is the synthetic one
	 */
	device->guid = IN6_IS_ADDR_LINKLOCAL(&device->gids[0].gid) ? low : high ^ low;
	device->index = index;
	device->active_path_mtu = path_mtu(device->mtu);
	snprintf(device->name, sizeof(device->name), "verbena%u", index);
}

static void place_on(struct vb_device *device, const struct vb_ifaddr *interface)
{
	device->ifindex = interface->ifindex;
	device->mtu = interface->mtu;
	memcpy(device->ifname, interface->ifname, sizeof(device->ifname));
}

/* A host of one address: a virtual one, or a further IPv4 address of an interface. */
static void make_lone(struct vb_device *device, const struct in6_addr *address)
{
	struct in6_addr gid = *address;

	device->host_address = *address;
	if (vb_address_is_ipv4(address))
		gid = vb_gid_synthetic(address);
	add_gid(device, &gid);
	add_gid(device, address);
}

/* A virtual host needs no interface that knows its address; it lives on the loopback. */
static void make_virtual(struct vb_device *device, const struct in6_addr *address,
			 const struct vb_ifaddr *interfaces, size_t count)
{
	device->ifindex = 1;
	device->mtu = 65536;
	strcpy(device->ifname, "lo");
	for (size_t i = count; i-- > 0;)
		if (interfaces[i].loopback)
			place_on(device, &interfaces[i]);
	make_lone(device, address);
}

/* What an interface has, picked out of the list. */
struct interface_view {
	const struct in6_addr *ipv4, *link_local, *global; /* the first of each, or NULL */
};

static struct interface_view view(const struct vb_ifaddr *interfaces, size_t count,
				  uint32_t ifindex)
{
	struct interface_view v = {0};

	for (size_t i = count; i-- > 0;) {
		const struct in6_addr *address = &interfaces[i].address;

		if (interfaces[i].ifindex != ifindex)
			continue;
		if (vb_address_is_ipv4(address))
			v.ipv4 = address;
		else if (IN6_IS_ADDR_LINKLOCAL(address))
			v.link_local = address;
		else
			v.global = address;
	}
	return v;
}

static void make_interface(struct vb_device *device, const struct vb_ifaddr *named,
			   const struct vb_ifaddr *interfaces, size_t count)
{
	struct interface_view v = view(interfaces, count, named->ifindex);
	const struct in6_addr *main = v.ipv4 ? v.ipv4 : v.global ? v.global : v.link_local;
	const struct in6_addr *first =
		IN6_IS_ADDR_LINKLOCAL(&named->address) ? main : &named->address;
	struct in6_addr gid = *first;

	if (vb_address_is_ipv4(&named->address) && !equal(&named->address, v.ipv4)) {
		make_lone(device, &named->address);
		return;
	}
	device->host_address = *main;
	if (v.link_local)
		gid = *v.link_local;
	else if (v.ipv4)
		gid = vb_gid_synthetic(v.ipv4);
	add_gid(device, &gid);
	add_gid(device, first);
	if (v.ipv4 && !equal(v.ipv4, first))
		add_gid(device, v.ipv4);
	for (size_t i = 0; i < count; i++) {
		const struct in6_addr *address = &interfaces[i].address;

		if (interfaces[i].ifindex == named->ifindex && !vb_address_is_ipv4(address) &&
		    !IN6_IS_ADDR_LINKLOCAL(address) && !equal(address, first))
			add_gid(device, address);
	}
}

static const struct vb_ifaddr *find(const struct vb_ifaddr *interfaces, size_t count,
				    const struct in6_addr *address, uint32_t scope_id)
{
	for (size_t i = 0; i < count; i++)
		if (equal(&interfaces[i].address, address) &&
		    (!scope_id || interfaces[i].ifindex == scope_id))
			return &interfaces[i];
	return NULL;
}

/* The first address that is up and not loopback: IPv4 before IPv6; else 127.0.0.1. */
static struct in6_addr choose(const struct vb_ifaddr *interfaces, size_t count)
{
	const struct vb_ifaddr *ipv6 = NULL;

	for (size_t i = 0; i < count; i++) {
		const struct vb_ifaddr *one = &interfaces[i];

		if (!one->up || one->loopback || vb_address_is_virtual_host(&one->address))
			continue;
		if (vb_address_is_ipv4(&one->address))
			return one->address;
		if (!ipv6 && !IN6_IS_ADDR_LINKLOCAL(&one->address))
			ipv6 = one;
	}
	return ipv6 ? ipv6->address
		    : vb_address_from_ipv4((struct in_addr){htonl(INADDR_LOOPBACK)});
}

static int make_one(struct vb_device *out, unsigned int index, const struct in6_addr *address,
		    uint32_t scope_id, const struct vb_ifaddr *interfaces, size_t count,
		    FILE *complaints)
{
	const struct vb_ifaddr *named = find(interfaces, count, address, scope_id);
	struct vb_device *device = &out[index];
	char text[VB_ADDRESS_TEXT], why[160];

	vb_address_text(address, text);
	memset(device, 0, sizeof(*device));
	device->address = *address;
	if (vb_address_is_virtual_host(address)) {
		make_virtual(device, address, interfaces, count);
	} else if (!named) {
		vb_setting_refuse(complaints, "VERBENA_ADDR", text,
				  "this machine does not have it");
		return -EINVAL;
	} else {
		place_on(device, named);
		if (named->loopback)
			make_lone(device, address);
		else
			make_interface(device, named, interfaces, count);
	}
	for (unsigned int i = 0; i < index; i++) {
		if (!equal(&out[i].host_address, &device->host_address))
			continue;
		snprintf(why, sizeof(why),
			 "it is the host that %s already has, whose GIDs hold all "
			 "its addresses",
			 out[i].name);
		vb_setting_refuse(complaints, "VERBENA_ADDR", text, why);
		return -EINVAL;
	}
	finish(device, index);
	return 0;
}

/* The end of the address that was named: on InfiniBand too, a LID is what tells the ports of one
 * subnet apart. */
static uint16_t lid_of(const struct vb_device *device)
{
	const uint8_t *b = device->gids[1].gid.s6_addr;

	return (uint16_t)(b[14] << 8 | b[15]);
}

int vb_devices_make(const struct vb_settings *settings, const struct vb_ifaddr *interfaces,
		    size_t count, struct vb_device *out, FILE *complaints)
{
	unsigned int wanted = VB_MAX(settings->address_count, 1u);
	struct in6_addr chosen;

	_Static_assert(VB_SETTINGS_MAX_ADDRESSES <= VB_MAX_DEVICES, "every address has a device");
	if (settings->address_count == 0)
		chosen = choose(interfaces, count);
	for (unsigned int i = 0; i < wanted; i++) {
		const struct in6_addr *address =
			settings->address_count ? &settings->addresses[i] : &chosen;
		int rc = make_one(out, i, address, settings->scope_ids[i], interfaces, count,
				  complaints);

		if (rc)
			return rc;
		out[i].lid = settings->lid ? lid_of(&out[i]) : 0;
	}
	return (int)wanted;
}

bool vb_device_owns(const struct vb_device *device, const struct in6_addr *address)
{
	for (unsigned int i = 0; i < device->gid_count; i++)
		if (equal(&device->gids[i].address, address))
			return true;
	return false;
}

static int compare_addresses(const void *left, const void *right)
{
	const struct in6_addr *a = left, *b = right;
	int a_rank = vb_address_is_ipv4(a) ? 0 : IN6_IS_ADDR_LINKLOCAL(a) ? 1 : 2;
	int b_rank = vb_address_is_ipv4(b) ? 0 : IN6_IS_ADDR_LINKLOCAL(b) ? 1 : 2;

	return a_rank != b_rank ? a_rank - b_rank : memcmp(a, b, sizeof(*a));
}

unsigned int vb_device_addresses(const struct vb_device *device, struct in6_addr *addresses,
				 uint32_t *scope_ids)
{
	struct in6_addr sorted[VB_MAX_GIDS];
	unsigned int count = 0;

	for (unsigned int i = 0; i < device->gid_count; i++)
		sorted[i] = device->gids[i].address;
	qsort(sorted, device->gid_count, sizeof(sorted[0]), compare_addresses);
	for (unsigned int i = 0; i < device->gid_count; i++) {
		if (i > 0 && equal(&sorted[i], &sorted[i - 1]))
			continue;
		addresses[count] = sorted[i];
		scope_ids[count++] = IN6_IS_ADDR_LINKLOCAL(&sorted[i]) ? device->ifindex : 0;
	}
	return count;
}

static struct vb_device devices[VB_MAX_DEVICES];
static struct vb_device *device_list[VB_MAX_DEVICES + 1];
static int device_count;

static void read_once(void)
{
	const struct vb_settings *settings = vb_settings();
	struct vb_ifaddr *interfaces;
	int count;

	device_count = -EINVAL;
	if (!settings)
		return;
	count = vb_interfaces_read(&interfaces);
	if (count < 0) {
		fprintf(stderr, "verbena: the addresses of this machine cannot be read: %s.\n",
			strerror(-count));
		device_count = count;
		return;
	}
	device_count = vb_devices_make(settings, interfaces, (size_t)count, devices, stderr);
	free(interfaces);
	for (int i = 0; i < device_count; i++)
		device_list[i] = &devices[i];
}

int vb_host_devices(struct vb_device *const **list)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_once);
	*list = device_list;
	return device_count;
}
