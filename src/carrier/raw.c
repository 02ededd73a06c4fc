/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw.c - see raw.h.
 *
 * The socket is bound to no protocol, and so hears nothing, until something is wanted; then the
 * interface takes what is sent to any address. The kernel takes a VLAN tag out of what it receives
 * and says so beside the frame; here it is put back.
 *
 *      buffer:  4 spare bytes | frame as the kernel gives it
 *                 the first 12 bytes move forward by 4 when a tag goes in behind them
 */
#define _GNU_SOURCE /* recvmmsg */
#include "carrier/raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <poll.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "carrier/raw_filter.h"

#define BATCH 8u
#define FRAME_ROOM (65536u + VB_ETHERNET_BYTES + VB_VLAN_BYTES) /* with what the kernel joined */
#define SPARE VB_VLAN_BYTES
#define RECEIVE_BYTES (4 << 20)

#ifndef PACKET_IGNORE_OUTGOING /* Linux 4.20 */
#define PACKET_IGNORE_OUTGOING 23
#endif

struct incoming {
	alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
	struct sockaddr_ll from;
	struct iovec iov;
};

struct vb_raw_socket {
	vb_raw_deliver_fn deliver;
	void *env;
	int fd;	    /* the packet socket */
	int set_fd; /* epoll: it is readable, or has room again */
	int ifindex;
	bool listening, blocked, loopback;
	struct vb_raw_counters counters;
	struct mmsghdr messages[BATCH];
	struct incoming incoming[BATCH];
	uint8_t *data;
};

/* --- life -------------------------------------------------------------------------------- */

void vb_raw_destroy(struct vb_raw_socket *raw)
{
	if (!raw)
		return;
	if (raw->fd >= 0)
		close(raw->fd);
	if (raw->set_fd >= 0)
		close(raw->set_fd);
	free(raw->data);
	free(raw);
}

static int read_port(struct vb_raw_socket *raw, struct vb_raw_port *port)
{
	struct ifreq request = {.ifr_ifindex = raw->ifindex};

	if (ioctl(raw->fd, SIOCGIFNAME, &request) < 0 || ioctl(raw->fd, SIOCGIFMTU, &request) < 0)
		return -errno;
	/* A frame's buffers are of one size, whatever an interface says of itself. */
	port->mtu = VB_MIN((uint32_t)request.ifr_mtu, 65536u);
	if (ioctl(raw->fd, SIOCGIFHWADDR, &request) < 0)
		return -errno;
	/* Ethernet's, or a loopback interface, which has a header of the same form. */
	if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER &&
	    request.ifr_hwaddr.sa_family != ARPHRD_LOOPBACK)
		return -EOPNOTSUPP;
	memcpy(port->mac, request.ifr_hwaddr.sa_data, VB_MAC_BYTES);
	port->returns = raw->loopback = request.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK;
	return 0;
}

/* What has no effect costs speed, or frames, and nothing else. */
static void tune(struct vb_raw_socket *raw)
{
	const int on = 1, bytes = RECEIVE_BYTES;

	if (setsockopt(raw->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) < 0)
		(void)setsockopt(raw->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	(void)setsockopt(raw->fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on));
	if (raw->loopback)
		(void)setsockopt(raw->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on));
}

static int open_socket(struct vb_raw_socket *raw)
{
	const struct sockaddr_ll name = {.sll_family = AF_PACKET, .sll_ifindex = raw->ifindex};
	struct epoll_event event = {.events = EPOLLIN};

	/* Protocol 0: nothing is received before vb_raw_listen(). */
	raw->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (raw->fd < 0)
		return -errno;
	if (bind(raw->fd, (const struct sockaddr *)&name, sizeof(name)) < 0)
		return -errno;
	raw->set_fd = epoll_create1(EPOLL_CLOEXEC);
	if (raw->set_fd < 0 || epoll_ctl(raw->set_fd, EPOLL_CTL_ADD, raw->fd, &event) < 0)
		return -errno;
	return 0;
}

static void lay_out(struct vb_raw_socket *raw)
{
	for (unsigned int i = 0; i < BATCH; i++) {
		struct incoming *in = &raw->incoming[i];

		in->iov.iov_base = raw->data + i * (SPARE + FRAME_ROOM) + SPARE;
		in->iov.iov_len = FRAME_ROOM;
		raw->messages[i].msg_hdr = (struct msghdr){
			.msg_name = &in->from,
			.msg_iov = &in->iov,
			.msg_iovlen = 1,
			.msg_control = in->control,
		};
	}
}

int vb_raw_create(struct vb_raw_socket **out, uint32_t ifindex, struct vb_raw_port *port,
		  vb_raw_deliver_fn deliver, void *env)
{
	struct vb_raw_socket *raw = calloc(1, sizeof(*raw));
	int rc;

	if (!raw)
		return -ENOMEM;
	raw->deliver = deliver;
	raw->env = env;
	raw->fd = raw->set_fd = -1;
	raw->ifindex = (int)ifindex;
	raw->data = malloc((size_t)BATCH * (SPARE + FRAME_ROOM));
	rc = raw->data ? open_socket(raw) : -ENOMEM;
	if (rc == 0)
		rc = read_port(raw, port);
	if (rc < 0) {
		vb_raw_destroy(raw);
		return rc;
	}
	tune(raw);
	lay_out(raw);
	*out = raw;
	return 0;
}

int vb_raw_allowed_now(void)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno == EPERM ? -EPERM : 0;
	close(fd);
	return 0;
}

int vb_raw_fd(const struct vb_raw_socket *raw)
{
	return raw->set_fd;
}

void vb_raw_read_counters(const struct vb_raw_socket *raw, struct vb_raw_counters *out)
{
	*out = raw->counters;
}

/* --- listening --------------------------------------------------------------------------- */

/* An interface takes what is sent to others too, while somebody listens. */
static void take_from_anybody(struct vb_raw_socket *raw, int option)
{
	const struct packet_mreq request = {.mr_ifindex = raw->ifindex,
					    .mr_type = PACKET_MR_PROMISC};

	(void)setsockopt(raw->fd, SOL_PACKET, option, &request, sizeof(request));
}

static int bind_to(struct vb_raw_socket *raw, uint16_t protocol)
{
	const struct sockaddr_ll name = {.sll_family = AF_PACKET,
					 .sll_protocol = htons(protocol),
					 .sll_ifindex = raw->ifindex};

	return bind(raw->fd, (const struct sockaddr *)&name, sizeof(name)) < 0 ? -errno : 0;
}

int vb_raw_listen(struct vb_raw_socket *raw, const struct vb_raw_wanted *wanted)
{
	const bool listen = wanted->everything || wanted->count > 0;
	struct sock_filter *code = calloc(VB_RAW_FILTER_MAX, sizeof(*code));
	struct sock_fprog program = {.filter = code};
	int rc = 0;

	if (!code)
		return -ENOMEM;
	program.len = (unsigned short)vb_raw_filter_make(wanted, code);
	if (setsockopt(raw->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0)
		rc = -errno;
	free(code);
	if (rc == 0 && listen != raw->listening)
		rc = bind_to(raw, listen ? ETH_P_ALL : 0);
	if (rc < 0 || listen == raw->listening)
		return rc;
	raw->listening = listen;
	take_from_anybody(raw, listen ? PACKET_ADD_MEMBERSHIP : PACKET_DROP_MEMBERSHIP);
	return 0;
}

/* --- sending ----------------------------------------------------------------------------- */

static void watch_for_room(struct vb_raw_socket *raw, bool watch)
{
	struct epoll_event event = {.events = EPOLLIN | (watch ? EPOLLOUT : 0)};

	raw->blocked = watch;
	(void)epoll_ctl(raw->set_fd, EPOLL_CTL_MOD, raw->fd, &event);
}

int vb_raw_send(struct vb_raw_socket *raw, const uint8_t *frame, uint32_t size)
{
	ssize_t sent;

	/* What has no protocol would leave out the checks of others on its way: say Ethernet's. */
	const struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons((uint16_t)(frame[12] << 8 | frame[13])),
		.sll_ifindex = raw->ifindex,
		.sll_halen = VB_MAC_BYTES,
	};

	do {
		sent = sendto(raw->fd, frame, size, MSG_NOSIGNAL, (const struct sockaddr *)&to,
			      sizeof(to));
	} while (sent < 0 && errno == EINTR);
	if (sent >= 0) {
		raw->counters.tx_frames++;
		return 0;
	}
	if (errno == EAGAIN || errno == EWOULDBLOCK) {
		watch_for_room(raw, true);
		return -EAGAIN;
	}
	raw->counters.tx_dropped++;
	return -errno;
}

/* --- receiving --------------------------------------------------------------------------- */

static const struct tpacket_auxdata *auxiliary(struct msghdr *header)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c))
		if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA &&
		    c->cmsg_len >= CMSG_LEN(sizeof(struct tpacket_auxdata)))
			return (const struct tpacket_auxdata *)(const void *)CMSG_DATA(c);
	return NULL;
}

static uint8_t *put_tag_back(uint8_t *frame, const struct tpacket_auxdata *about)
{
	const uint16_t type =
		about->tp_status & TP_STATUS_VLAN_TPID_VALID ? about->tp_vlan_tpid : VB_ETHER_VLAN;
	uint8_t *start = frame - VB_VLAN_BYTES, *tag = start + 2 * VB_MAC_BYTES;

	memmove(start, frame, 2 * VB_MAC_BYTES);
	tag[0] = (uint8_t)(type >> 8);
	tag[1] = (uint8_t)type;
	tag[2] = (uint8_t)(about->tp_vlan_tci >> 8);
	tag[3] = (uint8_t)about->tp_vlan_tci;
	return start;
}

static void take(struct vb_raw_socket *raw, struct mmsghdr *message)
{
	const struct tpacket_auxdata *about = auxiliary(&message->msg_hdr);
	const struct sockaddr_ll *from = message->msg_hdr.msg_name;
	uint8_t *frame = message->msg_hdr.msg_iov->iov_base;
	struct vb_raw_rx rx = {
		.bytes = frame,
		.size = message->msg_len,
		.sent = from->sll_pkttype == PACKET_OUTGOING,
	};

	/* On a loopback interface it comes once more, as received. */
	if (rx.sent && raw->loopback)
		return;
	if (message->msg_hdr.msg_flags & MSG_TRUNC) {
		raw->counters.rx_too_long++;
		return;
	}
	if (about) {
		rx.l4_known = about->tp_status & (TP_STATUS_CSUMNOTREADY | TP_STATUS_CSUM_VALID);
		if (about->tp_status & TP_STATUS_VLAN_VALID && rx.size >= 2 * VB_MAC_BYTES) {
			rx.bytes = put_tag_back(frame, about);
			rx.size += VB_VLAN_BYTES;
		}
	}
	raw->counters.rx_frames++;
	raw->deliver(raw->env, &rx);
}

static int receive(struct vb_raw_socket *raw, unsigned int most)
{
	int got;

	for (unsigned int i = 0; i < most; i++) {
		raw->messages[i].msg_hdr.msg_namelen = sizeof(raw->incoming[i].from);
		raw->messages[i].msg_hdr.msg_controllen = sizeof(raw->incoming[i].control);
	}
	got = recvmmsg(raw->fd, raw->messages, most, MSG_DONTWAIT, NULL);
	for (int i = 0; i < got; i++)
		take(raw, &raw->messages[i]);
	return got;
}

static bool has_room(const struct vb_raw_socket *raw)
{
	struct pollfd poll_fd = {.fd = raw->fd, .events = POLLOUT};

	return poll(&poll_fd, 1, 0) == 1 && poll_fd.revents & POLLOUT;
}

int vb_raw_poll(struct vb_raw_socket *raw, int budget, bool *room)
{
	int taken = 0, got;

	if (raw->blocked && has_room(raw)) {
		watch_for_room(raw, false);
		*room = true;
	}
	while (raw->listening && taken < budget) {
		const unsigned int most = VB_MIN((unsigned int)(budget - taken), BATCH);

		got = receive(raw, most);
		taken += got > 0 ? got : 0;
		if (got < (int)most)
			break;
	}
	return taken;
}
