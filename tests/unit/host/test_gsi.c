/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_gsi.c - QP 1 of live engines: the connection manager against a plain UDP socket, between
 * processes and hosts, at exit and in forked children; agents of other classes.
 */
#include "host/engine.h"
#include "host/gsi.h"
#include "plain_peer.h"
#include "registry/ports.h"

#define EVENTS 4096

/* --- what the manager says --------------------------------------------------------------- */

struct seen {
	enum vb_cm_event_type type;
	struct vb_cm_conn *conn;
	struct vb_cm_listener *listener;
	struct vb_cm_path path;
	uint32_t qpn;
	uint16_t reason;
};

static struct seen seen[EVENTS];
static atomic_uint seen_count;
static unsigned int taken;
static int seen_fd = -1;

static bool on_cm_event(struct vb_engine *engine, const struct vb_cm_event *event)
{
	unsigned int n = atomic_load(&seen_count);
	const uint64_t one = 1;
	struct seen *s = &seen[n % EVENTS];

	*s = (struct seen){.type = event->type, .conn = event->conn, .listener = event->listener};
	if (event->path)
		s->path = *event->path;
	if (event->type == VB_CM_REQ_RECEIVED)
		s->qpn = event->req->qpn;
	if (event->type == VB_CM_REP_RECEIVED)
		s->qpn = event->rep->qpn;
	if (event->type == VB_CM_REJ_RECEIVED)
		s->reason = event->rej->reason;
	atomic_store(&seen_count, n + 1);
	REQUIRE(write(seen_fd, &one, sizeof(one)) == sizeof(one));
	return true;
}

static struct seen any_event(void)
{
	struct pollfd wait = {.fd = seen_fd, .events = POLLIN};
	uint64_t count;

	while (taken == atomic_load(&seen_count)) {
		REQUIRE(poll(&wait, 1, PATIENCE_MS) == 1);
		REQUIRE(read(seen_fd, &count, sizeof(count)) == sizeof(count));
	}
	return seen[taken++ % EVENTS];
}

static struct seen next_event(enum vb_cm_event_type type)
{
	struct seen s = any_event();

	if (s.type != type)
		fprintf(stderr, "event %d (%u) where %d was expected\n", s.type, s.reason, type);
	REQUIRE(s.type == type);
	return s;
}

/* --- sides ------------------------------------------------------------------------------- */

static struct vb_cm *enter(struct vb_engine *engine)
{
	struct vb_cm *cm;

	REQUIRE(vb_engine_enter(engine));
	cm = vb_engine_cm(engine);
	REQUIRE(cm);
	return cm;
}

static struct vb_engine *open_with_cm(void)
{
	if (seen_fd < 0)
		seen_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	REQUIRE(seen_fd >= 0);
	vb_host_set_cm_handler(on_cm_event);
	return open_first();
}

static struct vb_cm_listener *listen_on(struct vb_engine *engine, uint16_t port)
{
	struct vb_cm_listener *listener;
	const unsigned int families = VB_PORT_IPV4 | VB_PORT_IPV6;

	REQUIRE(vb_engine_port_claim(engine, VB_PS_TCP, families, &port) == 0);
	REQUIRE(vb_cm_listen(enter(engine), 0x01060000u | port, NULL, NULL, &listener) == 0);
	vb_engine_leave(engine);
	vb_engine_port_set_listening(engine, VB_PS_TCP, families, port, true);
	return listener;
}

static void reply_with(struct vb_engine *engine, struct vb_cm_conn *conn, uint32_t qpn)
{
	const struct vb_cm_rep rep = {.qpn = qpn, .psn = 1, .responder_resources = 1};

	enter(engine);
	REQUIRE(vb_cm_send_rep(conn, &rep, vb_engine_now()) == 0);
	vb_engine_leave(engine);
}

static void reply(struct vb_engine *engine, struct vb_cm_conn *conn)
{
	reply_with(engine, conn, 0x77);
}

static void disconnect(struct vb_engine *engine, struct vb_cm_conn *conn)
{
	enter(engine);
	REQUIRE(vb_cm_send_dreq(conn, NULL, 0, vb_engine_now()) == 0);
	vb_engine_leave(engine);
}

static void end(struct vb_engine *engine, struct vb_cm_conn *conn)
{
	enter(engine);
	vb_cm_conn_destroy(conn, vb_engine_now());
	vb_engine_leave(engine);
}

static struct vb_cm_conn *request(struct vb_engine *engine, const char *to, uint16_t port,
				  uint32_t qpn)
{
	const struct vb_device *device = vb_engine_device(engine);
	struct in_addr address;
	uint8_t ip_header[36] = {0, 0x40};
	struct vb_cm_path path = {.ah = {.sgid_index = 1, .port_num = 1}};
	struct vb_cm_req req = {
		.service_id = 0x01060000u | port,
		.qpn = qpn,
		.psn = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.pkey = 0xffff,
		.path_mtu = 1024,
		.ack_timeout = 14,
		.remote_cm_timeout = 20,
		.local_cm_timeout = 20,
		.max_cm_retries = 15,
		.private_data = ip_header,
		.private_data_len = sizeof(ip_header),
	};
	struct vb_cm_conn *conn;

	REQUIRE(inet_pton(AF_INET, to, &address) == 1);
	path.ah.dgid = vb_address_from_ipv4(address);
	req.sgid = device->gids[1].gid;
	req.dgid = path.ah.dgid;
	conn = vb_cm_conn_create(enter(engine), NULL);
	REQUIRE(conn);
	REQUIRE(vb_cm_send_req(conn, &path, &req, vb_engine_now()) == 0);
	vb_engine_leave(engine);
	return conn;
}

/* --- a plain socket ---------------------------------------------------------------------- */

static void expect_refusal(struct plain_peer *peer, uint32_t id)
{
	uint8_t mad[256];

	plain_receive(peer, mad);
	REQUIRE(mad[1] == 7 && mad[2] == 2 && mad[3] == 3);
	REQUIRE(get32(mad + 8) == id && get32(mad + 12) == 1); /* the request's transaction */
	REQUIRE(get16(mad + 16) == 0x12);		       /* REJ */
	REQUIRE(get32(mad + 28) == id);
	REQUIRE(get16(mad + 34) == 8); /* invalid service ID */
}

static void refuses(struct side *side)
{
	struct vb_engine *engine = open_first();
	struct plain_peer peer = plain_open("127.46.1.2", "127.46.1.1");
	uint8_t mad[256];

	for (uint32_t id = 0x1234; id < 0x1240; id++) {
		plain_req(&peer, mad, id, 7471);
		plain_send(&peer, mad);
		expect_refusal(&peer, id);
	}
	plain_close(&peer);
	vb_engine_put(engine);
}

/* Nobody polls, and no program has ever used the manager. */
static void a_request_to_nobody_is_refused(void **state)
{
	run_alone(refuses, "127.46.1.1");
}

static void *asks(void *arg)
{
	struct plain_peer peer = plain_open("127.46.1.4", "127.46.1.3");
	uint8_t mad[256];

	for (uint32_t id = 1; id <= 20; id++) {
		plain_req(&peer, mad, id, 7471);
		plain_send(&peer, mad);
		expect_refusal(&peer, id);
	}
	plain_close(&peer);
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

static void refuses_while_polling(struct side *side)
{
	atomic_bool done = false;
	struct vb_cqe cqe;
	pthread_t thread;

	side_open(side);
	REQUIRE(pthread_create(&thread, NULL, asks, &done) == 0);
	while (!atomic_load(&done))
		REQUIRE(vb_engine_poll_cq(side->engine, side->cq, &cqe, 1) == 0);
	REQUIRE(pthread_join(thread, NULL) == 0);
	side_close(side);
}

/* Polls leave the sockets out where no queue pair is connected over them. */
static void it_is_refused_while_the_program_polls(void **state)
{
	run_alone(refuses_while_polling, "127.46.1.3");
}

static void drops_what_is_wrong(struct side *side)
{
	struct vb_engine *engine = open_first();
	const struct vb_counters *c = &vb_engine_nic(engine)->counters;
	struct plain_peer peer = plain_open("127.46.1.6", "127.46.1.5");
	uint8_t mad[256], packet[PACKET_BYTES + 8];
	size_t bytes;

	plain_req(&peer, mad, 9, 7471);
	for (int fault = 0; fault < 8; fault++) {
		memset(packet, 0, sizeof(packet));
		bytes = plain_wrap(&peer, mad, packet);
		switch (fault) {
		case 0: /* the Q_Key of RDMA CM's own datagrams */
			put32(packet + 12, 0x01234567);
			break;
		case 1:
			put16(packet + 2, 0x8001);
			break;
		case 2: /* RC SEND_ONLY, whose 8 bytes more are payload */
			packet[0] = 0x04;
			memmove(packet + 12, packet + 20, 256);
			bytes -= 8;
			break;
		case 3: /* another transport header version */
			packet[1] = 1;
			break;
		case 4: /* a pad */
			packet[1] = 1 << 4;
			break;
		case 5:
			bytes -= 4;
			break;
		case 6:
			bytes += 4;
			break;
		case 7: /* a MAD of another version */
			packet[MAD_AT] = 2;
			break;
		}
		plain_send_packet(&peer, packet, bytes);
	}
	plain_req(&peer, mad, 10, 7471);
	plain_send(&peer, mad);
	expect_refusal(&peer, 10);
	REQUIRE(plain_is_silent(&peer));
	REQUIRE(vb_engine_enter(engine));
	REQUIRE(c->rx_wrong_qkey == 1);
	REQUIRE(c->rx_wrong_pkey == 1);
	REQUIRE(c->rx_wrong_transport == 1);
	REQUIRE(c->rx_malformed == 5);
	vb_engine_leave(engine);
	plain_close(&peer);
	vb_engine_put(engine);
}

static void wrong_packets_are_dropped(void **state)
{
	run_alone(drops_what_is_wrong, "127.46.1.5");
}

/* --- processes of one host --------------------------------------------------------------- */

/* Listens on a port of its own; the plain peer, in the other process, connects and goes. */
static void serves(struct vb_engine *engine, struct side *side, unsigned int connections)
{
	for (unsigned int i = 0; i < connections; i++) {
		struct seen s = next_event(VB_CM_REQ_RECEIVED);
		struct in6_addr from;

		REQUIRE(inet_pton(AF_INET6, "::ffff:127.46.2.2", &from) == 1);
		REQUIRE(memcmp(&s.path.ah.dgid, &from, sizeof(from)) == 0);
		REQUIRE(s.path.ah.sgid_index == 1);
		reply(engine, s.conn);
		REQUIRE(next_event(VB_CM_ESTABLISHED).conn == s.conn);
		REQUIRE(next_event(VB_CM_DREQ_RECEIVED).conn == s.conn);
		end(engine, s.conn);
	}
	meet(side);
	REQUIRE(taken == atomic_load(&seen_count)); /* and nothing of the other's */
}

static void connects_and_goes(struct plain_peer *peer, uint32_t id, uint16_t port)
{
	uint64_t tid = (uint64_t)id << 32 | 1;
	uint8_t mad[256];
	uint32_t theirs;

	plain_req(peer, mad, id, port);
	plain_send(peer, mad);
	plain_receive(peer, mad);
	REQUIRE(get16(mad + 16) == 0x13); /* REP */
	REQUIRE(get32(mad + 28) == id);
	REQUIRE(get32(mad + 36) >> 8 == 0x77); /* its QPN */
	theirs = get32(mad + 24);
	plain_short(mad, 0x14, tid, id, theirs); /* RTU */
	plain_send(peer, mad);
	plain_short(mad, 0x15, tid + 1, id, theirs); /* DREQ */
	put32(mad + 32, 0x77 << 8);
	plain_send(peer, mad);
	plain_receive(peer, mad);
	REQUIRE(get16(mad + 16) == 0x16); /* DREP */
	REQUIRE(get32(mad + 28) == id && get32(mad + 24) == theirs);
}

#define ROUNDS_EACH 25

static void first_of_two(struct side *side)
{
	struct vb_engine *engine = open_with_cm();

	listen_on(engine, 7001);
	meet(side);
	serves(engine, side, ROUNDS_EACH);
	vb_engine_put(engine);
}

static void *drives(void *arg)
{
	struct plain_peer peer = plain_open("127.46.2.2", "127.46.2.1");

	for (uint32_t i = 0; i < 2 * ROUNDS_EACH; i++)
		connects_and_goes(&peer, 0x100 + i, (uint16_t)(7001 + i % 2));
	plain_close(&peer);
	return NULL;
}

static void second_of_two(struct side *side)
{
	struct vb_engine *engine = open_with_cm();
	pthread_t thread;

	listen_on(engine, 7002);
	meet(side);
	REQUIRE(pthread_create(&thread, NULL, drives, NULL) == 0);
	serves(engine, side, ROUNDS_EACH);
	REQUIRE(pthread_join(thread, NULL) == 0);
	vb_engine_put(engine);
}

static void each_process_gets_its_own(void **state)
{
	run_pair(first_of_two, "127.46.2.1", second_of_two, "127.46.2.1", 1);
}

static void has_the_port(struct side *side)
{
	struct vb_engine *engine = open_with_cm();
	uint16_t port = 7000;

	listen_on(engine, 7000);
	REQUIRE(vb_engine_port_claim(engine, VB_PS_TCP, VB_PORT_IPV4, &port) == 0);
	meet(side);
	meet(side);
	vb_engine_port_release(engine, VB_PS_TCP, VB_PORT_IPV4, 7000);
	vb_engine_put(engine);
}

static void wants_the_port(struct side *side)
{
	struct vb_engine *engine = open_first();
	uint16_t port = 7000;

	meet(side);
	REQUIRE(vb_engine_port_claim(engine, VB_PS_TCP, VB_PORT_IPV4, &port) == -EADDRINUSE);
	REQUIRE(vb_engine_port_claim(engine, VB_PS_TCP, VB_PORT_IPV6, &port) == -EADDRINUSE);
	port = 0;
	REQUIRE(vb_engine_port_claim(engine, VB_PS_TCP, VB_PORT_IPV4, &port) == 0 && port >= 32768);
	meet(side);
	vb_engine_put(engine);
}

static void ports_are_the_hosts(void **state)
{
	run_pair(has_the_port, "127.46.2.3", wants_the_port, "127.46.2.3", 1);
}

/* --- between engines --------------------------------------------------------------------- */

static char passive_address[32];

static void passive(struct side *side)
{
	struct vb_engine *engine = open_with_cm();
	struct seen s;

	listen_on(engine, 7000);
	meet(side);
	for (uint32_t i = 0; i < 10; i++) {
		s = next_event(VB_CM_REQ_RECEIVED);
		REQUIRE(s.qpn == 100 + i);
		reply(engine, s.conn);
		REQUIRE(next_event(VB_CM_ESTABLISHED).conn == s.conn);
		if (i % 2) {
			REQUIRE(next_event(VB_CM_DREQ_RECEIVED).conn == s.conn);
		} else {
			disconnect(engine, s.conn);
			REQUIRE(next_event(VB_CM_DREP_RECEIVED).conn == s.conn);
		}
		end(engine, s.conn);
	}
	meet(side);
	vb_engine_put(engine);
}

static void active(struct side *side)
{
	struct vb_engine *engine = open_with_cm();
	struct vb_cm_conn *conn;

	meet(side);
	conn = request(engine, passive_address, 7999, 5);
	REQUIRE(next_event(VB_CM_REJ_RECEIVED).reason == VB_CM_REJ_INVALID_SERVICE_ID);
	end(engine, conn);
	for (uint32_t i = 0; i < 10; i++) {
		conn = request(engine, passive_address, 7000, 100 + i);
		REQUIRE(next_event(VB_CM_REP_RECEIVED).qpn == 0x77);
		enter(engine);
		REQUIRE(vb_cm_send_rtu(conn, NULL, 0, vb_engine_now()) == 0);
		vb_engine_leave(engine);
		if (i % 2) {
			disconnect(engine, conn);
			next_event(VB_CM_DREP_RECEIVED);
		} else {
			next_event(VB_CM_DREQ_RECEIVED);
		}
		end(engine, conn);
	}
	meet(side);
	vb_engine_put(engine);
}

static void run_connection(const char *active_at, const char *passive_at)
{
	snprintf(passive_address, sizeof(passive_address), "%s", passive_at);
	run_pair(active, active_at, passive, passive_at, 1);
}

static void two_hosts_connect(void **state)
{
	run_connection("127.46.3.1", "127.46.3.2");
}

static void two_processes_of_a_host_connect(void **state)
{
	run_connection("127.46.3.3", "127.46.3.3");
	setenv("VERBENA_LOCAL", "0", 1);
	run_connection("127.46.3.4", "127.46.3.4");
	unsetenv("VERBENA_LOCAL");
}

static void with_itself(struct side *side)
{
	struct vb_engine *engine = open_with_cm();
	struct vb_cm_conn *conn, *other;

	listen_on(engine, 7000);
	conn = request(engine, "127.46.3.5", 7000, 100);
	other = next_event(VB_CM_REQ_RECEIVED).conn;
	reply(engine, other);
	REQUIRE(next_event(VB_CM_REP_RECEIVED).conn == conn);
	enter(engine);
	REQUIRE(vb_cm_send_rtu(conn, NULL, 0, vb_engine_now()) == 0);
	vb_engine_leave(engine);
	REQUIRE(next_event(VB_CM_ESTABLISHED).conn == other);
	disconnect(engine, conn);
	REQUIRE(next_event(VB_CM_DREQ_RECEIVED).conn == other);
	end(engine, other);
	REQUIRE(next_event(VB_CM_DREP_RECEIVED).conn == conn);
	end(engine, conn);
	vb_engine_put(engine);
}

static void a_process_connects_with_itself(void **state)
{
	run_alone(with_itself, "127.46.3.5");
}

/* --- many -------------------------------------------------------------------------------- */

#define MANY 1000

/* All at once, while nobody takes them: more MADs than a ring holds. None may be lost, since the
 * manager repeats after seconds: counted are its retries. And then nothing is left to be woken for.
 */
static void many_passive(struct side *side)
{
	struct vb_engine *engine = open_with_cm();
	struct vb_cm_counters counters;
	int established = 0;

	listen_on(engine, 7000);
	REQUIRE(vb_engine_enter(engine));
	meet(side);
	meet(side); /* every REQ has been sent */
	vb_engine_leave(engine);
	while (established < MANY) {
		struct seen event = any_event();

		if (event.type == VB_CM_REQ_RECEIVED) {
			reply_with(engine, event.conn, event.qpn + 5000);
		} else {
			REQUIRE(event.type == VB_CM_ESTABLISHED);
			established++;
		}
	}
	vb_cm_read_counters(enter(engine), &counters);
	REQUIRE(vb_gsi_deadline(engine) == VB_NEVER);
	vb_engine_leave(engine);
	REQUIRE(counters.retries == 0);
	meet(side);
	for (int i = 0; i < MANY; i++) {
		struct seen s = next_event(VB_CM_DREQ_RECEIVED);

		end(engine, s.conn);
	}
	meet(side);
	vb_engine_put(engine);
}

static void many_active(struct side *side)
{
	struct vb_engine *engine = open_with_cm();
	struct vb_cm_counters counters;
	struct vb_gsi_counters gsi;

	meet(side);
	for (uint32_t i = 0; i < MANY; i++)
		request(engine, passive_address, 7000, 100 + i);
	meet(side);
	for (int i = 0; i < MANY; i++) {
		struct seen s = next_event(VB_CM_REP_RECEIVED);

		enter(engine);
		REQUIRE(vb_cm_send_rtu(s.conn, NULL, 0, vb_engine_now()) == 0);
		vb_engine_leave(engine);
	}
	meet(side); /* every RTU has arrived */
	vb_cm_read_counters(enter(engine), &counters);
	vb_gsi_read_counters(engine, &gsi);
	REQUIRE(vb_gsi_deadline(engine) == VB_NEVER);
	vb_engine_leave(engine);
	REQUIRE(counters.retries == 0);
	REQUIRE(counters.connections == MANY);
	REQUIRE(gsi.tx_dropped == 0 && gsi.queued == 0);
	REQUIRE(gsi.tx_mads == 2 * MANY);
	vb_engine_put(engine); /* tells all of them */
	meet(side);
}

static void a_thousand_at_once(void **state)
{
	strcpy(passive_address, "127.46.4.1");
	run_pair(many_active, "127.46.4.1", many_passive, "127.46.4.1", 1);
	strcpy(passive_address, "127.46.4.3");
	run_pair(many_active, "127.46.4.2", many_passive, "127.46.4.3", 1);
}

/* --- ends -------------------------------------------------------------------------------- */

static struct vb_cm_conn *be_connected(struct side *side, struct vb_engine *engine)
{
	struct vb_cm_conn *conn;

	meet(side);
	conn = request(engine, passive_address, 7000, 100);
	next_event(VB_CM_REP_RECEIVED);
	enter(engine);
	REQUIRE(vb_cm_send_rtu(conn, NULL, 0, vb_engine_now()) == 0);
	vb_engine_leave(engine);
	meet(side);
	return conn;
}

static struct vb_engine *polled;

static void *polls_for_ever(void *arg)
{
	struct vb_cqe cqe;

	for (;;)
		vb_engine_poll_cq(polled, arg, &cqe, 1);
	return NULL;
}

static void exits(struct side *side)
{
	struct vb_engine *engine = open_with_cm();
	pthread_t thread;
	struct vb_cq *cq;

	be_connected(side, engine);
	REQUIRE(vb_engine_enter(engine));
	cq = vb_cq_create(vb_engine_nic(engine), 16, NULL);
	REQUIRE(cq);
	vb_engine_leave(engine);
	polled = engine;
	REQUIRE(pthread_create(&thread, NULL, polls_for_ever, cq) == 0);
}

static void puts_last(struct side *side)
{
	struct vb_engine *engine = open_with_cm();

	be_connected(side, engine);
	vb_engine_put(engine);
}

/* A child ends as it likes, having dropped its copy, and its parent's peer hears nothing; what it
 * does with the parent's engine fails. */
static void forks(struct side *side)
{
	struct vb_engine *engine = open_with_cm();
	static const uint32_t none[4];
	struct vb_gsi_agent *agent, *another;
	uint16_t port = 80;
	int status;
	pid_t pid;

	be_connected(side, engine);
	REQUIRE(vb_gsi_agent_create(engine, 0x30, 1, none, NULL, NULL, &agent) == 0);
	pid = fork();
	if (pid == 0) {
		struct vb_engine *own;

		REQUIRE(!vb_engine_enter(engine));
		REQUIRE(vb_engine_port_claim(engine, VB_PS_TCP, VB_PORT_IPV4, &port) == -EIO);
		vb_engine_port_release(engine, VB_PS_TCP, VB_PORT_IPV4, 7000);
		REQUIRE(vb_gsi_agent_create(engine, 0x30, 1, none, NULL, NULL, &another) == -EIO);
		vb_gsi_agent_destroy(agent);
		vb_engine_put(engine);
		own = open_with_cm();
		enter(own);
		vb_engine_leave(own);
		vb_engine_put(own);
		_exit(0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	meet(side);
	meet(side); /* nothing was heard */
	vb_gsi_agent_destroy(agent);
	vb_engine_put(engine);
}

static bool peer_forks;

static void hears_the_end(struct side *side)
{
	struct vb_engine *engine = open_with_cm();
	struct vb_cm_conn *conn;

	listen_on(engine, 7000);
	meet(side);
	conn = next_event(VB_CM_REQ_RECEIVED).conn;
	reply(engine, conn);
	REQUIRE(next_event(VB_CM_ESTABLISHED).conn == conn);
	meet(side);
	if (peer_forks) {
		meet(side);
		REQUIRE(vb_engine_enter(engine));
		vb_engine_run(engine, true); /* whatever the child said is here by now */
		vb_engine_leave(engine);
		REQUIRE(taken == atomic_load(&seen_count));
		meet(side);
	}
	REQUIRE(next_event(VB_CM_DREQ_RECEIVED).conn == conn);
	end(engine, conn);
	vb_engine_put(engine);
}

static void peers_are_told_at_the_end(void **state)
{
	static side_fn *const ways[] = {exits, puts_last};

	for (size_t i = 0; i < VB_ARRAY_SIZE(ways); i++) {
		strcpy(passive_address, "127.46.5.1");
		run_pair(ways[i], "127.46.5.1", hears_the_end, "127.46.5.1", 1);
		strcpy(passive_address, "127.46.5.2");
		run_pair(ways[i], "127.46.5.3", hears_the_end, "127.46.5.2", 1);
	}
}

static void a_forked_childs_end_tells_nobody(void **state)
{
	peer_forks = true;
	strcpy(passive_address, "127.46.5.4");
	run_pair(forks, "127.46.5.4", hears_the_end, "127.46.5.4", 1);
	run_pair(forks, "127.46.5.5", hears_the_end, "127.46.5.4", 1);
	peer_forks = false;
}

/* --- agents ------------------------------------------------------------------------------ */

struct inbox {
	atomic_uint count;
	struct vb_gsi_rx rx;
	uint8_t mad[256];
	int fd;
};

static void into_inbox(void *env, const struct vb_gsi_rx *rx)
{
	struct inbox *inbox = env;
	const uint64_t one = 1;

	inbox->rx = *rx;
	memcpy(inbox->mad, rx->mad, 256);
	atomic_fetch_add(&inbox->count, 1);
	REQUIRE(write(inbox->fd, &one, sizeof(one)) == sizeof(one));
}

static void wait_for_mail(struct inbox *inbox)
{
	struct pollfd wait = {.fd = inbox->fd, .events = POLLIN};
	uint64_t count;

	REQUIRE(poll(&wait, 1, PATIENCE_MS) == 1);
	REQUIRE(read(inbox->fd, &count, sizeof(count)) == sizeof(count));
}

#define VENDOR_CLASS 0x0a /* of the first range of vendor classes */

static void make_vendor(uint8_t mad[256], uint8_t method, uint32_t tid_high, uint32_t tid_low)
{
	memset(mad, 0, 256);
	mad[0] = 1;
	mad[1] = VENDOR_CLASS;
	mad[2] = 1;
	mad[3] = method;
	put32(mad + 8, tid_high);
	put32(mad + 12, tid_low);
}

static void answers_gets(struct side *side)
{
	static const uint32_t gets[4] = {1u << 1}, sends[4] = {1u << 3}, both[4] = {0xa},
			      last[4] = {0, 0, 0, 1u << 31};
	struct vb_engine *engine = open_first();
	struct vb_gsi_agent *agent, *another;
	struct inbox inbox = {.fd = eventfd(0, EFD_CLOEXEC)};

	REQUIRE(vb_gsi_agent_create(engine, VENDOR_CLASS, 1, gets, into_inbox, &inbox, &agent) ==
		0);
	REQUIRE(vb_gsi_agent_create(engine, VENDOR_CLASS, 1, both, into_inbox, &inbox, &another) ==
		-EBUSY);
	REQUIRE(vb_gsi_agent_create(engine, 7, 2, gets, into_inbox, &inbox, &another) == -EBUSY);
	REQUIRE(vb_gsi_agent_create(engine, VENDOR_CLASS, 2, both, into_inbox, &inbox, &another) ==
		0);
	vb_gsi_agent_destroy(another);
	REQUIRE(vb_gsi_agent_create(engine, VENDOR_CLASS, 1, sends, into_inbox, &inbox, &another) ==
		0);
	vb_gsi_agent_destroy(another);
	REQUIRE(vb_gsi_agent_create(engine, VENDOR_CLASS, 1, last, into_inbox, &inbox, &another) ==
		0);
	vb_gsi_agent_destroy(another);
	vb_gsi_agent_destroy(NULL);
	meet(side);
	for (int i = 0; i < 5; i++) {
		wait_for_mail(&inbox);
		REQUIRE(inbox.mad[3] == 1 && inbox.mad[200] == i);
		REQUIRE(inbox.rx.src_qpn == 1 && inbox.rx.qkey == 0x80010000);
		inbox.mad[3] = 0x81;
		inbox.mad[201] = 99;
		REQUIRE(vb_gsi_send(engine, &inbox.rx.path, inbox.rx.src_qpn, inbox.rx.qkey,
				    inbox.mad) == 0);
	}
	meet(side);
	REQUIRE(atomic_load(&inbox.count) == 5);
	vb_gsi_agent_destroy(agent);
	vb_engine_put(engine);
}

static void gets(struct side *side)
{
	static const uint32_t none[4];
	struct vb_engine *engine = open_first();
	struct vb_gsi_agent *agent, *bystander;
	struct inbox inbox = {.fd = eventfd(0, EFD_CLOEXEC)};
	struct vb_cm_path path = {.ah = {.sgid_index = 1}};
	struct in6_addr group;
	uint8_t mad[256];

	REQUIRE(inet_pton(AF_INET6, "::ffff:239.1.1.1", &group) == 1);
	REQUIRE(vb_gsi_agent_create(engine, VENDOR_CLASS, 1, none, into_inbox, &inbox,
				    &bystander) == 0);
	REQUIRE(vb_gsi_agent_create(engine, VENDOR_CLASS, 1, none, into_inbox, &inbox, &agent) ==
		0);
	REQUIRE(vb_gsi_agent_tid(agent) != vb_gsi_agent_tid(bystander));
	REQUIRE(vb_gsi_agent_tid(agent) >> 23 ==
		vb_engine_nic(engine)->config.qpn_base >> 15); /* the slot */
	meet(side);
	path.ah.dgid = group;
	make_vendor(mad, 1, vb_gsi_agent_tid(agent), 0);
	REQUIRE(vb_gsi_send(engine, &path, 1, 0x80010000, mad) == -EINVAL);
	REQUIRE(inet_pton(AF_INET6, passive_address, &path.ah.dgid) == 1);
	REQUIRE(vb_gsi_send(engine, &path, 0, 0x80010000, mad) == -EINVAL);
	REQUIRE(vb_gsi_send(engine, &path, 0xffffff, 0x80010000, mad) == -EINVAL);
	for (uint8_t i = 0; i < 5; i++) {
		make_vendor(mad, 1, vb_gsi_agent_tid(agent), i);
		mad[200] = i;
		REQUIRE(vb_gsi_send(engine, &path, 1, 0x80010000, mad) == 0);
		wait_for_mail(&inbox);
		REQUIRE(inbox.mad[3] == 0x81 && inbox.mad[200] == i && inbox.mad[201] == 99);
		REQUIRE(get32(inbox.mad + 8) == vb_gsi_agent_tid(agent));
		REQUIRE(get32(inbox.mad + 12) == i);
	}
	make_vendor(mad, 1, vb_gsi_agent_tid(agent), 5); /* the port's counters: no agent needed */
	mad[1] = 4;
	put16(mad + 16, 0x01); /* ClassPortInfo */
	REQUIRE(vb_gsi_send(engine, &path, 1, 0x80010000, mad) == 0);
	wait_for_mail(&inbox);
	REQUIRE(inbox.mad[1] == 4 && inbox.mad[3] == 0x81 && get16(inbox.mad + 4) == 0);
	REQUIRE(inbox.mad[64] == 1); /* its base version */
	meet(side);
	REQUIRE(atomic_load(&inbox.count) == 6);
	vb_gsi_agent_destroy(bystander);
	vb_gsi_agent_destroy(agent);
	vb_engine_put(engine);
}

static void agents_ask_and_answer(void **state)
{
	strcpy(passive_address, "::ffff:127.46.6.1");
	run_pair(gets, "127.46.6.2", answers_gets, "127.46.6.1", 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_to_nobody_is_refused),
		cmocka_unit_test(it_is_refused_while_the_program_polls),
		cmocka_unit_test(wrong_packets_are_dropped),
		cmocka_unit_test(each_process_gets_its_own),
		cmocka_unit_test(ports_are_the_hosts),
		cmocka_unit_test(two_hosts_connect),
		cmocka_unit_test(two_processes_of_a_host_connect),
		cmocka_unit_test(a_process_connects_with_itself),
		cmocka_unit_test(a_thousand_at_once),
		cmocka_unit_test(peers_are_told_at_the_end),
		cmocka_unit_test(a_forked_childs_end_tells_nobody),
		cmocka_unit_test(agents_ask_and_answer),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
