/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connector.c - opens many connections through librdmacm, drops them, and sees what is left behind.
 *
 *      connector [--connections N] [--rounds N] [--window N] SERVER-HOST CLIENT-HOST
 *
 * Two processes, one on each host (VERBENA_ADDR). In each round the client opens N reliable
 * connections, with at most a window of them under way, sends one message over each, and closes
 * them; the server does its part. Every other ID is destroyed at once, the rest when its timewait
 * is over. Both then compare with the round before: descriptors and heap must be no more than they
 * were, once every queue pair, ID and event is gone. The first round warms up.
 *
 * Prints the best round's rate, counted from the first address to the last established connection:
 *
 *      connections_per_second 5321.0 1/s
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define RESOLVE_MS 5000
#define PATIENCE_MS 60000 /* without any event */
#define HEAP_SLACK (64 << 10)
#define SETTLE_SECONDS 5.0
#define MESSAGE 0x12345678u

static int connections = 2000, rounds = 3, window = 64;

static void die(const char *what)
{
	fprintf(stderr, "connector: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void check(bool good, const char *what)
{
	if (!good)
		die(what);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- what a process has ------------------------------------------------------------------ */

struct holdings {
	unsigned int descriptors;
	size_t heap;
};

static struct holdings look(void)
{
	struct holdings h = {0};
	DIR *directory = opendir("/proc/self/fd");

	check(directory, "/proc/self/fd");
	while (readdir(directory))
		h.descriptors++;
	closedir(directory);
	h.heap = mallinfo2().uordblks;
	return h;
}

/* The background thread opens a file for a moment now and then: one more than before is a leak only
 * if it stays. */
static struct holdings compare(const char *who, int round, struct holdings before)
{
	const double until = seconds() + SETTLE_SECONDS;
	struct holdings now;

	do
		now = look();
	while (round > 0 && now.descriptors > before.descriptors && seconds() < until);
	if (round == 0)
		return now;
	if (now.descriptors > before.descriptors) {
		fprintf(stderr, "connector: %s, round %d: %u descriptors became %u\n", who, round,
			before.descriptors, now.descriptors);
		exit(1);
	}
	if (now.heap > before.heap + HEAP_SLACK) {
		fprintf(stderr, "connector: %s, round %d: %zu bytes of heap became %zu\n", who,
			round, before.heap, now.heap);
		exit(1);
	}
	return now;
}

/* --- one end ----------------------------------------------------------------------------- */

struct side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint32_t word[2];
	int open, established, disconnected, closed;
	int got; /* messages */
	double first, last;
	struct rdma_cm_id **ids;
};

static void side_open(struct side *s, struct ibv_context *verbs)
{
	if (s->cq)
		return;
	s->pd = ibv_alloc_pd(verbs);
	check(s->pd, "ibv_alloc_pd");
	s->cq = ibv_create_cq(verbs, connections * 2 + 16, NULL, NULL, 0);
	check(s->cq, "ibv_create_cq");
	s->mr = ibv_reg_mr(s->pd, s->word, sizeof(s->word), IBV_ACCESS_LOCAL_WRITE);
	check(s->mr, "ibv_reg_mr");
}

static void side_close(struct side *s)
{
	if (s->cq) {
		check(ibv_dereg_mr(s->mr) == 0, "ibv_dereg_mr");
		check(ibv_destroy_cq(s->cq) == 0, "ibv_destroy_cq");
		check(ibv_dealloc_pd(s->pd) == 0, "ibv_dealloc_pd");
	}
	s->cq = NULL;
}

static void make_qp(struct side *s, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 16}};
	struct ibv_sge sge = {(uintptr_t)&s->word[0], 4, 0};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	side_open(s, id->verbs);
	init.send_cq = init.recv_cq = s->cq;
	check(rdma_create_qp(id, s->pd, &init) == 0, "rdma_create_qp");
	sge.lkey = s->mr->lkey;
	check(ibv_post_recv(id->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void send_word(struct side *s, struct rdma_cm_id *id)
{
	uint32_t word = MESSAGE;
	struct ibv_sge sge = {(uintptr_t)&word, 4, 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED},
			   *bad;

	check(ibv_post_send(id->qp, &wr, &bad) == 0, "ibv_post_send");
}

static void poll_messages(struct side *s)
{
	struct ibv_wc wc[32];
	int n;

	while (s->cq && (n = ibv_poll_cq(s->cq, 32, wc)) > 0)
		for (int i = 0; i < n; i++) {
			if (wc[i].status == IBV_WC_WR_FLUSH_ERR)
				continue;
			check(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
			if (wc[i].opcode == IBV_WC_RECV) {
				check(wc[i].byte_len == 4 && s->word[0] == MESSAGE, "a message");
				s->got++;
			}
		}
}

static struct rdma_cm_event *next_event(struct side *s)
{
	struct pollfd fd = {.fd = s->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	check(poll(&fd, 1, PATIENCE_MS) == 1, "waiting for an event");
	check(rdma_get_cm_event(s->channel, &event) == 0, "rdma_get_cm_event");
	return event;
}

static void drop(struct side *s, struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	check(rdma_destroy_id(id) == 0, "rdma_destroy_id");
	s->closed++;
}

static void disconnected(struct side *s, struct rdma_cm_id *id)
{
	if (++s->disconnected % 2 && s->disconnected < connections)
		drop(s, id);
}

/* --- server ------------------------------------------------------------------------------ */

static void serve_event(struct side *s, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *id = event->id;
	enum rdma_cm_event_type type = event->event;

	check(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
	switch ((int)type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		make_qp(s, id);
		check(rdma_accept(id, &param) == 0, "rdma_accept");
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		s->established++;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		check(rdma_disconnect(id) == 0 || errno == EINVAL, "rdma_disconnect");
		poll_messages(s);
		disconnected(s, id);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		drop(s, id);
		break;
	default:
		fprintf(stderr, "connector: server: %s\n", rdma_event_str(type));
		exit(1);
	}
}

static void listen_on(struct side *s, struct sockaddr *address)
{
	check(rdma_create_id(s->channel, &s->listener, s, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_bind_addr(s->listener, address) == 0, "rdma_bind_addr");
	check(rdma_listen(s->listener, 0) == 0, "rdma_listen");
}

static void serve(struct sockaddr *address, int ready, int go)
{
	struct side s = {.channel = rdma_create_event_channel()};
	struct holdings before = {0};
	uint16_t port;
	char byte = 0;

	check(s.channel, "rdma_create_event_channel");
	listen_on(&s, address);
	port = rdma_get_src_port(s.listener);
	check(write(ready, &port, sizeof(port)) == sizeof(port), "write");
	for (int round = 0; round < rounds; round++) {
		s.established = s.disconnected = s.closed = s.got = 0;
		while (s.closed < connections)
			serve_event(&s, next_event(&s));
		check(s.established == connections, "connections were not established");
		check(s.got == connections, "messages are missing");
		side_close(&s);
		check(read(go, &byte, 1) == 1, "the client's word");
		before = compare("server", round, before);
		check(write(ready, &byte, 1) == 1, "write");
	}
	check(rdma_destroy_id(s.listener) == 0, "rdma_destroy_id");
	rdma_destroy_event_channel(s.channel);
}

/* --- client ------------------------------------------------------------------------------ */

static void begin(struct side *s, struct sockaddr *address)
{
	struct rdma_cm_id *id;

	check(rdma_create_id(s->channel, &id, s, RDMA_PS_TCP) == 0, "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, address, RESOLVE_MS) == 0, "rdma_resolve_addr");
	s->ids[s->open++] = id;
}

static void connect_event(struct side *s, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = {.responder_resources = 1,
					.initiator_depth = 1,
					.retry_count = 7,
					.rnr_retry_count = 7};
	struct rdma_cm_id *id = event->id;
	enum rdma_cm_event_type type = event->event;
	int status = event->status;

	check(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
	switch ((int)type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		check(rdma_resolve_route(id, RESOLVE_MS) == 0, "rdma_resolve_route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		make_qp(s, id);
		check(rdma_connect(id, &param) == 0, "rdma_connect");
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		send_word(s, id);
		if (++s->established == connections)
			s->last = seconds();
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		disconnected(s, id);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		drop(s, id);
		break;
	default:
		fprintf(stderr, "connector: client: %s, status %d\n", rdma_event_str(type), status);
		exit(1);
	}
}

/* The peer must have the message before the connection is closed: each was acknowledged. */
static void wait_for_sends(struct side *s)
{
	struct ibv_wc wc[32];
	double end = seconds() + PATIENCE_MS / 1000;
	int done = 0, n;

	while (done < connections && seconds() < end) {
		n = ibv_poll_cq(s->cq, 32, wc);
		for (int i = 0; i < n; i++) {
			check(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
			done += wc[i].opcode == IBV_WC_SEND;
		}
	}
	check(done == connections, "sends are missing");
}

static double connect_all(struct side *s, struct sockaddr *address)
{
	s->open = s->established = s->disconnected = s->closed = 0;
	s->first = seconds();
	while (s->established < connections) {
		while (s->open < connections && s->open - s->established < window)
			begin(s, address);
		connect_event(s, next_event(s));
	}
	wait_for_sends(s);
	for (int i = 0; i < connections; i++)
		check(rdma_disconnect(s->ids[i]) == 0, "rdma_disconnect");
	while (s->closed < connections)
		connect_event(s, next_event(s));
	side_close(s);
	return connections / (s->last - s->first);
}

static void set_port(struct addrinfo *address, uint16_t port)
{
	if (address->ai_family == AF_INET)
		((struct sockaddr_in *)(void *)address->ai_addr)->sin_port = port;
	else
		((struct sockaddr_in6 *)(void *)address->ai_addr)->sin6_port = port;
}

static void run_client(struct addrinfo *address, int ready, int go)
{
	struct side s = {.channel = rdma_create_event_channel(),
			 .ids = calloc((size_t)connections, sizeof(*s.ids))};
	struct holdings before = {0};
	double best = 0, rate;
	uint16_t port;
	char byte = 0;

	check(s.channel && s.ids, "rdma_create_event_channel");
	check(read(ready, &port, sizeof(port)) == sizeof(port), "the server's port");
	set_port(address, port);
	for (int round = 0; round < rounds; round++) {
		rate = connect_all(&s, address->ai_addr);
		best = rate > best ? rate : best;
		check(write(go, &byte, 1) == 1, "write");
		check(read(ready, &byte, 1) == 1, "the server's word");
		before = compare("client", round, before);
	}
	rdma_destroy_event_channel(s.channel);
	free(s.ids);
	printf("connections_per_second %.1f 1/s\n", best);
}

/* --- both -------------------------------------------------------------------------------- */

static struct addrinfo *resolve(const char *host)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *out;

	if (getaddrinfo(host, NULL, &hints, &out) != 0) {
		fprintf(stderr, "connector: %s is no address\n", host);
		exit(2);
	}
	return out;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {{"connections", required_argument, NULL, 'c'},
						{"rounds", required_argument, NULL, 'r'},
						{"window", required_argument, NULL, 'w'},
						{NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'c')
			connections = atoi(optarg);
		else if (c == 'r')
			rounds = atoi(optarg);
		else if (c == 'w')
			window = atoi(optarg);
		else
			exit(2);
	}
	if (argc - optind != 2 || connections < 1 || rounds < 1 || window < 1) {
		fprintf(stderr, "usage: connector [--connections N] [--rounds N] [--window N] "
				"SERVER-HOST CLIENT-HOST\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	int ready[2], go[2], status;
	struct addrinfo *address;
	pid_t server;

	parse(argc, argv);
	address = resolve(argv[optind]);
	check(pipe(ready) == 0 && pipe(go) == 0, "pipe");
	server = fork();
	check(server >= 0, "fork");
	if (server == 0) {
		close(ready[0]);
		close(go[1]);
		setenv("VERBENA_ADDR", argv[optind], 1);
		serve(address->ai_addr, ready[1], go[0]);
		return 0;
	}
	close(ready[1]);
	close(go[0]);
	setenv("VERBENA_ADDR", argv[optind + 1], 1);
	run_client(address, ready[0], go[1]);
	check(waitpid(server, &status, 0) == server, "waitpid");
	freeaddrinfo(address);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
