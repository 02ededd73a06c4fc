/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_socket.c - how the sockets of the UDP carrier are made.
 *
 * Both kinds ask for path MTU discovery (DF set): only then does Linux put the identification 0,
 * and 0, 1, 2 ... into the packets of a train, which the ICRC covers. Never connected: a connected
 * receiver leaves the SO_REUSEPORT group, a connected sender counts its identifications from a
 * random start.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <netinet/udp.h>
#include <sys/random.h>
#include <unistd.h>

#include "carrier/udp_private.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

#define RECEIVE_BYTES (4 << 20) /* the kernel takes as much of it as rmem_max allows */
#define FORCED_BYTES (16 << 20) /* where we may have more than that */
#define SEND_BYTES (1 << 20)
#define PORT_TRIES 64u

static int set_int(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) < 0 ? -errno : 0;
}

static int open_socket(bool ipv4)
{
	int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (fd < 0)
		return -errno;
	if (ipv4) {
		err = set_int(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	} else {
		err = set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
		if (err == 0)
			err = set_int(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
	}
	if (err < 0) {
		close(fd);
		return err;
	}
	return fd;
}

/* aim_groups - packets to multicast groups leave by our interface, with the hops of all others. */
static int aim_groups(int fd, bool ipv4, uint32_t ifindex)
{
	const struct ip_mreqn where = {.imr_ifindex = (int)ifindex};
	int err;

	if (ipv4) {
		err = setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &where, sizeof(where)) < 0
			      ? -errno
			      : 0;
		return err ?: set_int(fd, IPPROTO_IP, IP_MULTICAST_TTL, VB_UDP_DEFAULT_HOPS);
	}
	err = set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, (int)ifindex);
	return err ?: set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, VB_UDP_DEFAULT_HOPS);
}

int vb_udp_open_receiver(const struct in6_addr *address, bool *gro)
{
	bool ipv4 = vb_is_ipv4(address);
	int fd = open_socket(ipv4);
	int err;

	if (fd < 0)
		return fd;
	/* SO_REUSEADDR in its place would let another user take the packets. */
	err = set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	if (err < 0) {
		close(fd);
		return err;
	}
	*gro = set_int(fd, IPPROTO_UDP, UDP_GRO, 1) == 0;
	if (set_int(fd, SOL_SOCKET, SO_RCVBUFFORCE, FORCED_BYTES) < 0)
		(void)set_int(fd, SOL_SOCKET, SO_RCVBUF, RECEIVE_BYTES);
	(void)set_int(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
	/* For the GRH that a UD receiver sees; without them it shows the usual values. */
	if (ipv4) {
		(void)set_int(fd, IPPROTO_IP, IP_RECVTOS, 1);
		(void)set_int(fd, IPPROTO_IP, IP_RECVTTL, 1);
	} else {
		/* Adapters and Soft-RoCE send IPv6 without a UDP checksum: RoCE has its ICRC. */
		(void)set_int(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
		(void)set_int(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
		(void)set_int(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	}
	return fd;
}

/* bind_source - to a random free port of RoCE's range. Returns it, or -errno. */
static int bind_source(int fd, const struct vb_udp_address *a)
{
	const uint16_t range = (uint16_t)(0x10000u - VB_UDP_FIRST_PORT);
	union vb_sockaddr from;
	uint16_t start = 0;

	if (getrandom(&start, sizeof(start), 0) != sizeof(start))
		start = (uint16_t)getpid();
	for (unsigned int i = 0; i < PORT_TRIES; i++) {
		uint16_t port = (uint16_t)(VB_UDP_FIRST_PORT + (start + i * 251u) % range);
		socklen_t bytes = vb_sockaddr_fill(&from, &a->address, a->scope_id, port);

		if (bind(fd, &from.any, bytes) == 0)
			return port;
		if (errno != EADDRINUSE)
			return -errno;
	}
	return -EADDRINUSE;
}

int vb_udp_open_sender(struct vb_udp *udp, struct vb_udp_address *a, unsigned int pool)
{
	/* Nobody sends to this port: what comes is dropped before it is queued. */
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = {.len = 1, .filter = &drop};
	int fd = open_socket(a->ipv4);
	int port;

	if (fd < 0)
		return fd;
	(void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
	(void)set_int(fd, SOL_SOCKET, SO_SNDBUF, SEND_BYTES);
	if (set_int(fd, IPPROTO_UDP, UDP_SEGMENT, 0) < 0)
		udp->gso = false;
	(void)aim_groups(fd, a->ipv4, udp->ifindex);
	port = bind_source(fd, a);
	if (port < 0) {
		close(fd);
		return port;
	}
	a->tx_fd[pool] = fd;
	a->tx_port[pool] = (uint16_t)port;
	return 0;
}

int vb_udp_route_mtu(const struct vb_udp *udp, const struct vb_udp_address *source,
		     const struct in6_addr *to, uint32_t scope_id)
{
	int fd = open_socket(source->ipv4);
	union vb_sockaddr address;
	socklen_t bytes;
	int mtu = 0;
	socklen_t mtu_bytes = sizeof(mtu);

	if (fd < 0)
		return fd;
	(void)aim_groups(fd, source->ipv4, udp->ifindex);
	bytes = vb_sockaddr_fill(&address, &source->address, source->scope_id, 0);
	if (bind(fd, &address.any, bytes) < 0)
		goto err_errno;
	bytes = vb_sockaddr_fill(&address, to, scope_id, VB_ROCE_PORT);
	if (connect(fd, &address.any, bytes) < 0)
		goto err_errno;
	if (getsockopt(fd, source->ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
		       source->ipv4 ? IP_MTU : IPV6_MTU, &mtu, &mtu_bytes) < 0)
		goto err_errno;
	close(fd);
	return mtu;

err_errno:
	mtu = -errno;
	close(fd);
	if (mtu == -EHOSTUNREACH || mtu == -ENETDOWN || mtu == -EADDRNOTAVAIL)
		return -ENETUNREACH;
	if (mtu == -EACCES || mtu == -EAFNOSUPPORT) /* broadcast */
		return -EINVAL;
	return mtu;
}
