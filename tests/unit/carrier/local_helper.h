/* SPDX-License-Identifier: BSD-2-Clause */
/* local_helper.h - local carriers in real processes, and what they say to each other. */
#ifndef VB_TESTS_LOCAL_HELPER_H
#define VB_TESTS_LOCAL_HELPER_H

#include "../registry/registry_helper.h"

#include <sys/mman.h>
#include <time.h>

#include "carrier/local.h"
#include "wire/packet.h"

struct test_nic {
	struct vb_registry *registry;
	struct vb_carrier *carrier;
	struct vb_path path;
	bool room;
	uint64_t received;
	/* the last packet */
	struct vb_headers headers;
	uint8_t payload[VB_LOCAL_SEGMENT + 4];
	uint32_t payload_bytes;
	struct in6_addr src, dst;
	uint8_t hop_limit;
	bool wanted;
	/* if set, called for each */
	void (*on_packet)(struct test_nic *nic, void *arg);
	void *arg;
};

static inline void test_deliver(void *env, const struct vb_rx *rx)
{
	struct test_nic *nic = env;
	int r = vb_headers_decode(&nic->headers, rx->data, rx->size);

	if (r < 0)
		_exit(70);
	nic->payload_bytes = (uint32_t)(rx->size - (size_t)r - nic->headers.pad);
	memcpy(nic->payload, rx->data + r, nic->payload_bytes);
	nic->src = rx->src;
	nic->dst = rx->dst;
	nic->hop_limit = rx->hop_limit;
	nic->wanted = rx->wanted;
	nic->received++;
	if (nic->on_packet)
		nic->on_packet(nic, nic->arg);
}

static inline int test_nic_open(struct test_nic *nic, const struct in6_addr *address)
{
	int r;

	memset(nic, 0, sizeof(*nic));
	r = vb_registry_join(&nic->registry, address);
	if (r)
		return r;
	r = vb_local_create(&nic->carrier, nic->registry, test_deliver, nic);
	if (r)
		vb_registry_leave(nic->registry);
	else
		vb_local_route(nic->carrier, &nic->path);
	return r;
}

static inline void test_nic_close(struct test_nic *nic)
{
	nic->carrier->ops->destroy(nic->carrier);
	vb_registry_leave(nic->registry);
}

/* A QPN of a slot. */
static inline uint32_t test_qpn(unsigned int slot, uint32_t index)
{
	return slot << VB_SLOT_SHIFT | index;
}

/* One UC SEND ONLY with immediate to qpn; two payload parts when it has more than one byte. */
static inline int test_tx(struct test_nic *nic, uint32_t qpn, uint32_t psn, uint32_t imm,
			  const void *payload, uint32_t bytes)
{
	struct vb_headers h = {
		.opcode = vb_opcode(VB_TRANSPORT_UC, VB_OP_SEND_ONLY_IMM),
		.pkey = VB_DEFAULT_PKEY,
		.qpn = qpn,
		.psn = psn & 0xffffff,
		.imm = imm,
		.pad = (uint8_t)(-bytes & 3),
	};
	struct iovec parts[2] = {
		{(void *)(uintptr_t)payload, bytes / 3},
		{(uint8_t *)(uintptr_t)payload + bytes / 3, bytes - bytes / 3},
	};
	struct vb_tx tx = {
		.headers = &h, .payload = parts, .payload_parts = 2, .payload_bytes = bytes};

	return nic->carrier->ops->tx(nic->carrier, &nic->path, &tx);
}

static inline int test_poll(struct test_nic *nic)
{
	return nic->carrier->ops->poll(nic->carrier, 64, &nic->room);
}

static inline uint64_t test_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* Sleeps until something arrives, as an engine's thread does. False: nothing in 20 s. */
static inline bool test_sleep(struct test_nic *nic)
{
	if (nic->carrier->ops->arm(nic->carrier)) {
		struct pollfd p = {.fd = nic->carrier->fd, .events = POLLIN};
		int r = poll(&p, 1, 20000);

		nic->carrier->ops->disarm(nic->carrier);
		return r == 1;
	}
	return true;
}

/* Polls until count packets have arrived, sleeping in between. */
static inline bool test_wait_received(struct test_nic *nic, uint64_t count)
{
	while (nic->received < count) {
		if (test_poll(nic))
			continue;
		if (!test_sleep(nic))
			return false;
	}
	return true;
}

/* Sends, and sleeps until there is room when there is none. The carrier's error otherwise. */
static inline int test_tx_wait(struct test_nic *nic, uint32_t qpn, uint32_t psn, uint32_t imm,
			       const void *payload, uint32_t bytes)
{
	for (;;) {
		int r = test_tx(nic, qpn, psn, imm, payload, bytes);

		if (r != -EAGAIN)
			return r;
		for (nic->room = false; !nic->room;) {
			if (test_poll(nic) || nic->room)
				continue;
			if (!test_sleep(nic))
				return -ETIMEDOUT;
		}
	}
}

static inline uint32_t test_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33);
}

/* Fills with a sequence that depends on seed; checks it. */
static inline void test_fill(uint8_t *p, uint32_t bytes, uint64_t seed)
{
	for (uint32_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)((seed * 2654435761u + i * 40503u) >> 7);
}

static inline bool test_filled(const uint8_t *p, uint32_t bytes, uint64_t seed)
{
	for (uint32_t i = 0; i < bytes; i++)
		if (p[i] != (uint8_t)((seed * 2654435761u + i * 40503u) >> 7))
			return false;
	return true;
}

/* A child that is a NIC: says {slot}, then runs. arg is struct test_role *. */
struct test_role {
	struct in6_addr address;
	void (*run)(struct test_nic *nic, int fd, struct test_role *role);
	unsigned int peer; /* slot */
	uint32_t number;
};

static inline void test_nic_child(int fd, void *arg)
{
	static struct test_nic nic;
	struct test_role *role = arg;

	if (test_nic_open(&nic, &role->address))
		_exit(71);
	test_send(fd, &nic.registry->slot, sizeof(nic.registry->slot));
	role->run(&nic, fd, role);
}

static inline uint16_t test_start_nic(struct test_child *child, struct test_role *role)
{
	uint16_t slot = 0;

	*child = test_fork(test_nic_child, role);
	assert_true(test_receive(child->fd, &slot, sizeof(slot)));
	return slot;
}

#endif
