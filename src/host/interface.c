/* SPDX-License-Identifier: BSD-2-Clause */
/* interface.c - see interface.h. IPv4 and flags come from getifaddrs(3); IPv6 from
 * /proc/net/if_inet6, which alone shows an address's state. */
#include "host/interface.h"

#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <linux/if_addr.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "host/address.h"

struct growing {
	struct vb_ifaddr *all;
	size_t count, room;
};

static struct vb_ifaddr *grow(struct growing *list)
{
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 16;
		struct vb_ifaddr *all = realloc(list->all, room * sizeof(*all));

		if (!all)
			return NULL;
		list->all = all;
		list->room = room;
	}
	memset(&list->all[list->count], 0, sizeof(*list->all));
	return &list->all[list->count++];
}

static void describe(struct vb_ifaddr *entry, unsigned int flags, int fd)
{
	struct ifreq request = {0};

	entry->ifindex = if_nametoindex(entry->ifname);
	entry->up = (flags & IFF_UP) && (flags & IFF_RUNNING);
	entry->loopback = flags & IFF_LOOPBACK;
	strcpy(request.ifr_name, entry->ifname);
	entry->mtu =
		fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0 ? (uint32_t)request.ifr_mtu : 1500;
}

/* The interface's flags by name; an interface that has just gone has none. */
static unsigned int flags_of(const struct ifaddrs *system, const char *ifname)
{
	for (const struct ifaddrs *i = system; i; i = i->ifa_next)
		if (strcmp(i->ifa_name, ifname) == 0)
			return i->ifa_flags;
	return 0;
}

static int add_ipv4(struct growing *list, const struct ifaddrs *system, int fd)
{
	for (const struct ifaddrs *i = system; i; i = i->ifa_next) {
		struct vb_ifaddr *entry;

		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
			continue;
		entry = grow(list);
		if (!entry)
			return -ENOMEM;
		entry->address =
			vb_address_from_ipv4(((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr);
		/* an IPv4 alias has its label, eth0:1, in place of the name */
		snprintf(entry->ifname, sizeof(entry->ifname), "%.*s",
			 (int)strcspn(i->ifa_name, ":"), i->ifa_name);
		describe(entry, i->ifa_flags, fd);
	}
	return 0;
}

/* A line is: 32 hex digits, index, prefix length, scope, flags, name. */
static bool parse_inet6_line(const char *line, struct in6_addr *address, unsigned int *flags,
			     char ifname[16])
{
	unsigned int index, prefix, scope;
	char hex[33];

	if (sscanf(line, "%32s %x %x %x %x %15s", hex, &index, &prefix, &scope, flags, ifname) !=
		    6 ||
	    strlen(hex) != 32)
		return false;
	for (int i = 0; i < 16; i++)
		if (sscanf(hex + 2 * i, "%2hhx", &address->s6_addr[i]) != 1)
			return false;
	return true;
}

static int add_ipv6(struct growing *list, const struct ifaddrs *system, int fd)
{
	FILE *file = fopen("/proc/net/if_inet6", "re");
	char line[128];
	int rc = 0;

	if (!file)
		return 0; /* no IPv6 here */
	while (rc == 0 && fgets(line, sizeof(line), file)) {
		struct vb_ifaddr *entry, parsed = {0};
		unsigned int flags;

		if (!parse_inet6_line(line, &parsed.address, &flags, parsed.ifname) ||
		    flags & (IFA_F_TEMPORARY | IFA_F_DADFAILED))
			continue;
		entry = grow(list);
		if (!entry) {
			rc = -ENOMEM;
			break;
		}
		*entry = parsed;
		entry->tentative = (flags & IFA_F_TENTATIVE) && !(flags & IFA_F_OPTIMISTIC);
		describe(entry, flags_of(system, entry->ifname), fd);
	}
	fclose(file);
	return rc;
}

static int compare_ipv6(const void *left, const void *right)
{
	const struct vb_ifaddr *a = left, *b = right;
	int a_global = !IN6_IS_ADDR_LINKLOCAL(&a->address);
	int b_global = !IN6_IS_ADDR_LINKLOCAL(&b->address);

	if (a->ifindex != b->ifindex)
		return a->ifindex < b->ifindex ? -1 : 1;
	if (a_global != b_global)
		return a_global - b_global;
	return memcmp(&a->address, &b->address, sizeof(a->address));
}

int vb_interfaces_read(struct vb_ifaddr **out)
{
	struct growing list = {0};
	struct ifaddrs *system;
	size_t ipv4_count;
	int fd, rc;

	if (getifaddrs(&system) != 0)
		return -errno;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* without it the MTUs are a guess */
	rc = add_ipv4(&list, system, fd);
	ipv4_count = list.count;
	if (rc == 0)
		rc = add_ipv6(&list, system, fd);
	if (fd >= 0)
		close(fd);
	freeifaddrs(system);
	if (rc != 0) {
		free(list.all);
		return rc;
	}
	if (list.count > ipv4_count)
		qsort(list.all + ipv4_count, list.count - ipv4_count, sizeof(*list.all),
		      compare_ipv6);
	*out = list.all;
	return (int)list.count;
}

static bool is_settled(uint32_t ifindex)
{
	struct vb_ifaddr *all;
	int count = vb_interfaces_read(&all);
	bool settled = true;

	for (int i = 0; i < count; i++)
		if (all[i].ifindex == ifindex && all[i].up && all[i].tentative)
			settled = false;
	if (count >= 0)
		free(all);
	return settled;
}

void vb_interfaces_settle(uint32_t ifindex)
{
	const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};

	for (int i = 0; i < 150 && !is_settled(ifindex); i++)
		nanosleep(&pause, NULL);
}
