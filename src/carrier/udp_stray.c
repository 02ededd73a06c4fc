/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_stray.c - packets that reached another process of the host than they belong to.
 *
 * It happens while the steering is being put right, when the kernel merges packets for several
 * processes into one train, and to packets for QP 1, which all processes of the host share. The
 * receiver hands them on by a datagram to an abstract socket whose name is a random number in the
 * registry, which only processes of the same user can read:
 *
 *      | struct handed: addresses, port, identification, TOS, TTL | the packet, BTH to ICRC |
 *
 * The one who gets it trusts nothing: the kernel must say that the sender is of our user, the
 * address must be ours, and the packet passes the same checks as one from the network. It is never
 * handed on again.
 *
 * The kernel lets few datagrams wait at such a socket (net.unix.max_dgram_qlen, 10). Where more
 * come a packet is dropped, as on any network; but a MAD, which its sender repeats only after
 * seconds, waits a moment for room. Who gave no room even so (a process that was stopped) is not
 * waited for again for a while.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include "carrier/clock.h"
#include "carrier/udp_private.h"
#include "wire/mad.h"

#define HANDED_MAGIC 0x76627374u
#define HANDED_AT_ONCE 16
#define STRAY_BYTES 16384u /* no packet that we hand on is longer */
#define PATIENCE_US 2000
#define IMPATIENT_NS 100000000ull /* after patience was in vain */

struct handed {
	uint32_t magic;
	uint16_t src_port, ip_id;
	struct in6_addr src, dst;
	uint8_t traffic_class, hop_limit;
	uint8_t is_short; /* it came in a datagram that a ring of its process takes */
	uint8_t zero[5];
};

static socklen_t stray_name(struct sockaddr_un *out, uint64_t key)
{
	int n;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "verbena-stray-%016llx",
		     (unsigned long long)key);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int vb_udp_stray_open(struct vb_udp *udp)
{
	struct epoll_event event = {.events = EPOLLIN,
				    .data.u64 = VB_UDP_TAG(VB_UDP_EVENT_STRAY, 0)};
	struct sockaddr_un name;
	socklen_t bytes = stray_name(&name, udp->steering.key);
	const struct timeval patience = {.tv_usec = PATIENCE_US};
	int on = 1;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
	    bind(fd, (struct sockaddr *)&name, bytes) < 0 ||
	    epoll_ctl(udp->carrier.fd, EPOLL_CTL_ADD, fd, &event) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	udp->stray_fd = fd;
	return 0;
}

static uint32_t slot_of(const uint8_t *packet)
{
	return vb_udp_qpn(packet) >> VB_SLOT_SHIFT;
}

/* hand_to - to the process that joined the port's groups with that key. */
static bool hand_to(struct vb_udp *udp, uint64_t key, const struct vb_udp_rx_train *train,
		    const uint8_t *packet, uint32_t bytes, int flags)
{
	struct handed head = {.magic = HANDED_MAGIC,
			      .src_port = train->ip.src_port,
			      .ip_id = train->ip.ip_id,
			      .src = train->ip.src,
			      .dst = train->ip.dst,
			      .traffic_class = train->traffic_class,
			      .hop_limit = train->hop_limit,
			      .is_short = train->bytes <= VB_UDP_RING_SHORT &&
					  slot_of(train->data) == slot_of(packet)};
	struct iovec iov[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)packet, bytes}};
	struct sockaddr_un to;
	struct msghdr m = {.msg_name = &to, .msg_iov = iov, .msg_iovlen = 2};

	m.msg_namelen = stray_name(&to, key);
	if (key && bytes <= STRAY_BYTES && sendmsg(udp->stray_fd, &m, MSG_NOSIGNAL | flags) > 0)
		return true;
	udp->counters.rx_unclaimed++;
	return false;
}

void vb_udp_stray_hand_on(struct vb_udp *udp, const struct vb_udp_rx_train *train,
			  const uint8_t *packet, uint32_t bytes, uint16_t slot)
{
	uint64_t key = vb_steering_on_stray(&udp->steering, slot);

	udp->counters.rx_strays++;
	(void)!hand_to(udp, key, train, packet, bytes, MSG_DONTWAIT);
}

void vb_udp_stray_hand_mad_on(struct vb_udp *udp, const struct vb_udp_rx_train *train,
			      const uint8_t *packet, uint32_t bytes, uint64_t key)
{
	bool patient = key != udp->stray_full_key || vb_clock_ns() >= udp->stray_full_until_ns;

	udp->counters.rx_mads_on++;
	if (hand_to(udp, key, train, packet, bytes, patient ? 0 : MSG_DONTWAIT) || !patient)
		return;
	udp->stray_full_key = key;
	udp->stray_full_until_ns = vb_clock_ns() + IMPATIENT_NS;
}

static bool is_from_our_user(struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		struct ucred credentials;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS ||
		    c->cmsg_len < CMSG_LEN(sizeof(credentials)))
			continue;
		memcpy(&credentials, CMSG_DATA(c), sizeof(credentials));
		return credentials.uid == geteuid();
	}
	return false;
}

static bool is_our_address(const struct vb_udp *udp, const struct in6_addr *address)
{
	for (unsigned int i = 0; i < udp->address_count; i++) {
		if (IN6_ARE_ADDR_EQUAL(&udp->address[i].address, address))
			return true;
	}
	return false;
}

/* take_handed - returns 1 when the packet was delivered. */
static int take_handed(struct vb_udp *udp, const uint8_t *data, size_t bytes)
{
	struct handed head;
	struct vb_icrc_ip ip;
	struct vb_rx rx;
	uint32_t qpn;

	if (bytes < sizeof(head) + VB_BTH_BYTES + VB_ICRC_BYTES) {
		udp->counters.rx_short++;
		return 0;
	}
	memcpy(&head, data, sizeof(head));
	data += sizeof(head);
	bytes -= sizeof(head);
	qpn = vb_udp_qpn(data);
	if (head.magic != HANDED_MAGIC || !is_our_address(udp, &head.dst) ||
	    vb_is_ipv4(&head.src) != vb_is_ipv4(&head.dst) ||
	    (qpn != VB_GSI_QPN && qpn >> VB_SLOT_SHIFT != udp->registry->slot)) {
		udp->counters.rx_unclaimed++;
		return 0;
	}
	/* Our ring has had it already. */
	if (udp->ring && head.is_short && qpn != VB_GSI_QPN && vb_is_ipv4(&head.dst))
		return 0;
	ip = (struct vb_icrc_ip){.src = head.src,
				 .dst = head.dst,
				 .src_port = head.src_port,
				 .dst_port = VB_ROCE_PORT,
				 .ip_id = head.ip_id,
				 .dont_fragment = true};
	if (vb_icrc_begin_bth(&ip, (size_t)bytes, data, (size_t)bytes - VB_ICRC_BYTES) !=
	    vb_icrc_load(data + bytes - VB_ICRC_BYTES)) {
		udp->counters.rx_bad_icrc++;
		return 0;
	}
	rx = (struct vb_rx){.data = data,
			    .size = bytes - VB_ICRC_BYTES,
			    .src = head.src,
			    .dst = head.dst,
			    .traffic_class = head.traffic_class,
			    .hop_limit = head.hop_limit};
	udp->counters.rx_handed++;
	udp->counters.rx_packets++;
	udp->counters.rx_bytes += bytes;
	udp->carrier.deliver(udp->carrier.env, &rx);
	return 1;
}

int vb_udp_stray_poll(struct vb_udp *udp, int budget, int *delivered)
{
	uint8_t data[sizeof(struct handed) + STRAY_BYTES];
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(struct ucred))];
	int looked = 0;

	budget = VB_MIN(budget, HANDED_AT_ONCE);
	udp->stray_waiting = true;
	while (looked < budget) {
		struct iovec iov = {data, sizeof(data)};
		struct msghdr m = {.msg_iov = &iov,
				   .msg_iovlen = 1,
				   .msg_control = control,
				   .msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(udp->stray_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		if (n < 0) {
			udp->stray_waiting = false;
			break;
		}
		looked++;
		if (m.msg_flags & MSG_TRUNC || !is_from_our_user(&m))
			udp->counters.rx_unclaimed++;
		else
			*delivered += take_handed(udp, data, (size_t)n);
	}
	return looked;
}
