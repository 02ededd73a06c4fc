/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_group.c - multicast groups: one socket for each, bound to the group's address.
 *
 * The kernel gives a copy to every socket that is in the group, so that the processes of a host
 * need no steering here. Such a socket takes packets to QP 0xffffff and no others, a socket of a
 * unicast address none of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "carrier/udp_private.h"

#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif

/* The place of a group that was left is free again, unless datagrams of it are being taken apart.
 */
static int find_place(struct vb_udp *udp)
{
	for (unsigned int i = udp->unicast_count; i < VB_ARRAY_SIZE(udp->address); i++) {
		if (i < udp->address_count && udp->address[i].rx_fd >= 0)
			continue;
		if (i == udp->rx_address && (udp->rx_open || udp->rx_next != udp->rx_count))
			continue;
		return (int)i;
	}
	return -ENOMEM;
}

static int enter_group(int fd, const struct in6_addr *group, uint32_t ifindex)
{
	int off = 0, rc;

	/* Others' memberships on this machine are not ours. */
	if (vb_is_ipv4(group)) {
		struct ip_mreqn request = {.imr_ifindex = (int)ifindex};

		memcpy(&request.imr_multiaddr, &group->s6_addr[12], 4);
		(void)setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off));
		rc = setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof(request));
	} else {
		struct ipv6_mreq request = {.ipv6mr_multiaddr = *group,
					    .ipv6mr_interface = ifindex};

		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, &off, sizeof(off));
		rc = setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &request, sizeof(request));
	}
	return rc < 0 ? -errno : 0;
}

static int open_group(struct vb_udp *udp, const struct in6_addr *group, unsigned int place)
{
	struct epoll_event event = {.events = EPOLLIN,
				    .data.u64 = VB_UDP_TAG(VB_UDP_EVENT_RX, place)};
	union vb_sockaddr name;
	socklen_t bytes = vb_sockaddr_fill(&name, group, udp->ifindex, VB_ROCE_PORT);
	bool gro;
	int fd = vb_udp_open_receiver(group, &gro), rc;

	if (fd < 0)
		return fd;
	rc = bind(fd, &name.any, bytes) < 0 ? -errno : 0;
	if (rc == 0)
		rc = enter_group(fd, group, udp->ifindex);
	if (rc == 0 && epoll_ctl(udp->carrier.fd, EPOLL_CTL_ADD, fd, &event) < 0)
		rc = -errno;
	if (rc < 0) {
		close(fd);
		return rc;
	}
	return fd;
}

int vb_udp_join(struct vb_carrier *carrier, const struct in6_addr *group)
{
	struct vb_udp *udp = vb_udp_of(carrier);
	int place = find_place(udp), fd;
	struct vb_udp_address *a;

	if (place < 0)
		return place;
	fd = open_group(udp, group, (unsigned int)place);
	if (fd < 0)
		return fd;
	a = &udp->address[place];
	*a = (struct vb_udp_address){
		.address = *group, .ipv4 = vb_is_ipv4(group), .group = true, .rx_fd = fd};
	for (unsigned int p = 0; p < VB_UDP_POOL; p++)
		a->tx_fd[p] = -1;
	udp->address_count = VB_MAX(udp->address_count, (unsigned int)place + 1);
	return 0;
}

void vb_udp_leave(struct vb_carrier *carrier, const struct in6_addr *group)
{
	struct vb_udp *udp = vb_udp_of(carrier);

	for (unsigned int i = udp->unicast_count; i < udp->address_count; i++) {
		struct vb_udp_address *a = &udp->address[i];

		if (a->rx_fd < 0 || !IN6_ARE_ADDR_EQUAL(&a->address, group))
			continue;
		/* Closing alone would leave it in the set while a forked child has a copy. */
		epoll_ctl(udp->carrier.fd, EPOLL_CTL_DEL, a->rx_fd, NULL);
		close(a->rx_fd);
		a->rx_fd = -1;
		a->empty_polls = VB_UDP_COLD_AFTER;
	}
}
