/* SPDX-License-Identifier: BSD-2-Clause */
/* steering.c - see steering.h for the scheme. */
#define _GNU_SOURCE
#include "carrier/steering.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "carrier/clock.h"
#include "carrier/udp_address.h"
#include "wire/cm_message.h"
#include "wire/packet.h"

#define PROGRAM_MAX (32u + 2u * VB_REGISTRY_SLOTS)
#define PROBES_AT_ONCE 64u
#define PROBES_BEYOND 4u /* indices past the table: there may be sockets that it missed */
#define PROBE_MARK 12u	 /* offset of the round's number in a probe, behind the BTH */
#define LOCK_WAIT_MS 20u /* packets wait meanwhile */
#define RETRY_FIRST_NS 50000000ull
#define VERIFY_FIRST_NS 2000000ull
#define VERIFY_LAST_NS 1000000000ull

static uint64_t random_u64(void)
{
	uint64_t value = 0;

	while (getrandom(&value, sizeof(value), 0) != sizeof(value) || value == 0)
		;
	return value;
}

/* --- the lock ---------------------------------------------------------------------------- */

/* try_lock - false: a process that was stopped in the middle may hold it. We go on with the table
 * as it is, and ask again less and less often. */
static bool try_lock(struct vb_steering *s)
{
	if (s->pending && vb_clock_ns() < s->retry_after_ns)
		return false;
	if (vb_registry_lock_within(s->registry, LOCK_WAIT_MS) == 0) {
		s->retry_wait_ns = RETRY_FIRST_NS;
		return true;
	}
	s->pending = true;
	s->retry_after_ns = vb_clock_ns() + s->retry_wait_ns;
	s->retry_wait_ns = VB_MIN(2 * s->retry_wait_ns, VERIFY_LAST_NS);
	return false;
}

/* --- the table --------------------------------------------------------------------------- */

/* port_count - the shared count, bounded whatever was written there. */
static uint32_t port_count(const struct vb_registry_port *port)
{
	uint32_t count = __atomic_load_n(&port->count, __ATOMIC_RELAXED);

	return VB_MIN(count, VB_REGISTRY_SLOTS);
}

/* slot_at - whose index it is, leaving or not; whatever was written there. */
static uint16_t slot_at(const struct vb_registry_port *port, uint32_t index)
{
	uint16_t slot = __atomic_load_n(&port->slot[index], __ATOMIC_RELAXED);

	return slot & (uint16_t)~VB_STEERING_LEAVING;
}

static bool is_dead(struct vb_steering *s, uint16_t slot)
{
	struct vb_registry *r = s->registry;

	if (slot == r->slot || slot == 0)
		return false;
	if (slot >= VB_REGISTRY_SLOTS)
		return true;
	/* A slot may have a new owner already who has not joined: the entry is still the dead
	 * one's. */
	if (s->died[slot] && s->died[slot] == r->shared->member_key[slot])
		return true;
	return !vb_registry_is_alive(r, slot);
}

static void remove_index(struct vb_registry_port *port, uint32_t index)
{
	uint32_t last = port_count(port) - 1;

	port->slot[index] = port->slot[last];
	port->slot[last] = 0;
	__atomic_store_n(&port->count, last, __ATOMIC_RELAXED);
}

/* purge - takes the dead out as the kernel does. True: something changed. An index that is not
 * known stays: it may be a socket that nobody reads, and whoever moves there gets its probe. */
static bool purge(struct vb_steering *s, struct vb_registry_port *port)
{
	bool changed = false;

	port->count = port_count(port);
	for (uint32_t i = 0; i < port_count(port);) {
		uint16_t slot = slot_at(port, i);

		if (is_dead(s, slot)) {
			if (slot < VB_REGISTRY_SLOTS)
				s->registry->shared->member_key[slot] = 0;
			remove_index(port, i);
			changed = true;
		} else {
			i++;
		}
	}
	return changed;
}

/* find_port - the table of an address, or a free one. NULL: all are in use. */
static struct vb_registry_port *find_port(struct vb_steering *s, const struct vb_steering_group *g)
{
	struct vb_registry_port *free_port = NULL;

	for (unsigned int i = 0; i < VB_REGISTRY_PORTS; i++) {
		struct vb_registry_port *port = &s->registry->shared->port[i];

		if (port_count(port) == 0) {
			free_port = free_port ? free_port : port;
			continue;
		}
		if (IN6_ARE_ADDR_EQUAL(&port->address, &g->address) &&
		    port->scope_id == g->scope_id)
			return port;
	}
	for (unsigned int i = 0; i < VB_REGISTRY_PORTS && !free_port; i++) {
		struct vb_registry_port *port = &s->registry->shared->port[i];

		purge(s, port);
		if (port_count(port) == 0)
			free_port = port;
	}
	if (free_port) {
		free_port->address = g->address;
		free_port->scope_id = g->scope_id;
	}
	return free_port;
}

static int index_of(const struct vb_registry_port *port, uint16_t slot)
{
	uint32_t count = port_count(port);

	for (uint32_t i = 0; i < count; i++) {
		if (slot_at(port, i) == slot)
			return (int)i;
	}
	return -1;
}

/* index_that_stays - the first whose process is known and not leaving; 0 when there is none. */
static uint32_t index_that_stays(const struct vb_registry_port *port)
{
	uint32_t count = port_count(port);

	for (uint32_t i = 0; i < count; i++) {
		if (port->slot[i] != 0 && !(port->slot[i] & VB_STEERING_LEAVING))
			return i;
	}
	return 0;
}

/* --- the program ------------------------------------------------------------------------- */

/* Leaves the slot in the accumulator, 0 for whoever stays, or answers at once. The program sees the
 * UDP payload, in which a MAD begins behind BTH and DETH. Where a packet is too short, index 0 gets
 * it. */
#define MAD_AT 20u
#define ID_SLOT_SHIFT 23 /* of a communication ID, and of the upper half of a transaction ID */

static const struct sock_filter find_slot[] = {
	/* bytes 4 to 7 are the word with the destination QPN */
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
	BPF_STMT(BPF_ALU | BPF_AND | BPF_K, VB_QPN_MASK),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, VB_GSI_QPN, 5, 0),
	BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, VB_PROBE_QPN, 0, 2),
	/* a probe: the index itself */
	BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (1u << VB_SLOT_SHIFT) - 1),
	BPF_STMT(BPF_RET | BPF_A, 0),
	BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, VB_SLOT_SHIFT),
	BPF_STMT(BPF_JMP | BPF_JA, 17),
	/* QP 1: of class CM ... */
	BPF_STMT(BPF_LD | BPF_B | BPF_ABS, MAD_AT + 1),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, VB_MAD_CM, 5, 0),
	/* ... or of another, if it is a response: its transaction ID */
	BPF_STMT(BPF_LD | BPF_B | BPF_ABS, MAD_AT + 3),
	BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, VB_MAD_RESPONSE_BIT, 1, 0),
	BPF_STMT(BPF_JMP | BPF_JA, 8),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, MAD_AT + 8),
	BPF_STMT(BPF_JMP | BPF_JA, 9),
	/* REQ and SIDR_REQ name a port, of which the program knows nothing */
	BPF_STMT(BPF_LD | BPF_H | BPF_ABS, MAD_AT + 16),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, VB_CM_ATTR_REQ, 4, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, VB_CM_ATTR_SIDR_REQ, 3, 0),
	/* SIDR_REP: the request ID; others: the communication ID that they answer */
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, VB_CM_ATTR_SIDR_REP, 4, 0),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, MAD_AT + 28),
	BPF_STMT(BPF_JMP | BPF_JA, 3),
	BPF_STMT(BPF_LD | BPF_IMM, 0),
	BPF_STMT(BPF_JMP | BPF_JA, 2),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, MAD_AT + 24),
	BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, ID_SLOT_SHIFT),
};

int vb_steering_attach(const struct vb_steering_group *g)
{
	struct sock_filter code[PROGRAM_MAX];
	struct sock_fprog program = {.filter = code};
	uint32_t count = port_count(g->port);
	unsigned short n = VB_ARRAY_SIZE(find_slot);

	_Static_assert(PROGRAM_MAX >= VB_ARRAY_SIZE(find_slot) + 2 * VB_REGISTRY_SLOTS + 1, "room");
	memcpy(code, find_slot, sizeof(find_slot));
	for (uint32_t i = 0; i < count; i++) {
		if (g->port->slot[i] == 0 || g->port->slot[i] & VB_STEERING_LEAVING)
			continue;
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							 g->port->slot[i], 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, i);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, index_that_stays(g->port));
	program.len = n;
	if (setsockopt(g->fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)) < 0)
		return -errno;
	return 0;
}

/* --- probes ------------------------------------------------------------------------------ */

static void make_probe(uint8_t packet[VB_PROBE_BYTES], uint32_t index, uint64_t mark)
{
	uint32_t qpn = htonl(VB_PROBE_QPN + index);

	memset(packet, 0, VB_PROBE_BYTES);
	packet[0] = 0xff; /* an opcode that does not exist */
	memcpy(packet + 4, &qpn, sizeof(qpn));
	memcpy(packet + PROBE_MARK, &mark, sizeof(mark));
}

/* send_probes - to the indices [0, count), in rising order. */
static void send_probes(const struct vb_steering_group *g, uint32_t count)
{
	uint8_t packets[PROBES_AT_ONCE][VB_PROBE_BYTES];
	struct iovec iov[PROBES_AT_ONCE];
	struct mmsghdr messages[PROBES_AT_ONCE];
	union vb_sockaddr to;
	socklen_t to_bytes = vb_sockaddr_fill(&to, &g->address, g->scope_id, VB_ROCE_PORT);

	for (uint32_t first = 0; first < count; first += PROBES_AT_ONCE) {
		uint32_t n = VB_MIN(PROBES_AT_ONCE, count - first);

		memset(messages, 0, sizeof(messages));
		for (uint32_t i = 0; i < n; i++) {
			make_probe(packets[i], first + i, g->port->probe);
			iov[i] = (struct iovec){packets[i], VB_PROBE_BYTES};
			messages[i].msg_hdr.msg_name = &to;
			messages[i].msg_hdr.msg_namelen = to_bytes;
			messages[i].msg_hdr.msg_iov = &iov[i];
			messages[i].msg_hdr.msg_iovlen = 1;
		}
		/* Probes that are lost are made good by the next round: strays ask for it. */
		(void)!sendmmsg(g->probe_fd, messages, n, MSG_DONTWAIT);
	}
}

/* publish - a new round: the program follows the table, and everybody looks where he is. span: how
 * many indices the kernel's array may have. */
static int publish(struct vb_steering_group *g, uint32_t span)
{
	int err;

	span = VB_MIN(VB_MAX(span, port_count(g->port)) + PROBES_BEYOND, VB_REGISTRY_SLOTS);
	g->port->probe = random_u64();
	__atomic_store_n(&g->port->generation, g->port->generation + 1, __ATOMIC_RELAXED);
	err = vb_steering_attach(g);
	if (err == 0)
		send_probes(g, span);
	return err;
}

/* is_ours - a process of this host sent it, in whatever round: no other host has our address. */
static bool is_ours(const struct vb_steering_group *g, const struct in6_addr *from,
		    const uint8_t *packet, uint32_t index, uint64_t mark)
{
	uint8_t ours[VB_PROBE_BYTES];

	if (index >= VB_REGISTRY_SLOTS || !IN6_ARE_ADDR_EQUAL(from, &g->address))
		return false;
	make_probe(ours, index, mark);
	return memcmp(packet, ours, sizeof(ours)) == 0;
}

bool vb_steering_on_probe(struct vb_steering *s, unsigned int group, const struct in6_addr *from,
			  const uint8_t *packet)
{
	struct vb_steering_group *g = &s->group[group];
	struct vb_registry_port *port = g->port;
	uint16_t own = s->registry->slot;
	uint32_t word, index;
	uint64_t mark;

	memcpy(&word, packet + 4, sizeof(word));
	memcpy(&mark, packet + PROBE_MARK, sizeof(mark));
	index = ntohl(word) & ((1u << VB_SLOT_SHIFT) - 1);
	if (!is_ours(g, from, packet, index, mark))
		return false;
	/* A nudge (see vb_steering_leave()), or a round that ended before we looked: another one
	 * was begun, or who sent it has left. */
	if (mark == 0 || mark != __atomic_load_n(&port->probe, __ATOMIC_RELAXED))
		return true;
	if (mark == g->probe_seen || s->leaving)
		return true;
	g->probe_seen = mark;
	if (__atomic_load_n(&port->slot[index], __ATOMIC_RELAXED) == own &&
	    index < port_count(port))
		return true;
	if (!try_lock(s))
		return true;
	if (mark == port->probe) {
		uint32_t count = port_count(port);

		for (uint32_t i = 0; i < count; i++) {
			if (slot_at(port, i) == own)
				port->slot[i] = 0;
		}
		for (; count <= index; count++)
			port->slot[count] = 0;
		port->slot[index] = own;
		while (port->slot[count - 1] == 0)
			count--;
		__atomic_store_n(&port->count, count, __ATOMIC_RELAXED);
		if (vb_steering_attach(g) < 0)
			s->pending = true;
	}
	vb_registry_unlock(s->registry);
	return true;
}

/* --- watching the others ----------------------------------------------------------------- */

static void unwatch(struct vb_steering *s, struct vb_steering_watch *w)
{
	if (w->slot == 0)
		return;
	/* Closing alone would leave it in the set while a forked child has a copy. */
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	close(w->fd);
	w->slot = 0;
}

static bool is_member(const struct vb_steering *s, uint16_t slot)
{
	for (unsigned int i = 0; i < s->group_count; i++) {
		if (index_of(s->group[i].port, slot) >= 0)
			return true;
	}
	return false;
}

static void watch(struct vb_steering *s, uint16_t slot)
{
	uint64_t key = s->registry->shared->member_key[slot];
	pid_t pid = vb_registry_pid(s->registry, slot);
	struct vb_steering_watch *w = NULL;
	struct epoll_event event = {.events = EPOLLIN};
	int fd;

	for (unsigned int i = 0; i < VB_STEERING_WATCHES && !w; i++) {
		if (s->watch[i].slot == 0)
			w = &s->watch[i];
	}
	if (!w || pid <= 0)
		return;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return;
	event.data.u64 = s->watch_data | (uint64_t)(w - s->watch);
	/* The pid may have died and come back as another's before the pidfd was there. */
	if (vb_registry_pid(s->registry, slot) != pid ||
	    epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
		close(fd);
		s->pending = true;
		return;
	}
	*w = (struct vb_steering_watch){.slot = slot, .fd = fd, .key = key};
}

static bool is_watched(const struct vb_steering *s, uint16_t slot)
{
	for (unsigned int i = 0; i < VB_STEERING_WATCHES; i++) {
		if (s->watch[i].slot == slot)
			return true;
	}
	return false;
}

/* renew_watches - the next members after us, in a circle of slots. */
static void renew_watches(struct vb_steering *s)
{
	uint16_t wanted[VB_STEERING_WATCHES];
	unsigned int n = 0;

	for (uint32_t step = 1; step < VB_REGISTRY_SLOTS && n < VB_STEERING_WATCHES; step++) {
		uint16_t slot = (uint16_t)((s->registry->slot + step) % VB_REGISTRY_SLOTS);

		if (slot != 0 && slot != s->registry->slot && is_member(s, slot))
			wanted[n++] = slot;
	}
	for (unsigned int i = 0; i < VB_STEERING_WATCHES; i++) {
		struct vb_steering_watch *w = &s->watch[i];
		bool keep = false;

		for (unsigned int k = 0; k < n; k++)
			keep = keep || (w->slot == wanted[k] &&
					w->key == s->registry->shared->member_key[w->slot]);
		if (!keep)
			unwatch(s, w);
	}
	for (unsigned int k = 0; k < n; k++) {
		if (!is_watched(s, wanted[k]))
			watch(s, wanted[k]);
	}
}

void vb_steering_on_death(struct vb_steering *s, unsigned int index)
{
	if (index >= VB_STEERING_WATCHES || s->watch[index].slot == 0)
		return;
	s->died[s->watch[index].slot] = s->watch[index].key;
	unwatch(s, &s->watch[index]);
	vb_steering_sync(s);
}

/* --- joining, leaving, mending ----------------------------------------------------------- */

/* sync_group - locked: one address's table, and a new round of probes when it changed or verify. */
static int sync_group(struct vb_steering *s, struct vb_steering_group *g, bool verify)
{
	struct vb_registry_port *port = find_port(s, g);
	uint32_t span;
	bool changed;
	int err = 0;

	if (!port)
		return -ENOSPC;
	changed = port != g->port;
	g->port = port;
	span = port_count(port);
	/* whoever left could not attach the program any more */
	changed = purge(s, port) || changed || port->probe == 0;
	if (index_of(port, s->registry->slot) < 0) {
		if (port_count(port) >= VB_REGISTRY_SLOTS)
			return -ENOSPC;
		port->slot[port_count(port)] = s->registry->slot;
		__atomic_store_n(&port->count, port_count(port) + 1, __ATOMIC_RELAXED);
		changed = true;
	}
	if (changed || verify)
		err = publish(g, span + 1);
	g->generation_seen = port->generation;
	return err;
}

static void sync_all(struct vb_steering *s, bool verify)
{
	verify = verify || s->pending;
	if (!try_lock(s))
		return;
	s->pending = false;
	for (unsigned int i = 0; i < s->group_count; i++) {
		if (sync_group(s, &s->group[i], verify) < 0)
			s->pending = true;
	}
	vb_registry_unlock(s->registry);
	renew_watches(s);
}

void vb_steering_sync(struct vb_steering *s)
{
	sync_all(s, false);
}

uint64_t vb_steering_on_stray(struct vb_steering *s, uint16_t slot)
{
	uint64_t key, now_ns;

	if (slot == 0 || slot >= VB_REGISTRY_SLOTS || slot == s->registry->slot)
		return 0;
	/* The table does not say whether it is a member: it may be just being put right. */
	key = __atomic_load_n(&s->registry->shared->member_key[slot], __ATOMIC_RELAXED);
	if (key == 0)
		return 0;
	now_ns = vb_clock_ns();
	/* Strays do not prove a wrong table (a merged train goes where its first packet belongs),
	 * so that asking costs more and more time while they keep coming. */
	if (now_ns >= s->verify_after_ns) {
		if (now_ns - s->verify_after_ns > 4 * VERIFY_LAST_NS)
			s->verify_wait_ns = VERIFY_FIRST_NS;
		s->verify_after_ns = now_ns + s->verify_wait_ns;
		s->verify_wait_ns = VB_MIN(2 * s->verify_wait_ns, VERIFY_LAST_NS);
		s->verifications++;
		sync_all(s, true);
	}
	return key;
}

int vb_steering_init(struct vb_steering *s, struct vb_registry *registry, int epoll_fd,
		     uint64_t watch_data)
{
	memset(s, 0, sizeof(*s));
	s->registry = registry;
	s->epoll_fd = epoll_fd;
	s->watch_data = watch_data;
	s->verify_wait_ns = VERIFY_FIRST_NS;
	s->retry_wait_ns = RETRY_FIRST_NS;
	s->key = random_u64();
	if (registry->slot == 0 || registry->slot >= VB_REGISTRY_SLOTS)
		return -EINVAL;
	return 0;
}

void vb_steering_add(struct vb_steering *s, const struct in6_addr *address, uint32_t scope_id,
		     int fd, int probe_fd)
{
	VB_ASSERT(s->group_count < VB_STEERING_GROUPS);
	s->group[s->group_count++] = (struct vb_steering_group){
		.address = *address, .scope_id = scope_id, .fd = fd, .probe_fd = probe_fd};
}

/* forget_own - locked: what a dead process left in our slot. Its sockets are gone. */
static void forget_own(struct vb_steering *s)
{
	for (unsigned int i = 0; i < VB_REGISTRY_PORTS; i++) {
		struct vb_registry_port *port = &s->registry->shared->port[i];
		int index;

		while ((index = index_of(port, s->registry->slot)) >= 0)
			remove_index(port, (uint32_t)index);
	}
}

int vb_steering_join(struct vb_steering *s)
{
	int err = vb_registry_lock(s->registry);

	if (err < 0)
		return err;
	forget_own(s);
	s->registry->shared->member_key[s->registry->slot] = s->key;
	for (unsigned int i = 0; i < s->group_count && err == 0; i++) {
		struct vb_steering_group *g = &s->group[i];
		union vb_sockaddr to;
		socklen_t bytes = vb_sockaddr_fill(&to, &g->address, g->scope_id, VB_ROCE_PORT);

		/* Bound under the lock: the order of the binds is the order of the table. */
		err = bind(g->fd, &to.any, bytes) < 0 ? -errno : sync_group(s, g, true);
	}
	if (err < 0)
		forget_own(s);
	vb_registry_unlock(s->registry);
	if (err == 0)
		renew_watches(s);
	return err;
}

uint64_t vb_steering_retire(struct vb_steering *s)
{
	uint64_t key = 0;

	s->leaving = true;
	if (vb_registry_lock(s->registry) < 0)
		return 0;
	for (unsigned int i = 0; i < s->group_count; i++) {
		struct vb_steering_group *g = &s->group[i];
		int index = g->port ? index_of(g->port, s->registry->slot) : -1;
		uint16_t other;

		if (index < 0)
			continue;
		g->port->slot[index] = s->registry->slot | VB_STEERING_LEAVING;
		(void)!vb_steering_attach(g); /* else we get what we got before */
		other = slot_at(g->port, index_that_stays(g->port));
		if (other != s->registry->slot && other < VB_REGISTRY_SLOTS)
			key = s->registry->shared->member_key[other];
	}
	vb_registry_unlock(s->registry);
	return key;
}

/* nudge - wakes a member who stays: it sees that the membership changed. */
static void nudge(const struct vb_steering_group *g)
{
	union vb_sockaddr to;
	socklen_t bytes = vb_sockaddr_fill(&to, &g->address, g->scope_id, VB_ROCE_PORT);
	uint8_t packet[VB_PROBE_BYTES];

	make_probe(packet, 0, 0);
	/* If it is lost, the next packet of any peer does the same. */
	(void)!sendto(g->probe_fd, packet, sizeof(packet), MSG_DONTWAIT, &to.any, bytes);
}

void vb_steering_leave(struct vb_steering *s)
{
	bool locked = vb_registry_lock(s->registry) == 0;

	for (unsigned int i = 0; i < s->group_count; i++) {
		struct vb_steering_group *g = &s->group[i];
		int index = locked && g->port ? index_of(g->port, s->registry->slot) : -1;

		close(g->fd);
		g->fd = -1;
		if (index < 0)
			continue;
		remove_index(g->port, (uint32_t)index);
		g->port->probe = 0;
		__atomic_store_n(&g->port->generation, g->port->generation + 1, __ATOMIC_RELAXED);
		if (port_count(g->port) > 0)
			nudge(g);
	}
	if (locked) {
		s->registry->shared->member_key[s->registry->slot] = 0;
		vb_registry_unlock(s->registry);
	}
	for (unsigned int i = 0; i < VB_STEERING_WATCHES; i++)
		unwatch(s, &s->watch[i]);
	s->group_count = 0;
}

void vb_steering_drop_in_child(struct vb_steering *s)
{
	for (unsigned int i = 0; i < VB_STEERING_WATCHES; i++) {
		if (s->watch[i].slot)
			close(s->watch[i].fd); /* the epoll set is the parent's */
	}
	memset(s->watch, 0, sizeof(s->watch));
}
