/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * udp_ring.c - see udp_ring.h.
 *
 *      frame:  tpacket2_hdr | ... | virtio_net_hdr | link | IP | UDP | payload
 *                                   ^ how the datagram is cut      ^ BTH
 *
 * A frame is the kernel's until its status says that it is ours, and is given back by clearing
 * that.
 *
 * Bound to IPv4 and to no interface: the kernel then shows each packet once, just as its own IPv4
 * sees it, whatever bridges and VLANs it passed on its way in.
 */
#define _GNU_SOURCE
#include "carrier/udp_ring.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/packet.h"

#ifndef PACKET_VNET_HDR_SZ /* Linux 6.6 */
#define PACKET_VNET_HDR_SZ 24
#endif
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

#define RING_BYTES (VB_UDP_RING_FRAMES * VB_UDP_RING_FRAME_BYTES)
#define BLOCK_BYTES (64u << 10)
#define HEADERS (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr))

struct vb_udp_ring {
	int fd;
	uint32_t head; /* the oldest frame */
	bool losing;   /* the kernel said that it had no room */
	struct vb_udp_ring_config config;
	uint8_t *frames;
};

/* --- life -------------------------------------------------------------------------------- */

static int set(int fd, int level, int name, const void *value, socklen_t bytes)
{
	return setsockopt(fd, level, name, value, bytes) < 0 ? -errno : 0;
}

static int attach(const struct vb_udp_ring *ring, int fd, bool of_ring)
{
	struct sock_filter code[VB_UDP_RING_FILTER_MAX];
	struct sock_fprog program = {.filter = code};

	program.len = (unsigned short)vb_udp_ring_filter(&ring->config, of_ring, code);
	return set(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

static int refuse_all(int fd)
{
	struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = {.len = 1, .filter = &none};

	return set(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* takes_from - the filter takes what comes by the interface. Where it takes nothing (tun,
 * WireGuard) a ring would do harm: what another process hands on to us, because it is short, is
 * thought to have been in it (udp_stray.c). */
static bool takes_from(int fd, uint32_t ifindex)
{
	struct ifreq request = {.ifr_ifindex = (int)ifindex};

	if (ifindex == 0)
		return true;
	if (ioctl(fd, SIOCGIFNAME, &request) < 0 || ioctl(fd, SIOCGIFHWADDR, &request) < 0)
		return false;
	return request.ifr_hwaddr.sa_family == ARPHRD_ETHER ||
	       request.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK;
}

/* make - the ring's memory, and the socket hears. A kernel that knows PACKET_VNET_HDR_SZ also says
 * how a datagram of many packets is cut; an older one drops these. */
static int make(struct vb_udp_ring *ring)
{
	const struct sockaddr_ll name = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP)};
	const struct tpacket_req request = {.tp_block_size = BLOCK_BYTES,
					    .tp_block_nr = RING_BYTES / BLOCK_BYTES,
					    .tp_frame_size = VB_UDP_RING_FRAME_BYTES,
					    .tp_frame_nr = VB_UDP_RING_FRAMES};
	const int version = TPACKET_V2, header_bytes = sizeof(struct virtio_net_hdr);
	int err;

	ring->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (ring->fd < 0)
		return -errno;
	if (!takes_from(ring->fd, ring->config.ifindex))
		return -EOPNOTSUPP;
	err = refuse_all(ring->fd)
		      ?: set(ring->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version))
		      ?: set(ring->fd, SOL_PACKET, PACKET_VNET_HDR_SZ, &header_bytes,
			     sizeof(header_bytes))
		      ?: set(ring->fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request));
	if (err < 0)
		return err;
	ring->frames = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
	if (ring->frames == MAP_FAILED) {
		ring->frames = NULL;
		return -errno;
	}
	/* A child has no use for it, and must not hold it. */
	if (madvise(ring->frames, RING_BYTES, MADV_DONTFORK) < 0)
		return -errno;
	return bind(ring->fd, (const struct sockaddr *)&name, sizeof(name)) < 0 ? -errno : 0;
}

int vb_udp_ring_open(struct vb_udp_ring **out, const struct vb_udp_ring_config *config)
{
	struct vb_udp_ring *ring = calloc(1, sizeof(*ring));
	int err;

	if (!ring)
		return -ENOMEM;
	VB_ASSERT(config->address_count <= VB_UDP_RING_ADDRESSES);
	ring->config = *config;
	err = make(ring);
	if (err < 0) {
		vb_udp_ring_close(ring);
		return err;
	}
	*out = ring;
	return 0;
}

void vb_udp_ring_close(struct vb_udp_ring *ring)
{
	if (!ring)
		return;
	if (ring->frames)
		munmap(ring->frames, RING_BYTES);
	if (ring->fd >= 0)
		close(ring->fd);
	free(ring);
}

void vb_udp_ring_drop_in_child(struct vb_udp_ring *ring)
{
	if (!ring)
		return;
	ring->frames = NULL; /* it was not inherited */
	vb_udp_ring_close(ring);
}

int vb_udp_ring_start(struct vb_udp_ring *ring, const int *fds)
{
	const int unused = 0;
	unsigned int n = 0;
	int err = 0;

	while (!err && n < ring->config.address_count)
		err = attach(ring, fds[n++], false);
	err = err ?: attach(ring, ring->fd, true);
	while (err && n > 0)
		(void)set(fds[--n], SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
	return err;
}

int vb_udp_ring_fd(const struct vb_udp_ring *ring)
{
	return ring->fd;
}

/* --- datagrams --------------------------------------------------------------------------- */

static struct tpacket2_hdr *oldest(const struct vb_udp_ring *ring)
{
	return (struct tpacket2_hdr *)(ring->frames + (size_t)ring->head * VB_UDP_RING_FRAME_BYTES);
}

static bool is_ours(const struct tpacket2_hdr *f)
{
	return __atomic_load_n(&f->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER;
}

static bool is_our_address(const struct vb_udp_ring *ring, uint32_t address)
{
	for (unsigned int i = 0; i < ring->config.address_count; i++) {
		if (ring->config.addresses[i].s_addr == address)
			return true;
	}
	return false;
}

/* read_frame - checked although the kernel wrote it, and the filter looked at it: what is read is
 * inside the frame, and for one of our addresses. A sender on this machine may change a packet
 * whose memory it shares with the kernel (PACKET_TX_RING) after the filter. */
static bool read_frame(const struct vb_udp_ring *ring, struct vb_udp_ring_datagram *out)
{
	const struct tpacket2_hdr *f = oldest(ring);
	uint8_t *start = (uint8_t *)(uintptr_t)f + f->tp_mac;
	struct virtio_net_hdr how;
	struct iphdr ip;
	struct udphdr udp;
	uint32_t bytes;

	if (f->tp_snaplen < HEADERS || f->tp_mac < sizeof(how) + sizeof(*f) ||
	    (uint64_t)f->tp_mac + f->tp_snaplen > VB_UDP_RING_FRAME_BYTES)
		return false;
	memcpy(&how, start - sizeof(how), sizeof(how));
	memcpy(&ip, start + ETH_HLEN, sizeof(ip));
	memcpy(&udp, start + ETH_HLEN + sizeof(ip), sizeof(udp));
	bytes = ntohs(udp.len) - (uint32_t)sizeof(udp);
	if (ntohs(udp.len) < sizeof(udp) + VB_BTH_BYTES || bytes > f->tp_snaplen - HEADERS ||
	    !is_our_address(ring, ip.daddr))
		return false;
	*out = (struct vb_udp_ring_datagram){
		.data = start + HEADERS,
		.bytes = bytes,
		.segment_bytes = bytes,
		.src = {ip.saddr},
		.dst = {ip.daddr},
		.src_port = ntohs(udp.source),
		.ip_id = ntohs(ip.id),
		.traffic_class = ip.tos,
		.hop_limit = ip.ttl,
		.dont_fragment = ip.frag_off & htons(IP_DF),
	};
	if (how.gso_type == VIRTIO_NET_HDR_GSO_UDP_L4 && how.gso_size > 0)
		out->segment_bytes = VB_MIN((uint32_t)how.gso_size, bytes);
	return true;
}

bool vb_udp_ring_is_empty(const struct vb_udp_ring *ring)
{
	return !is_ours(oldest(ring));
}

void vb_udp_ring_release(struct vb_udp_ring *ring)
{
	struct tpacket2_hdr *f = oldest(ring);

	ring->losing |= (f->tp_status & TP_STATUS_LOSING) != 0;
	__atomic_store_n(&f->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	ring->head = (ring->head + 1) % VB_UDP_RING_FRAMES;
}

bool vb_udp_ring_look(struct vb_udp_ring *ring, struct vb_udp_ring_datagram *out)
{
	while (is_ours(oldest(ring))) {
		if (read_frame(ring, out))
			return true;
		vb_udp_ring_release(ring);
	}
	return false;
}

uint32_t vb_udp_ring_lost(struct vb_udp_ring *ring)
{
	struct tpacket_stats stats = {0};
	socklen_t bytes = sizeof(stats);

	if (!ring->losing)
		return 0;
	ring->losing = false;
	if (getsockopt(ring->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &bytes) < 0)
		return 0;
	return stats.tp_drops;
}
