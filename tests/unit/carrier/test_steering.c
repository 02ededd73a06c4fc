/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_steering.c - several processes share one address's port; each packet reaches the process
 * whose slot its QPN names, or its MAD, through joins, leaves and kill -9.
 *
 * The processes report through a page that they share with the test. A process that got a packet
 * for another one says so at once (wrong), which must never happen.
 */
#define _GNU_SOURCE
#include "udp_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "registry/ports.h"
#include "wire/mad.h"

#define WORKERS 8
#define PORTS_FROM 10000u /* a worker's port is this and its slot */

struct worker {
	pid_t pid;
	uint32_t slot;	    /* 0 until it has joined */
	bool pause, paused; /* it does not look at its sockets */
	bool stop, stopped;
	uint64_t got, wrong, strays, handed, mads_on;
	uint64_t taken; /* the process's own count, which it tells as got after the others */
};

static struct worker *workers;
static struct vb_registry *worker_registry;
static struct worker *self;
static struct host *bystander; /* a member in this process, which must be polled too; or NULL */

/* For whom a packet is; the tests' MADs say it in their last bytes too. */
static uint16_t addressee(const struct vb_rx *rx)
{
	if (vb_udp_qpn(rx->data) != VB_GSI_QPN)
		return (uint16_t)(vb_udp_qpn(rx->data) >> VB_SLOT_SHIFT);
	return (uint16_t)(rx->data[rx->size - 2] << 8 | rx->data[rx->size - 1]);
}

static void count_packet(void *env, const struct vb_rx *rx)
{
	if (addressee(rx) == worker_registry->slot)
		self->taken++;
	else
		__atomic_fetch_add(&self->wrong, 1, __ATOMIC_RELAXED);
}

static void run_worker(struct worker *w, const char *const *addresses, unsigned int count)
{
	struct vb_udp_config config = {.address_count = count};
	struct vb_udp_counters counters;
	struct vb_carrier *carrier;
	bool room = false;
	uint16_t port;

	self = w;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned int i = 0; i < count; i++)
		config.addresses[i] = test_address(addresses[i]);
	if (vb_registry_join(&worker_registry, &config.addresses[0]) < 0)
		_exit(1);
	config.registry = worker_registry;
	if (vb_udp_create(&carrier, &config, count_packet, NULL) < 0)
		_exit(2);
	port = (uint16_t)(PORTS_FROM + worker_registry->slot);
	if (vb_ports_claim(worker_registry, VB_PS_TCP, VB_PORT_IPV4, &port) < 0)
		_exit(3);
	vb_ports_set_listening(worker_registry, VB_PS_TCP, VB_PORT_IPV4, port, true);
	__atomic_store_n(&w->slot, worker_registry->slot, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		struct pollfd p = {.fd = carrier->fd, .events = POLLIN};

		if (__atomic_load_n(&w->pause, __ATOMIC_ACQUIRE)) {
			__atomic_store_n(&w->paused, true, __ATOMIC_RELEASE);
			usleep(200);
			continue;
		}
		if (carrier->ops->arm(carrier))
			poll(&p, 1, 20);
		carrier->ops->disarm(carrier);
		while (carrier->ops->poll(carrier, 64, &room) > 0)
			;
		vb_udp_read_counters(carrier, &counters);
		__atomic_store_n(&w->strays, counters.rx_strays, __ATOMIC_RELAXED);
		__atomic_store_n(&w->handed, counters.rx_handed, __ATOMIC_RELAXED);
		__atomic_store_n(&w->mads_on, counters.rx_mads_on, __ATOMIC_RELAXED);
		__atomic_store_n(&w->got, w->taken, __ATOMIC_RELEASE);
	}
	carrier->ops->destroy(carrier);
	vb_registry_leave(worker_registry);
	__atomic_store_n(&w->stopped, true, __ATOMIC_RELEASE);
	_exit(0);
}

static void start_on(unsigned int i, const char *const *addresses, unsigned int count)
{
	struct worker *w = &workers[i];
	uint64_t until = test_now_ns() + PATIENCE_NS;

	pid_t pid;

	memset(w, 0, sizeof(*w));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		run_worker(w, addresses, count);
	w->pid = pid; /* the page is shared: the child does not write it */
	while (__atomic_load_n(&w->slot, __ATOMIC_ACQUIRE) == 0) {
		if (waitpid(w->pid, NULL, WNOHANG) != 0 || test_now_ns() > until)
			fail_msg("worker %u did not join", i);
		usleep(500);
	}
}

static void start(unsigned int i, const char *address)
{
	start_on(i, &address, 1);
}

static void stop(unsigned int i)
{
	int status;

	__atomic_store_n(&workers[i].stop, true, __ATOMIC_RELEASE);
	assert_int_equal(waitpid(workers[i].pid, &status, 0), workers[i].pid);
	assert_int_equal(status, 0);
	workers[i].pid = 0;
}

static void kill_worker(unsigned int i)
{
	assert_int_equal(kill(workers[i].pid, SIGKILL), 0);
	assert_int_equal(waitpid(workers[i].pid, NULL, 0), workers[i].pid);
	workers[i].pid = 0;
}

static uint64_t sum_handed(void)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < WORKERS; i++) {
		if (workers[i].pid)
			sum += __atomic_load_n(&workers[i].handed, __ATOMIC_RELAXED);
	}
	return sum;
}

static uint64_t sum_strays(void)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < WORKERS; i++) {
		if (workers[i].pid)
			sum += __atomic_load_n(&workers[i].strays, __ATOMIC_RELAXED);
	}
	return sum;
}

static uint64_t got(unsigned int i)
{
	return __atomic_load_n(&workers[i].got, __ATOMIC_ACQUIRE);
}

/* send_round - n packets to every live worker, as trains. Returns when all arrived: true; or, where
 * loss is allowed, after a while: false. */
static bool send_round(struct host *from, const struct vb_path *path, uint32_t n, bool all)
{
	uint64_t before[WORKERS], until = test_now_ns() + (all ? PATIENCE_NS : 100000000u);
	bool complete = false;

	for (unsigned int i = 0; i < WORKERS; i++) {
		before[i] = got(i);
		for (uint32_t k = 0; k < n && workers[i].pid; k++)
			assert_int_equal(host_send(from, path, workers[i].slot << VB_SLOT_SHIFT | 3,
						   k, "12345678", 8),
					 0);
	}
	host_flush(from);
	while (!complete && test_now_ns() < until) {
		complete = true;
		for (unsigned int i = 0; i < WORKERS; i++)
			complete = complete && (!workers[i].pid || got(i) >= before[i] + n);
		if (bystander)
			host_settle(bystander);
		if (!complete)
			usleep(200);
	}
	for (unsigned int i = 0; all && !complete && i < WORKERS; i++) {
		if (workers[i].pid)
			print_error(
				"worker %u slot %u: %llu of %u packets, %llu strays, %llu handed\n",
				i, workers[i].slot, (unsigned long long)(got(i) - before[i]), n,
				(unsigned long long)workers[i].strays,
				(unsigned long long)workers[i].handed);
	}
	if (all && !complete)
		fail_msg("packets are missing");
	for (unsigned int i = 0; i < WORKERS; i++)
		assert_int_equal(workers[i].wrong, 0);
	return complete;
}

/* wait_until_right - until a round arrives whole, and nothing of it was handed on; bounded. */
static void wait_until_right(struct host *from, const struct vb_path *path)
{
	uint64_t until = test_now_ns() + PATIENCE_NS, before;

	do {
		assert_true(test_now_ns() < until);
		before = sum_handed();
	} while (!send_round(from, path, 1, false) || sum_handed() != before);
	send_round(from, path, 20, true);
}

static void packets_reach_their_process(void **state)
{
	struct host *from = host_open("127.7.2.1");
	struct in6_addr to = test_address("127.7.2.2");
	struct vb_path path = host_path(from, &to);

	for (unsigned int i = 0; i < 4; i++)
		start(i, "127.7.2.2");
	for (unsigned int round = 0; round < 50; round++)
		send_round(from, &path, 20, true);
	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(got(i), 1000);
		assert_int_equal(workers[i].handed, 0);
		assert_int_equal(workers[i].strays, 0);
	}
	for (unsigned int i = 0; i < 4; i++)
		stop(i);
	host_close(from);
}

/* --- QP 1 -------------------------------------------------------------------------------- */

static void put(uint8_t *at, uint64_t value, unsigned int bytes)
{
	while (bytes-- > 0) {
		at[bytes] = (uint8_t)value;
		value >>= 8;
	}
}

static void send_mad(struct host *from, const struct vb_path *path, uint8_t mgmt_class,
		     uint8_t method, uint16_t attribute, uint16_t slot)
{
	struct vb_headers headers = {.opcode = vb_opcode(VB_TRANSPORT_UD, VB_OP_SEND_ONLY),
				     .pkey = VB_DEFAULT_PKEY,
				     .qpn = VB_GSI_QPN};
	uint8_t mad[256] = {1, mgmt_class, 2, method};
	struct iovec part = {mad, sizeof(mad)};
	struct vb_tx tx = {
		.headers = &headers, .payload = &part, .payload_parts = 1, .payload_bytes = 256};
	const uint64_t id = (uint32_t)slot << 23 | 77;

	put(mad + 16, attribute, 2);
	if (mgmt_class != 0x07)
		put(mad + 8, id << 32, 8);
	else if (attribute == 0x18) /* SIDR_REP */
		put(mad + 24, id, 4);
	else if (attribute != 0x10)
		put(mad + 28, id, 4);
	else
		put(mad + 32, 0x01060000u | (PORTS_FROM + slot), 8);
	mad[165] = 0x40; /* IPv4, in a REQ's private data */
	put(mad + 254, slot, 2);
	assert_int_equal(from->carrier->ops->tx(from->carrier, path, &tx), 0);
	host_flush(from);
}

static uint64_t sum_mads_on(void)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < WORKERS; i++)
		sum += __atomic_load_n(&workers[i].mads_on, __ATOMIC_RELAXED);
	return sum;
}

static void wait_for(unsigned int i, uint64_t count)
{
	uint64_t until = test_now_ns() + PATIENCE_NS;

	while (got(i) < count) {
		if (test_now_ns() > until)
			fail_msg("worker %u has %llu of %llu", i, (unsigned long long)got(i),
				 (unsigned long long)count);
		usleep(200);
	}
	assert_int_equal(got(i), count);
	assert_int_equal(workers[i].wrong, 0);
}

/* An answer reaches the process that it names at once; a request the owner of its port, handed on
 * by another where it must be. */
static void mads_reach_their_process(void **state)
{
	static const uint16_t answers[] = {0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x18};
	struct host *from = host_open("127.7.2.30");
	struct in6_addr to = test_address("127.7.2.31");
	struct vb_path path = host_path(from, &to);
	const unsigned int n = VB_ARRAY_SIZE(answers) + 1;

	for (unsigned int i = 0; i < 4; i++)
		start(i, "127.7.2.31");
	for (unsigned int round = 0; round < 10; round++)
		for (unsigned int i = 0; i < 4; i++) {
			for (unsigned int k = 0; k < VB_ARRAY_SIZE(answers); k++)
				send_mad(from, &path, 0x07, 0x03, answers[k],
					 (uint16_t)workers[i].slot);
			send_mad(from, &path, 0x04, 0x81, 0x12, (uint16_t)workers[i].slot);
		}
	for (unsigned int i = 0; i < 4; i++)
		wait_for(i, 10 * n);
	assert_int_equal(sum_mads_on(), 0);
	for (unsigned int round = 0; round < 10; round++)
		for (unsigned int i = 0; i < 4; i++)
			send_mad(from, &path, 0x07, 0x03, 0x10, (uint16_t)workers[i].slot);
	for (unsigned int i = 0; i < 4; i++)
		wait_for(i, 10 * n + 10);
	for (unsigned int i = 0; i < 4; i++)
		stop(i);
	assert_int_equal(sum_mads_on(), 30); /* index 0 kept its own */
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(workers[i].strays, 0);
	host_close(from);
}

static void pause_worker(unsigned int i)
{
	uint64_t until = test_now_ns() + PATIENCE_NS;

	__atomic_store_n(&workers[i].pause, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&workers[i].paused, __ATOMIC_ACQUIRE)) {
		assert_true(test_now_ns() < until);
		usleep(200);
	}
}

/* What waits in the socket of one who leaves is handed on: requests for a port to its owner, those
 * for a port of the one who leaves to whoever stays (to refuse them). */
static void a_leaver_hands_on_what_waits(void **state)
{
	struct host *from = host_open("127.7.2.32");
	struct in6_addr to = test_address("127.7.2.33");
	struct vb_path path = host_path(from, &to);

	start(0, "127.7.2.33");
	start(1, "127.7.2.33");
	send_round(from, &path, 20, true); /* whoever is at index 0, the table is right */
	pause_worker(0);
	for (unsigned int k = 0; k < 10; k++)
		send_mad(from, &path, 0x07, 0x03, 0x10, (uint16_t)workers[1].slot);
	stop(0);
	wait_for(1, 30);
	assert_int_equal(sum_mads_on(), 0); /* what the worker said while it looked */
	stop(1);
	host_close(from);
}

/* A member in the middle leaves while requests and answers keep coming for the others, of whom the
 * last moves into its place in the kernel's array. */
static void nothing_is_lost_as_members_leave(void **state)
{
	struct host *from = host_open("127.7.2.34");
	struct in6_addr to = test_address("127.7.2.35");
	struct vb_path path = host_path(from, &to);

	start(0, "127.7.2.35");
	for (unsigned int round = 0; round < 30; round++) {
		uint64_t first, last;

		start(1, "127.7.2.35");
		start(2, "127.7.2.35");
		send_round(from, &path, 5, true);
		first = got(0);
		last = got(2);
		__atomic_store_n(&workers[1].stop, true, __ATOMIC_RELEASE);
		for (unsigned int k = 0; k < 100; k++) {
			send_mad(from, &path, 0x07, 0x03, 0x10, (uint16_t)workers[0].slot);
			send_mad(from, &path, 0x07, 0x03, 0x13, (uint16_t)workers[2].slot);
		}
		stop(1);
		wait_for(0, first + 100);
		wait_for(2, last + 100);
		stop(2);
	}
	stop(0);
	host_close(from);
}

static void joins_and_leaves(void **state)
{
	struct host *from = host_open("127.7.2.3");
	struct in6_addr to = test_address("127.7.2.4");
	struct vb_path path = host_path(from, &to);
	uint64_t before;

	for (unsigned int i = 0; i < 4; i++)
		start(i, "127.7.2.4");
	for (unsigned int round = 0; round < 24; round++) {
		unsigned int i = round * 5 % WORKERS;

		if (workers[i].pid) {
			/* Nothing is lost; who moved is missed until another member has attached
			 * the program, and strays find him. */
			stop(i);
			send_round(from, &path, 10, true);
			wait_until_right(from, &path);
		} else {
			/* Who joins attaches it himself: right at once. */
			start(i, "127.7.2.4");
			before = sum_strays();
			send_round(from, &path, 10, true);
			assert_int_equal(sum_strays(), before);
		}
	}
	for (unsigned int i = 0; i < WORKERS; i++) {
		if (workers[i].pid)
			stop(i);
	}
	host_close(from);
}

static void deaths_are_mended(void **state)
{
	struct host *from = host_open("127.7.2.5");
	struct in6_addr to = test_address("127.7.2.6");
	struct vb_path path = host_path(from, &to);

	for (unsigned int i = 0; i < 6; i++)
		start(i, "127.7.2.6");
	for (unsigned int round = 0; round < 30; round++) {
		unsigned int i = (round * 7 + round / 3) % WORKERS, k = (i + 3) % WORKERS;

		if (workers[i].pid)
			kill_worker(i);
		else
			start(i, "127.7.2.6");
		if (round % 4 == 3 && workers[k].pid) /* two at once: seen in either order */
			kill_worker(k);
		wait_until_right(from, &path);
	}
	for (unsigned int i = 0; i < WORKERS; i++) {
		if (workers[i].pid)
			kill_worker(i);
	}
	/* The next one finds only the dead. */
	start(0, "127.7.2.6");
	send_round(from, &path, 20, true);
	assert_int_equal(workers[0].strays, 0);
	stop(0);
	host_close(from);
}

/* Processes with different sets of addresses: each address is a group of its own. */
static void addresses_are_groups_of_their_own(void **state)
{
	static const char *const both[] = {"127.7.2.8", "127.7.2.9"}, *const swapped[] = {
									      "127.7.2.8"};
	struct host *from = host_open("127.7.2.7");
	struct in6_addr first = test_address(both[0]), second = test_address(both[1]);
	struct vb_path path1 = host_path(from, &first), path2 = host_path(from, &second);

	start_on(0, swapped, 1);
	start_on(1, both, 2);
	start_on(2, both, 2);
	send_round(from, &path1, 10, true);
	for (unsigned int i = 1; i <= 2; i++)
		assert_int_equal(host_send(from, &path2, workers[i].slot << VB_SLOT_SHIFT | 3, 0,
					   "12345678", 8),
				 0);
	host_flush(from);
	kill_worker(0);
	wait_until_right(from, &path1);
	wait_until_right(from, &path2);
	for (unsigned int i = 1; i <= 2; i++)
		stop(i);
	host_close(from);
}

/* The table is wrong: who gets another's packets hands them on, and has the table put right. */
static void a_wrong_table_is_put_right(void **state)
{
	struct host *from = host_open("127.7.2.10");
	struct host *spoiler =
		host_open("127.7.2.11"); /* a member, to be able to write the table */
	struct vb_path path = host_path(from, &spoiler->address);
	struct vb_registry_port *port = &spoiler->registry->shared->port[0];
	struct vb_steering_group *g = &vb_udp_of(spoiler->carrier)->steering.group[0];
	uint64_t handed = 0, wait_until = test_now_ns() + PATIENCE_NS;
	uint16_t slot;

	bystander = spoiler;
	for (unsigned int i = 0; i < 3; i++)
		start(i, "127.7.2.11");
	wait_until_right(from, &path);
	/* Two entries change places, and a join attaches the wrong program. */
	assert_ptr_equal(g->port, port);
	assert_int_equal(port->count, 4);
	assert_int_equal(vb_registry_lock(spoiler->registry), 0);
	slot = port->slot[1];
	port->slot[1] = port->slot[2];
	port->slot[2] = slot;
	port->probe = 0;
	vb_registry_unlock(spoiler->registry);
	start(3, "127.7.2.11"); /* probes, and they put it right */
	host_settle(spoiler);
	wait_until_right(from, &path);
	assert_int_equal(port->count, 5);

	/* Now without a round of probes: only strays tell. */
	assert_int_equal(vb_registry_lock(spoiler->registry), 0);
	slot = port->slot[1];
	port->slot[1] = port->slot[3];
	port->slot[3] = slot;
	assert_int_equal(vb_steering_attach(g), 0);
	vb_registry_unlock(spoiler->registry);
	send_round(from, &path, 1, true); /* nothing is lost: handed on */
	wait_until_right(from, &path);
	while (handed == 0 && test_now_ns() < wait_until) {
		for (unsigned int i = 0; i < 4; i++)
			handed += __atomic_load_n(&workers[i].handed, __ATOMIC_RELAXED);
	}
	assert_true(handed > 0);
	for (unsigned int i = 0; i < 4; i++)
		stop(i);
	host_settle(spoiler);
	assert_int_equal(port->count, 1);
	bystander = NULL;
	host_close(spoiler);
	host_close(from);
}

/* Others join and leave before one looks at his socket: the probes of the rounds that are over are
 * no errors of the network. */
static void late_probes_are_no_errors(void **state)
{
	struct host *from = host_open("127.7.2.36"), *b = host_open("127.7.2.37");
	struct vb_path path = host_path(from, &b->address);
	struct host *others[3];
	struct vb_udp_counters c;

	for (unsigned int i = 0; i < VB_ARRAY_SIZE(others); i++)
		others[i] = host_open("127.7.2.37");
	for (unsigned int i = 0; i < VB_ARRAY_SIZE(others); i++)
		host_close(others[i]);
	/* Behind all probes: whoever has got it has seen them. */
	assert_int_equal(host_send(from, &path, host_qpn(b, 1), 0, "last", 4), 0);
	host_flush(from);
	host_wait(b, 1);
	c = host_counters(b);
	assert_int_equal(c.rx_bad_icrc + c.rx_short + c.rx_unclaimed, 0);
	host_settle(b);
	assert_int_equal(vb_udp_of(b->carrier)->steering.group[0].port->count, 1);
	host_close(b);
	host_close(from);
}

/* What has a probe's form but comes from another host is a packet with a wrong ICRC. */
static void probes_of_other_hosts_are_errors(void **state)
{
	struct host *b = host_open("127.7.2.38");
	struct vb_registry_port *port = vb_udp_of(b->carrier)->steering.group[0].port;
	union vb_sockaddr name;
	uint8_t probe[VB_PROBE_BYTES] = {0xff, 0, 0, 0, 0, 0xff, 0x80, 3};
	struct in6_addr stranger = test_address("127.7.2.39");
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t bytes = vb_sockaddr_fill(&name, &stranger, 0, 0);

	host_settle(b); /* its own */
	assert_int_equal(bind(fd, &name.any, bytes), 0);
	bytes = vb_sockaddr_fill(&name, &b->address, 0, VB_ROCE_PORT);
	for (unsigned int round = 0; round < 3; round++) {
		/* a nudge, the present round's, one of no round */
		const uint64_t mark = round == 0 ? 0 : port->probe ^ (round - 1);

		memcpy(probe + 12, &mark, sizeof(mark));
		assert_int_equal(sendto(fd, probe, sizeof(probe), 0, &name.any, bytes),
				 sizeof(probe));
		host_settle(b);
		assert_int_equal(host_counters(b).rx_bad_icrc, round + 1);
	}
	assert_int_equal(port->count, 1);
	assert_int_equal(port->slot[0], b->registry->slot);
	close(fd);
	host_close(b);
}

/* A dead one's socket that another process still holds keeps its index in the kernel. */
static void an_inherited_socket_keeps_its_index(void **state)
{
	struct host *from = host_open("127.7.2.12");
	struct in6_addr to = test_address("127.7.2.13");
	struct vb_path path = host_path(from, &to);
	int hold[2];
	char byte = 0;
	pid_t child;

	assert_int_equal(pipe(hold), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		/* joins, has a child that holds the socket, and leaves */
		struct host *h = host_open("127.7.2.13");

		close(hold[1]);
		if (fork() == 0) {
			ssize_t n = read(hold[0], &byte, 1); /* until the test closes its end */

			_exit(n == 0 ? 0 : 1);
		}
		host_close(h);
		_exit(0);
	}
	close(hold[0]);
	assert_int_equal(waitpid(child, NULL, 0), child);
	start(0, "127.7.2.13");
	wait_until_right(from, &path);
	for (unsigned int i = 1; i < 3; i++)
		start(i, "127.7.2.13");
	wait_until_right(from, &path);
	kill_worker(1);
	wait_until_right(from, &path);
	close(hold[1]); /* the socket goes, the last one moves: strays tell */
	usleep(20000);
	wait_until_right(from, &path);
	stop(0);
	stop(2);
	host_close(from);
}

/* Nobody sends anything: the pidfds alone tell of a death, and an index is found by its probe. */
static void deaths_are_seen_without_traffic(void **state)
{
	struct host *h = host_open("127.7.2.17"), *from = host_open("127.7.2.19");
	struct vb_path path = host_path(from, &h->address);
	struct vb_registry_port *port = vb_udp_of(h->carrier)->steering.group[0].port;
	uint64_t until = test_now_ns() + PATIENCE_NS;

	for (unsigned int i = 0; i < 3; i++)
		start(i, "127.7.2.17");
	bystander = h;
	send_round(from, &path, 1, true); /* everybody has seen everybody's join */
	host_settle(h);
	assert_int_equal(port->count, 4);
	assert_int_equal(port->slot[0], h->registry->slot);
	assert_int_equal(port->slot[3], workers[2].slot);
	kill_worker(0);
	while (port->count != 3 && test_now_ns() < until) {
		is_readable(h->carrier->fd, 20);
		h->carrier->ops->disarm(h->carrier);
		host_settle(h);
	}
	assert_int_equal(port->count, 3);
	assert_int_equal(port->slot[1], workers[2].slot); /* the last moved into the hole */
	assert_int_equal(port->slot[2], workers[1].slot);
	for (unsigned int i = 1; i < 3; i++)
		stop(i);
	bystander = NULL;
	host_close(h);
	host_close(from);
}

/* The lock of the registry is held by a process that does not go on: packets travel all the same,
 * and what could not be mended is mended when the lock is free. */
static void a_held_lock_stops_no_packets(void **state)
{
	struct host *h = host_open("127.7.2.20"), *from = host_open("127.7.2.21");
	struct vb_path path = host_path(from, &h->address);
	struct vb_registry_port *port = vb_udp_of(h->carrier)->steering.group[0].port;
	struct vb_registry *registry;
	uint64_t until = test_now_ns() + PATIENCE_NS;
	int held[2];
	char byte;
	pid_t holder;

	start(0, "127.7.2.20");
	host_settle(h);
	assert_int_equal(pipe(held), 0);
	holder = fork();
	assert_true(holder >= 0);
	if (holder == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		vb_registry_drop_in_child(h->registry); /* a member of its own */
		if (vb_registry_join(&registry, &h->address) == 0 &&
		    vb_registry_lock(registry) == 0)
			(void)!write(held[1], "x", 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(held[0], &byte, 1), 1);
	kill_worker(0);
	for (uint32_t n = 0; n < 50; n++) {
		assert_int_equal(host_send(from, &path, host_qpn(h, 1), n, "12345678", 8), 0);
		host_flush(from);
		h->carrier->ops->disarm(h->carrier); /* the death is seen now */
		host_wait(h, n + 1);
	}
	assert_int_equal(port->count, 2);
	assert_int_equal(kill(holder, SIGKILL), 0);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	while (port->count != 1 && test_now_ns() < until)
		host_settle(h);
	assert_int_equal(port->count, 1);
	close(held[0]);
	close(held[1]);
	host_close(h);
	host_close(from);
}

/* handed - a stray as another process of the host hands it on. */
static size_t handed(uint8_t out[256], const struct host *to, uint32_t qpn)
{
	const uint32_t magic = 0x76627374u;
	struct vb_icrc_ip ip = {.src = test_address("127.7.2.99"),
				.dst = to->address,
				.src_port = 50000,
				.dst_port = VB_ROCE_PORT,
				.ip_id = 3,
				.dont_fragment = true};
	struct vb_headers h = {.opcode = vb_opcode(VB_TRANSPORT_UC, VB_OP_SEND_ONLY), .qpn = qpn};
	int n = vb_headers_encode(&h, out + 48, 64);

	memset(out, 0, 48);
	memcpy(out, &magic, 4);
	memcpy(out + 4, &ip.src_port, 2);
	memcpy(out + 6, &ip.ip_id, 2);
	memcpy(out + 8, &ip.src, 16);
	memcpy(out + 24, &ip.dst, 16);
	out[41] = 64;
	vb_icrc_store(out + 48 + n, vb_icrc_begin_bth(&ip, (size_t)n + 4, out + 48, (size_t)n));
	return 48 + (size_t)n + 4;
}

/* Anybody can send to an abstract socket; taken is only what comes from our own user. */
static void another_users_strays_are_refused(void **state)
{
	struct host *b = host_open("127.7.2.18");
	struct sockaddr_un name;
	socklen_t name_bytes = sizeof(name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), status;
	uint8_t data[256];
	size_t bytes = handed(data, b, host_qpn(b, 1));
	pid_t child;

	assert_int_equal(
		getsockname(vb_udp_of(b->carrier)->stray_fd, (struct sockaddr *)&name, &name_bytes),
		0);
	assert_int_equal(sendto(fd, data, bytes, 0, (struct sockaddr *)&name, name_bytes), bytes);
	host_wait(b, 1);
	assert_int_equal(host_counters(b).rx_handed, 1);
	/* never handed on again */
	bytes = handed(data, b, (uint32_t)(b->registry->slot % 500 + 1) << VB_SLOT_SHIFT | 1);
	assert_int_equal(sendto(fd, data, bytes, 0, (struct sockaddr *)&name, name_bytes), bytes);
	host_settle(b);
	assert_int_equal(host_counters(b).rx_handed, 1);
	bytes = handed(data, b, host_qpn(b, 1));
	child = geteuid() == 0 ? fork() : -1;
	if (child == 0)
		_exit(setuid(65534) == 0 && sendto(fd, data, bytes, 0, (struct sockaddr *)&name,
						   name_bytes) == (ssize_t)bytes
			      ? 0
			      : 1);
	if (child > 0) {
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		host_settle(b);
		assert_int_equal(host_counters(b).rx_handed, 1);
		assert_int_equal(host_counters(b).rx_unclaimed, 2);
	}
	close(fd);
	host_close(b);
}

static void hostile_strays_are_refused(void **state)
{
	struct host *b = host_open("127.7.2.14");
	struct vb_udp *udp = vb_udp_of(b->carrier);
	struct sockaddr_un name;
	socklen_t name_bytes = sizeof(name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint8_t data[20000];

	assert_int_equal(getsockname(udp->stray_fd, (struct sockaddr *)&name, &name_bytes), 0);
	for (uint32_t n = 0; n < 1000; n++) {
		size_t bytes = n % 20 == 0 ? n * 19 : n % 90;

		memset(data, (int)n, sizeof(data));
		if (n % 3 == 0) { /* as it should be, but for the ICRC */
			const uint32_t magic = 0x76627374u, qpn = htonl(host_qpn(b, 1));

			memcpy(data, &magic, 4);
			memcpy(data + 8, &b->address, 16);
			memcpy(data + 24, &b->address, 16);
			memcpy(data + 52, &qpn, 4);
		}
		assert_int_equal(sendto(fd, data, bytes, 0, (struct sockaddr *)&name, name_bytes),
				 bytes);
		if (n % 8 == 7)
			host_settle(b);
	}
	host_settle(b);
	assert_int_equal(b->packets, 0);
	assert_int_equal(host_counters(b).rx_handed, 0);
	assert_true(host_counters(b).rx_bad_icrc > 0);
	assert_int_equal(host_counters(b).rx_bad_icrc + host_counters(b).rx_short +
				 host_counters(b).rx_unclaimed,
			 1000);
	close(fd);
	host_close(b);
}

/* A forked child closes what it inherited, and the parent goes on. */
static void a_forked_child_drops_all(void **state)
{
	struct host *from = host_open("127.7.2.15"), *b = host_open("127.7.2.16");
	struct vb_path path = host_path(from, &b->address);
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		int fd = vb_udp_of(b->carrier)->address[0].rx_fd;

		vb_udp_drop_in_child(b->carrier);
		vb_registry_drop_in_child(b->registry);
		_exit(fcntl(fd, F_GETFD) == -1 && errno == EBADF ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(host_send(from, &path, host_qpn(b, 1), 0, "12345678", 8), 0);
	host_flush(from);
	host_wait(b, 1);
	host_close(b);
	host_close(from);
}

/* What a failed test left must not disturb the next one. */
static int end_workers(void **state)
{
	bystander = NULL;
	for (unsigned int i = 0; i < WORKERS; i++) {
		if (workers[i].pid)
			kill_worker(i);
	}
	return 0;
}

static int make_workers(void **state)
{
	workers = mmap(NULL, sizeof(*workers) * WORKERS, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return workers == MAP_FAILED;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(packets_reach_their_process, end_workers),
		cmocka_unit_test_teardown(mads_reach_their_process, end_workers),
		cmocka_unit_test_teardown(a_leaver_hands_on_what_waits, end_workers),
		cmocka_unit_test_teardown(nothing_is_lost_as_members_leave, end_workers),
		cmocka_unit_test_teardown(joins_and_leaves, end_workers),
		cmocka_unit_test_teardown(deaths_are_mended, end_workers),
		cmocka_unit_test_teardown(addresses_are_groups_of_their_own, end_workers),
		cmocka_unit_test_teardown(a_wrong_table_is_put_right, end_workers),
		cmocka_unit_test(late_probes_are_no_errors),
		cmocka_unit_test(probes_of_other_hosts_are_errors),
		cmocka_unit_test_teardown(an_inherited_socket_keeps_its_index, end_workers),
		cmocka_unit_test_teardown(deaths_are_seen_without_traffic, end_workers),
		cmocka_unit_test_teardown(a_held_lock_stops_no_packets, end_workers),
		cmocka_unit_test_teardown(another_users_strays_are_refused, end_workers),
		cmocka_unit_test_teardown(hostile_strays_are_refused, end_workers),
		cmocka_unit_test_teardown(a_forked_child_drops_all, end_workers),
	};

	return cmocka_run_group_tests(tests, make_workers, NULL);
}
