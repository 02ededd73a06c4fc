/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * neighbour.c - the Ethernet address behind an IP address, by rtnetlink(7):
 *
 *      RTM_GETROUTE   to the address          the interface and the gateway; or the address is ours
 *      RTM_GETNEIGH   of the next hop         its Ethernet address, if it is known
 *      RTM_GETLINK    of the interface        our own address, whether it has such, its VLAN
 *
 * A multicast address has its Ethernet address in itself (RFC 1112, RFC 2464). One of ours is that
 * of its interface: zeros on the loopback interface, as frames have it there. Whoever is not known
 * yet gets an empty datagram to the discard port, before which the kernel asks for it.
 *
 * Every question has one answer, which the kernel has queued before sendto(2) returns.
 */
#include "host/neighbour.h"

#include <errno.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <stdalign.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "host/address.h"

#define ANSWER_BYTES 8192
#define DISCARD_PORT 9
#define TRIES 150
#define PAUSE_NS 20000000 /* three seconds in all */

struct exchange {
	int fd;
	alignas(struct nlmsghdr) uint8_t answer[ANSWER_BYTES];
	size_t length;
};

struct question {
	struct nlmsghdr head;
	union {
		struct rtmsg route;
		struct ndmsg neighbour;
		struct ifinfomsg link;
	};
	uint8_t attributes[64];
};

/* Behind a body of that size; there is room for what is asked here. */
static void add_attribute(struct question *q, uint16_t type, const void *value, size_t size)
{
	struct rtattr head = {.rta_len = (unsigned short)RTA_LENGTH(size), .rta_type = type};
	uint8_t *at = (uint8_t *)q + NLMSG_ALIGN(q->head.nlmsg_len);

	memcpy(at, &head, sizeof(head));
	memcpy(at + RTA_LENGTH(0), value, size);
	q->head.nlmsg_len = NLMSG_ALIGN(q->head.nlmsg_len) + (uint32_t)RTA_ALIGN(head.rta_len);
}

/* 0 with an answer of that type, or -errno. */
static int ask(struct exchange *x, const struct question *q, uint16_t type)
{
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	const struct nlmsghdr *head = (const void *)x->answer;
	ssize_t got;

	if (sendto(x->fd, q, q->head.nlmsg_len, 0, (const struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0)
		return -errno;
	got = recv(x->fd, x->answer, sizeof(x->answer), 0);
	if (got < 0)
		return -errno;
	if ((size_t)got < sizeof(*head) || head->nlmsg_len > (size_t)got)
		return -EPROTO;
	if (head->nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *error = NLMSG_DATA(head);

		return head->nlmsg_len >= NLMSG_LENGTH(sizeof(*error)) && error->error
			       ? error->error
			       : -EPROTO;
	}
	x->length = head->nlmsg_len;
	return head->nlmsg_type == type ? 0 : -EPROTO;
}

/* find - an attribute behind the body, at from; NULL. *size: of its value. */
static const void *find(const void *from, size_t length, uint16_t type, size_t *size)
{
	const struct rtattr *attribute = from;

	for (; RTA_OK(attribute, (int)length);
	     attribute =
		     (const void *)((const uint8_t *)attribute + RTA_ALIGN(attribute->rta_len))) {
		if ((attribute->rta_type & NLA_TYPE_MASK) == type) {
			*size = RTA_PAYLOAD(attribute);
			return RTA_DATA(attribute);
		}
		if (RTA_ALIGN(attribute->rta_len) >= length)
			break;
		length -= RTA_ALIGN(attribute->rta_len);
	}
	return NULL;
}

static const void *answer_attribute(const struct exchange *x, size_t body, uint16_t type,
				    size_t *size)
{
	size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(body);

	return x->length > at ? find(x->answer + at, x->length - at, type, size) : NULL;
}

/* --- addresses --------------------------------------------------------------------------- */

/* As the kernel's tables have them: four bytes or sixteen. */
struct raw_address {
	uint8_t family;
	size_t size;
	uint8_t bytes[16];
};

static struct raw_address to_raw(const struct in6_addr *address)
{
	struct raw_address raw = {.family = AF_INET6, .size = 16};

	if (vb_address_is_ipv4(address)) {
		raw.family = AF_INET;
		raw.size = 4;
		memcpy(raw.bytes, &address->s6_addr[12], 4);
	} else {
		memcpy(raw.bytes, address->s6_addr, 16);
	}
	return raw;
}

static bool multicast_mac(const struct raw_address *to, uint8_t *mac)
{
	if (to->family == AF_INET && (to->bytes[0] & 0xf0) == 0xe0) {
		mac[0] = 0x01;
		mac[1] = 0x00;
		mac[2] = 0x5e;
		mac[3] = to->bytes[1] & 0x7f;
		mac[4] = to->bytes[2];
		mac[5] = to->bytes[3];
		return true;
	}
	if (to->family == AF_INET6 && to->bytes[0] == 0xff) {
		mac[0] = mac[1] = 0x33;
		memcpy(mac + 2, to->bytes + 12, 4);
		return true;
	}
	return false;
}

/* --- the three questions ----------------------------------------------------------------- */

struct hop {
	uint32_t ifindex;
	bool ours; /* the address is one of this host's */
	struct raw_address address;
};

static int ask_route(struct exchange *x, const struct raw_address *to, uint32_t ifindex,
		     struct hop *hop)
{
	struct question q = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
			 .nlmsg_type = RTM_GETROUTE,
			 .nlmsg_flags = NLM_F_REQUEST},
		.route = {.rtm_family = to->family, .rtm_dst_len = (uint8_t)(to->size * 8)},
	};
	const struct rtmsg *route = NLMSG_DATA((const struct nlmsghdr *)x->answer);
	const void *value;
	size_t size;
	int rc;

	add_attribute(&q, RTA_DST, to->bytes, to->size);
	if (to->family == AF_INET6 && to->bytes[0] == 0xfe && (to->bytes[1] & 0xc0) == 0x80)
		add_attribute(&q, RTA_OIF, &ifindex, sizeof(ifindex)); /* link-local */
	rc = ask(x, &q, RTM_NEWROUTE);
	if (rc)
		return rc == -ENETUNREACH ? -EHOSTUNREACH : rc;
	*hop = (struct hop){.ifindex = ifindex, .address = *to};
	hop->ours = route->rtm_type == RTN_LOCAL;
	value = answer_attribute(x, sizeof(*route), RTA_OIF, &size);
	if (value && size == sizeof(uint32_t) && !hop->ours)
		memcpy(&hop->ifindex, value, size);
	value = answer_attribute(x, sizeof(*route), RTA_GATEWAY, &size);
	if (value && size == to->size)
		memcpy(hop->address.bytes, value, size);
	return 0;
}

/* 0, -ENOENT: it is not known, -EHOSTUNREACH: it did not answer. */
static int ask_neighbour(struct exchange *x, const struct hop *hop, uint8_t *mac)
{
	struct question q = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ndmsg)),
			 .nlmsg_type = RTM_GETNEIGH,
			 .nlmsg_flags = NLM_F_REQUEST},
		.neighbour = {.ndm_family = hop->address.family, .ndm_ifindex = (int)hop->ifindex},
	};
	const struct ndmsg *neighbour = NLMSG_DATA((const struct nlmsghdr *)x->answer);
	const void *value;
	size_t size;
	int rc;

	add_attribute(&q, NDA_DST, hop->address.bytes, hop->address.size);
	rc = ask(x, &q, RTM_NEWNEIGH);
	if (rc)
		return rc;
	if (neighbour->ndm_state & NUD_FAILED)
		return -EHOSTUNREACH;
	value = answer_attribute(x, sizeof(*neighbour), NDA_LLADDR, &size);
	if (!value || size != VB_MAC_BYTES || neighbour->ndm_state & NUD_INCOMPLETE)
		return -ENOENT;
	memcpy(mac, value, VB_MAC_BYTES);
	return 0;
}

struct link {
	uint8_t mac[VB_MAC_BYTES];
	uint16_t vlan;
	bool needs_none; /* its frames have no Ethernet addresses worth the name */
};

static uint16_t read_vlan(const void *info, size_t length)
{
	const void *kind, *data, *id;
	size_t size;

	kind = find(info, length, IFLA_INFO_KIND, &size);
	if (!kind || size < 4 || memcmp(kind, "vlan", 4) != 0)
		return VB_NO_VLAN;
	data = find(info, length, IFLA_INFO_DATA, &size);
	id = data ? find(data, size, IFLA_VLAN_ID, &size) : NULL;
	return id && size == sizeof(uint16_t) ? *(const uint16_t *)id : VB_NO_VLAN;
}

static int ask_link(struct exchange *x, uint32_t ifindex, struct link *link)
{
	const struct question q = {
		.head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
			 .nlmsg_type = RTM_GETLINK,
			 .nlmsg_flags = NLM_F_REQUEST},
		.link = {.ifi_index = (int)ifindex},
	};
	const struct ifinfomsg *info = NLMSG_DATA((const struct nlmsghdr *)x->answer);
	const void *value;
	size_t size;
	int rc = ask(x, &q, RTM_NEWLINK);

	if (rc)
		return rc;
	*link = (struct link){.vlan = VB_NO_VLAN};
	link->needs_none = info->ifi_type != ARPHRD_ETHER;
	value = answer_attribute(x, sizeof(*info), IFLA_ADDRESS, &size);
	if (value && size == VB_MAC_BYTES)
		memcpy(link->mac, value, VB_MAC_BYTES);
	value = answer_attribute(x, sizeof(*info), IFLA_LINKINFO, &size);
	if (value)
		link->vlan = read_vlan(value, size);
	return 0;
}

/* --- the search -------------------------------------------------------------------------- */

/* The kernel asks for the neighbour before it sends. */
static void knock(const struct in6_addr *to, uint32_t ifindex)
{
	struct sockaddr_in6 address = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(DISCARD_PORT),
		.sin6_addr = *to,
		.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(to) ? ifindex : 0,
	};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	(void)sendto(fd, "", 0, MSG_DONTWAIT, (const struct sockaddr *)&address, sizeof(address));
	close(fd);
}

static int await_neighbour(struct exchange *x, const struct hop *hop, const struct in6_addr *to,
			   uint8_t *mac)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	int rc = ask_neighbour(x, hop, mac);

	/* One that failed lately may be there by now. */
	if (rc != -ENOENT && rc != -EHOSTUNREACH)
		return rc;
	knock(to, hop->ifindex);
	for (int i = 0; i < TRIES; i++) {
		nanosleep(&pause, NULL);
		rc = ask_neighbour(x, hop, mac);
		if (rc != -ENOENT)
			return rc;
	}
	return -EHOSTUNREACH;
}

static int search(struct exchange *x, const struct in6_addr *to, uint32_t ifindex,
		  struct vb_neighbour *out)
{
	const struct raw_address raw = to_raw(to);
	struct hop hop = {.ifindex = ifindex};
	struct link link;
	bool known = multicast_mac(&raw, out->mac);
	int rc = known ? 0 : ask_route(x, &raw, ifindex, &hop);

	if (rc == 0)
		rc = ask_link(x, hop.ifindex, &link);
	if (rc)
		return rc;
	out->vlan = link.vlan;
	if (known)
		return 0;
	if (hop.ours || link.needs_none) {
		memcpy(out->mac, link.mac, VB_MAC_BYTES);
		return 0;
	}
	return await_neighbour(x, &hop, to, out->mac);
}

int vb_neighbour_find(const struct in6_addr *to, uint32_t ifindex, struct vb_neighbour *out)
{
	struct exchange x = {
		.fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE),
	};
	int rc;

	if (x.fd < 0)
		return -errno;
	*out = (struct vb_neighbour){.vlan = VB_NO_VLAN};
	rc = search(&x, to, ifindex, out);
	close(x.fd);
	return rc;
}
