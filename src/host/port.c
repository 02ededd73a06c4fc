/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * port.c - whether the device's interface is up, and the events when that changes.
 *
 *      UP          it is, and has a carrier (IFF_UP and IFF_RUNNING)
 *      POLLING     it is, but there is no carrier
 *      DISABLED    it is not, or it is gone
 *
 * into UP raises PORT_ACTIVE, out of UP raises PORT_ERR. The kernel tells by rtnetlink(7), on a
 * socket that the background thread watches. A filter in the kernel drops what is about other
 * interfaces, so that however many of them come and go cost this process nothing. Notices that were
 * lost all the same (ENOBUFS) are made up for by asking, as at the start.
 *
 * Whoever reads the state looks at the socket first, so that it is never older than the last event,
 * nor than what the reader's own ip(8) has just done. Without a socket (a sandbox may forbid it)
 * the port counts as up.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/engine.h"

#define NOTICES_AT_ONCE 16 /* the rest makes the socket readable again */
#define BODY_AT NLMSG_LENGTH(0)

static enum vb_port_state state_of(unsigned int flags)
{
	if (!(flags & IFF_UP))
		return VB_PORT_DISABLED;
	return flags & IFF_RUNNING ? VB_PORT_UP : VB_PORT_POLLING;
}

/* A bridge announces its ports with the same message types and AF_BRIDGE: a port that leaves its
 * bridge is not gone. */
static void read_notice(const struct nlmsghdr *head, const uint8_t *body, uint32_t ifindex,
			enum vb_port_state *state)
{
	struct ifinfomsg info;

	memcpy(&info, body, sizeof(info));
	if (info.ifi_family != AF_UNSPEC || info.ifi_index != (int)ifindex)
		return;
	*state = head->nlmsg_type == RTM_NEWLINK ? state_of(info.ifi_flags) : VB_PORT_DISABLED;
}

/* The answer to our question about an interface that is not there. */
static bool is_gone(const uint8_t *body)
{
	int32_t error;

	memcpy(&error, body, sizeof(error));
	return error == -ENODEV;
}

/* Attributes are of no interest, so those of the last message may be cut off. */
void vb_port_read(const uint8_t *bytes, size_t length, uint32_t ifindex, enum vb_port_state *state)
{
	struct nlmsghdr head;
	size_t room;

	while (length >= sizeof(head)) {
		memcpy(&head, bytes, sizeof(head));
		if (head.nlmsg_len < sizeof(head))
			return;
		room = VB_MIN(head.nlmsg_len, length) - BODY_AT;
		if ((head.nlmsg_type == RTM_NEWLINK || head.nlmsg_type == RTM_DELLINK) &&
		    room >= sizeof(struct ifinfomsg))
			read_notice(&head, bytes + BODY_AT, ifindex, state);
		else if (head.nlmsg_type == NLMSG_ERROR && room >= sizeof(struct nlmsgerr) &&
			 is_gone(bytes + BODY_AT))
			*state = VB_PORT_DISABLED;
		if (head.nlmsg_len >= length || NLMSG_ALIGN(head.nlmsg_len) >= length)
			return;
		bytes += NLMSG_ALIGN(head.nlmsg_len);
		length -= NLMSG_ALIGN(head.nlmsg_len);
	}
}

/* --- the socket -------------------------------------------------------------------------- */

/* Passes the messages about one interface, and refusals. BPF reads in network byte order. */
static void attach_filter(int fd, uint32_t ifindex)
{
	const uint32_t type_at = offsetof(struct nlmsghdr, nlmsg_type);
	const uint32_t index_at = BODY_AT + offsetof(struct ifinfomsg, ifi_index);
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, type_at),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htons(NLMSG_ERROR), 2, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, index_at),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(ifindex), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	const struct sock_fprog program = {.len = VB_ARRAY_SIZE(code), .filter = code};

	/* without it every notice is read and left out here */
	(void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* The answer comes as a notice does; the kernel has queued it before sendto() returns. */
static void ask(const struct vb_engine *engine)
{
	const struct {
		struct nlmsghdr head;
		struct ifinfomsg info;
	} question = {
		.head = {.nlmsg_len = sizeof(question),
			 .nlmsg_type = RTM_GETLINK,
			 .nlmsg_flags = NLM_F_REQUEST},
		.info = {.ifi_family = AF_UNSPEC, .ifi_index = (int)engine->device->ifindex},
	};
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

	(void)sendto(engine->port.fd, &question, sizeof(question), MSG_DONTWAIT | MSG_NOSIGNAL,
		     (const struct sockaddr *)&kernel, sizeof(kernel));
}

/* True while there may be more. Only the kernel's own word counts. */
static bool take_notice(struct vb_engine *engine, enum vb_port_state *state)
{
	alignas(struct nlmsghdr) uint8_t bytes[2048];
	struct sockaddr_nl from = {0};
	socklen_t size = sizeof(from);
	ssize_t got = recvfrom(engine->port.fd, bytes, sizeof(bytes), MSG_DONTWAIT,
			       (struct sockaddr *)&from, &size);

	if (got >= 0 && from.nl_pid == 0)
		vb_port_read(bytes, (size_t)got, engine->device->ifindex, state);
	else if (got < 0 && errno == ENOBUFS)
		ask(engine);
	return got >= 0 || errno == ENOBUFS;
}

void vb_port_look(struct vb_engine *engine)
{
	struct vb_port *port = &engine->port;

	if (port->fd < 0)
		return;
	for (int i = 0; i < NOTICES_AT_ONCE; i++) {
		enum vb_port_state before = port->state;

		if (!take_notice(engine, &port->state))
			break;
		if ((before == VB_PORT_UP) != (port->state == VB_PORT_UP))
			vb_nic_raise(engine->nic,
				     before == VB_PORT_UP ? VB_EVENT_PORT_ERR
							  : VB_EVENT_PORT_ACTIVE,
				     NULL, NULL, NULL);
	}
}

enum vb_port_state vb_engine_port(struct vb_engine *engine)
{
	enum vb_port_state state;

	if (!vb_engine_lock(engine))
		return VB_PORT_DISABLED;
	vb_port_look(engine);
	state = engine->port.state;
	vb_engine_leave(engine);
	return state;
}

enum vb_port_state vb_port_of_interface(const char *ifname)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	enum vb_port_state state = VB_PORT_DISABLED;
	struct ifreq request = {0};

	if (fd < 0)
		return VB_PORT_UP;
	strncpy(request.ifr_name, ifname, sizeof(request.ifr_name) - 1);
	if (ioctl(fd, SIOCGIFFLAGS, &request) == 0)
		state = state_of((unsigned short)request.ifr_flags);
	close(fd);
	return state;
}

void vb_port_open(struct vb_engine *engine)
{
	const struct sockaddr_nl links = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
	struct vb_port *port = &engine->port;

	port->state = VB_PORT_UP;
	port->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	if (port->fd < 0)
		return;
	attach_filter(port->fd, engine->device->ifindex);
	if (bind(port->fd, (const struct sockaddr *)&links, sizeof(links)) != 0) {
		vb_port_close(engine);
		return;
	}
	ask(engine);
	(void)take_notice(engine, &port->state);
}

void vb_port_close(struct vb_engine *engine)
{
	if (engine->port.fd >= 0)
		close(engine->port.fd);
	engine->port.fd = -1;
}
