/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mover.c - pairs of processes move checked data through every operation, at once.
 *
 *      mover [--pairs N] [OPTION...] ADDRESS_A ADDRESS_B
 *      mover --port PORT [OPTION...]              one process, the server of a pair
 *      mover --port PORT [OPTION...] ADDRESS      its client, perhaps on another machine
 *      options: --rounds N, --seed S, --gid INDEX, --mtu BYTES, --tries N, --only RC|UC|UD,
 *               --longest BYTES
 *
 * Starts N processes on host A and N on host B (the same address twice: one host), or is itself one
 * process of a pair, which finds the other by TCP. Each pair has an RC, a UC and a UD queue pair,
 * and goes through every operation with lengths and alignments that are odd, in scattered pieces on
 * both sides. What arrives is compared byte for byte with a pattern that is a function of the
 * transfer's number and the offset; bytes around it must stay as they were. Prints one line a pair
 * and "N passed, M failed"; exit status 0 when all passed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (4u << 20)
#define GUARD 64u /* bytes before and after a transfer that must not change */
#define GUARD_BYTE 0xa5
#define PIECES 4
#define QKEY 0x1ee7u
#define WAIT_SECONDS 30.0
#define LOST_SECONDS 2.0
#define MOST_PAIRS 64
#define UD_HEADER 40u

struct options {
	int pairs, rounds, gid_index, port;
	uint32_t mtu;
	int tries;	  /* of a UC or UD transfer: packets may be lost */
	const char *only; /* a kind's name, or NULL: all */
	uint32_t longest;
	uint64_t seed;
};

enum kind { RC, UC, UD, KINDS };
static const enum ibv_qp_type qp_types[KINDS] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
static const char *const kind_names[KINDS] = {"RC", "UC", "UD"};

struct peer_info {
	uint32_t qpn[KINDS], psn;
	uint64_t addr;
	uint32_t rkey;
	union ibv_gid gid;
};

struct host {
	int control; /* a stream socket to the other process of the pair */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp[KINDS];
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	uint8_t *buffer;
	struct peer_info mine, peer;
	const struct options *options;
	uint64_t seed;
};

/* One transfer, told by the client to the server before it happens. */
struct transfer {
	uint32_t number;
	uint32_t kind, opcode;
	uint32_t length;
	uint32_t offset; /* in both buffers */
	bool last;	 /* no transfer: the end */
};

static void die(const char *what)
{
	fprintf(stderr, "mover: process %d: %s: %s\n", (int)getpid(), what, strerror(errno));
	exit(1);
}

#define MUST(condition, what)                                                                      \
	do {                                                                                       \
		if (!(condition))                                                                  \
			die(what);                                                                 \
	} while (0)

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint8_t pattern(const struct host *host, uint32_t number, uint32_t offset)
{
	uint64_t x = host->seed ^ ((uint64_t)number << 32 | offset);

	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
	return (uint8_t)(x >> 56);
}

static void fill(const struct host *host, const struct transfer *t, uint8_t *at)
{
	for (uint32_t i = 0; i < t->length; i++)
		at[i] = pattern(host, t->number, i);
}

static bool is_guard(const uint8_t *at, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		if (at[i] != GUARD_BYTE)
			return false;
	return true;
}

static bool check(const struct host *host, const struct transfer *t, const uint8_t *at)
{
	for (uint32_t i = 0; i < t->length; i++)
		if (at[i] != pattern(host, t->number, i)) {
			fprintf(stderr, "mover: transfer %u: byte %u of %u is wrong\n", t->number,
				i, t->length);
			return false;
		}
	if (is_guard(at - GUARD, GUARD) && is_guard(at + t->length, GUARD))
		return true;
	fprintf(stderr, "mover: transfer %u: bytes around it have changed\n", t->number);
	return false;
}

/* --- the two ends ------------------------------------------------------------------------ */

static void tell(int fd, const void *data, size_t size)
{
	MUST(send(fd, data, size, MSG_NOSIGNAL) == (ssize_t)size, "control send");
}

static void hear(int fd, void *data, size_t size)
{
	MUST(recv(fd, data, size, MSG_WAITALL) == (ssize_t)size, "control receive");
}

static enum ibv_mtu path_mtu(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && 128u << mtu < bytes)
		mtu++;
	return mtu;
}

static void to_rts(struct host *host, enum kind kind)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct ibv_qp *qp = host->qp[kind];
	int connected =
		kind == UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int rtr = kind == RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
	int rts = kind == RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_MAX_QP_RD_ATOMIC
			     : 0;

	MUST(ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				   (kind == UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0,
	     "to INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = path_mtu(host->options->mtu),
		.dest_qp_num = host->peer.qpn[kind],
		.rq_psn = host->peer.psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = host->peer.gid,
				    .sgid_index = (uint8_t)host->options->gid_index,
				    .hop_limit = 64}},
	};
	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE | connected | rtr) == 0, "to RTR");
	if (kind == UD)
		host->ah = ibv_create_ah(host->pd, &attr.ah_attr);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = host->mine.psn,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	MUST(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | rts) == 0, "to RTS");
}

static void open_host(struct host *host)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0], "no device");
	host->context = ibv_open_device(list[0]);
	MUST(host->context, "open");
	ibv_free_device_list(list);
	host->pd = ibv_alloc_pd(host->context);
	host->cq = ibv_create_cq(host->context, 64, NULL, NULL, 0);
	host->buffer =
		mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(host->pd && host->cq && host->buffer != MAP_FAILED, "resources");
	host->mr = ibv_reg_mr(host->pd, host->buffer, BUFFER,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	MUST(host->mr, "register");
	host->mine.addr = (uintptr_t)host->buffer;
	host->mine.rkey = host->mr->rkey;
	host->mine.psn = (uint32_t)(host->seed * 2654435761u) & 0xffffff;
	MUST(ibv_query_gid(host->context, 1, host->options->gid_index, &host->mine.gid) == 0,
	     "gid");
	for (enum kind k = RC; k < KINDS; k++) {
		struct ibv_qp_init_attr init = {
			.send_cq = host->cq,
			.recv_cq = host->cq,
			.cap = {16, 16, PIECES + 1, PIECES + 1, 0},
			.qp_type = qp_types[k],
		};

		host->qp[k] = ibv_create_qp(host->pd, &init);
		MUST(host->qp[k], "queue pair");
		host->mine.qpn[k] = host->qp[k]->qp_num;
	}
	tell(host->control, &host->mine, sizeof(host->mine));
	hear(host->control, &host->peer, sizeof(host->peer));
	for (enum kind k = RC; k < KINDS; k++)
		to_rts(host, k);
	tell(host->control, "r", 1);
	hear(host->control, &(char){0}, 1);
}

static void close_host(struct host *host)
{
	MUST(ibv_destroy_ah(host->ah) == 0, "destroy AH");
	for (enum kind k = RC; k < KINDS; k++)
		MUST(ibv_destroy_qp(host->qp[k]) == 0, "destroy QP");
	MUST(ibv_dereg_mr(host->mr) == 0, "deregister");
	MUST(ibv_destroy_cq(host->cq) == 0, "destroy CQ");
	MUST(ibv_dealloc_pd(host->pd) == 0, "dealloc PD");
	MUST(ibv_close_device(host->context) == 0, "close");
}

/* cut - the range as up to PIECES SGEs of odd lengths. */
static int cut(const struct host *host, const struct transfer *t, uint32_t offset, uint32_t length,
	       struct ibv_sge *sges)
{
	int n = 0;
	uint32_t done = 0;

	for (int i = 0; i < PIECES && done < length; i++) {
		uint32_t part = i == PIECES - 1
					? length - done
					: (length - done) / 2 + (t->number + (uint32_t)i) % 3;

		if (part > length - done)
			part = length - done;
		if (part == 0)
			continue;
		sges[n++] = (struct ibv_sge){(uintptr_t)host->buffer + offset + done, part,
					     host->mr->lkey};
		done += part;
	}
	return n;
}

/* wait_for - the next completion; false after seconds without one. */
static bool wait_for(struct host *host, double limit, struct ibv_wc *wc)
{
	const double until = seconds() + limit;
	int n;

	while ((n = ibv_poll_cq(host->cq, 1, wc)) == 0)
		if (seconds() > until)
			return false;
	MUST(n == 1, "poll");
	if (wc->status == IBV_WC_SUCCESS)
		return true;
	fprintf(stderr, "mover: wr_id %lu: %s\n", (unsigned long)wc->wr_id,
		ibv_wc_status_str(wc->status));
	exit(1);
}

/* --- the server's part of a transfer ----------------------------------------------------- */

static bool takes_receive(uint32_t opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void post_receive(struct host *host, const struct transfer *t)
{
	struct ibv_sge sges[PIECES + 1];
	struct ibv_recv_wr *bad;
	struct ibv_recv_wr wr = {.wr_id = t->number, .sg_list = sges};
	uint32_t header = t->kind == UD ? UD_HEADER : 0;

	if (t->opcode != IBV_WR_RDMA_WRITE_WITH_IMM) {
		if (header)
			sges[0] = (struct ibv_sge){(uintptr_t)host->buffer, header, host->mr->lkey};
		wr.num_sge = (header ? 1 : 0) +
			     cut(host, t, t->offset, t->length, sges + (header ? 1 : 0));
	}
	MUST(ibv_post_recv(host->qp[t->kind], &wr, &bad) == 0, "post receive");
}

/* serve_receive - waits for the message. False: lost, which UC and UD may. */
static bool serve_receive(struct host *host, const struct transfer *t)
{
	struct ibv_wc wc;
	bool imm = t->opcode != IBV_WR_SEND;

	if (!wait_for(host, t->kind == RC ? WAIT_SECONDS : LOST_SECONDS, &wc))
		return false;
	MUST(wc.wr_id == t->number, "wrong receive completed");
	MUST(wc.qp_num == host->qp[t->kind]->qp_num, "completion of another QP");
	MUST(wc.byte_len == t->length + (t->kind == UD ? UD_HEADER : 0), "byte_len");
	MUST(wc.opcode == (t->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM
								   : IBV_WC_RECV),
	     "receive opcode");
	MUST(!imm || (wc.wc_flags & IBV_WC_WITH_IMM && ntohl(wc.imm_data) == ~t->number),
	     "immediate data");
	return true;
}

/* watch_memory - UC tells nobody when its WRITE has arrived: look until all of it is there. False:
 * lost. */
static bool watch_memory(const struct host *host, const struct transfer *t, const uint8_t *at)
{
	const volatile uint8_t *bytes = at;
	const double until = seconds() + LOST_SECONDS;
	uint32_t seen = 0;

	while (seen < t->length && seconds() < until)
		while (seen < t->length && bytes[seen] == pattern(host, t->number, seen))
			seen++;
	return seen == t->length;
}

/* has_arrived - waits for what the client does. False: lost on the way, which UC and UD may. */
static bool has_arrived(struct host *host, const struct transfer *t, const uint8_t *at)
{
	char done;

	if (takes_receive(t->opcode))
		return serve_receive(host, t);
	hear(host->control, &done, 1);
	return t->kind != UC || watch_memory(host, t, at);
}

static bool serve_transfer(struct host *host, const struct transfer *t)
{
	uint8_t *at = host->buffer + t->offset;

	memset(at - GUARD, GUARD_BYTE, t->length + 2 * GUARD);
	if (t->opcode == IBV_WR_RDMA_READ)
		fill(host, t, at);
	if (t->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP)
		memcpy(at, &(uint64_t){t->number}, 8);
	if (takes_receive(t->opcode))
		post_receive(host, t);
	tell(host->control, "p", 1);
	for (int try = 1; !has_arrived(host, t, at); try++) {
		if (t->kind == RC || try == host->options->tries)
			return false;
		tell(host->control, "r", 1); /* lost: once more, into the same receive */
	}
	if (t->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return memcmp(at, &(uint64_t){t->number + 7ull}, 8) == 0;
	if (t->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		return memcmp(at, &(uint64_t){~(uint64_t)t->number}, 8) == 0;
	return check(host, t, at);
}

static int serve(struct host *host)
{
	struct transfer t;

	open_host(host);
	for (;;) {
		char result;

		hear(host->control, &t, sizeof(t));
		if (t.last)
			break;
		result = serve_transfer(host, &t) ? 'y' : 'n';
		tell(host->control, &result, 1);
	}
	close_host(host);
	return 0;
}

/* --- the client's part ------------------------------------------------------------------- */

static void post(struct host *host, const struct transfer *t)
{
	struct ibv_sge sges[PIECES];
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr = {
		.wr_id = t->number,
		.sg_list = sges,
		.opcode = (enum ibv_wr_opcode)t->opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(~t->number),
	};
	const uint64_t remote = host->peer.addr + t->offset;

	wr.num_sge = t->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP
			     ? (sges[0] = (struct ibv_sge){(uintptr_t)host->buffer + t->offset, 8,
							   host->mr->lkey},
				1)
			     : cut(host, t, t->offset, t->length, sges);
	if (t->kind == UD) {
		wr.wr.ud.ah = host->ah;
		wr.wr.ud.remote_qpn = host->peer.qpn[UD];
		wr.wr.ud.remote_qkey = QKEY;
	} else if (t->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = host->peer.rkey;
		wr.wr.atomic.compare_add = t->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 7 : t->number;
		wr.wr.atomic.swap = ~(uint64_t)t->number;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = host->peer.rkey;
	}
	MUST(ibv_post_send(host->qp[t->kind], &wr, &bad) == 0, "post send");
}

/* transfer - one transfer from end to end. */
static bool transfer(struct host *host, const struct transfer *t)
{
	uint8_t *at = host->buffer + t->offset;
	struct ibv_wc wc;
	char result;

	memset(at - GUARD, GUARD_BYTE, t->length + 2 * GUARD);
	if (t->opcode != IBV_WR_RDMA_READ)
		fill(host, t, at);
	tell(host->control, t, sizeof(*t));
	hear(host->control, &result, 1); /* prepared */
	do {
		post(host, t);
		MUST(wait_for(host, WAIT_SECONDS, &wc), "no completion");
		MUST(wc.wr_id == t->number, "wrong send completed");
		if (!takes_receive(t->opcode))
			tell(host->control, "d", 1);
		hear(host->control, &result, 1);
	} while (result == 'r');
	if (t->opcode == IBV_WR_RDMA_READ && !check(host, t, at))
		return false;
	if (t->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP && memcmp(at, &(uint64_t){t->number}, 8) != 0)
		return false;
	return result == 'y';
}

struct step {
	enum kind kind;
	enum ibv_wr_opcode opcode;
};

static const struct step steps[] = {
	{RC, IBV_WR_SEND},
	{RC, IBV_WR_SEND_WITH_IMM},
	{RC, IBV_WR_RDMA_WRITE},
	{RC, IBV_WR_RDMA_WRITE_WITH_IMM},
	{RC, IBV_WR_RDMA_READ},
	{RC, IBV_WR_ATOMIC_FETCH_AND_ADD},
	{RC, IBV_WR_ATOMIC_CMP_AND_SWP},
	{UC, IBV_WR_SEND},
	{UC, IBV_WR_SEND_WITH_IMM},
	{UC, IBV_WR_RDMA_WRITE},
	{UC, IBV_WR_RDMA_WRITE_WITH_IMM},
	{UD, IBV_WR_SEND},
	{UD, IBV_WR_SEND_WITH_IMM},
};

static const uint32_t lengths[] = {
	0,    1,     2,	    3,	   5,	  7,	 8,	9,	63,	 65,
	255,  257,   1000,  1023,  1024,  1025,	 2047,	3000,	4095,	 4097,
	8191, 16383, 16384, 16385, 32771, 65535, 65537, 200001, 1048575, 1048577,
};

static uint32_t alignment(uint32_t number)
{
	return number * 2654435761u >> 28;
}

/* wanted - whether the options and the kind allow it. */
static bool wanted(const struct options *options, const struct step *step, uint32_t length)
{
	if (options->only && strcmp(options->only, kind_names[step->kind]) != 0)
		return false;
	if (step->kind == UD && length > options->mtu)
		return false;
	/* UC has no flow control: what fits into any socket buffer. */
	if (step->kind == UC && length > 65537)
		return false;
	return length <= options->longest;
}

static int drive(struct host *host)
{
	struct transfer t = {0};
	uint32_t failed = 0;

	open_host(host);
	for (int round = 0; round < host->options->rounds; round++)
		for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++)
			for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
				bool atomic = steps[s].opcode >= IBV_WR_ATOMIC_CMP_AND_SWP;

				if (!wanted(host->options, &steps[s], lengths[l]) ||
				    (atomic && l > 2))
					continue;
				t.number++;
				t.kind = steps[s].kind;
				t.opcode = steps[s].opcode;
				t.length = atomic ? 8 : lengths[l];
				t.offset = 4096 +
					   (atomic ? 8 * alignment(t.number) : alignment(t.number));
				if (transfer(host, &t))
					continue;
				fprintf(stderr, "mover: %s opcode %u length %u failed\n",
					kind_names[t.kind], t.opcode, t.length);
				failed++;
			}
	t.last = true;
	tell(host->control, &t, sizeof(t));
	close_host(host);
	printf("process %d: %u transfers, %u failed\n", (int)getpid(), t.number, failed);
	return failed != 0;
}

/* --- starting ---------------------------------------------------------------------------- */

static pid_t start(const char *address, int control, int unused, const struct options *options,
		   int pair, int (*part)(struct host *))
{
	struct host host = {
		.control = control, .seed = options->seed + (uint64_t)pair, .options = options};
	pid_t pid;

	fflush(NULL);
	pid = fork();
	MUST(pid >= 0, "fork");
	if (pid > 0)
		return pid;
	close(unused);
	setenv("VERBENA_ADDR", address, 1);
	exit(part(&host));
}

static int run_pairs(const struct options *options, char **addresses)
{
	int failed = 0;
	pid_t pids[2 * MOST_PAIRS];

	for (int i = 0; i < options->pairs; i++) {
		int control[2];

		MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) == 0,
		     "socketpair");
		pids[2 * i] = start(addresses[0], control[0], control[1], options, i, serve);
		pids[2 * i + 1] = start(addresses[1], control[1], control[0], options, i, drive);
		close(control[0]);
		close(control[1]);
	}
	for (int i = 0; i < 2 * options->pairs; i++) {
		int status;

		MUST(waitpid(pids[i], &status, 0) == pids[i], "wait");
		failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	}
	printf("%d passed, %d failed\n", 2 * options->pairs - failed, failed);
	return failed != 0;
}

/* run_one - one process of a pair; with an address its client. */
static int run_one(const struct options *options, const char *address)
{
	struct host host = {.seed = options->seed, .options = options};
	struct sockaddr_in name = {.sin_family = AF_INET,
				   .sin_port = htons((uint16_t)options->port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	MUST(fd >= 0, "socket");
	if (address) {
		MUST(inet_pton(AF_INET, address, &name.sin_addr) == 1, "address");
		MUST(connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0, "connect");
		host.control = fd;
	} else {
		MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0,
		     "reuse");
		MUST(bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0, "bind");
		MUST(listen(fd, 1) == 0, "listen");
		host.control = accept(fd, NULL, NULL);
		MUST(host.control >= 0, "accept");
	}
	MUST(setsockopt(host.control, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0,
	     "TCP_NODELAY");
	return address ? drive(&host) : serve(&host);
}

static const char usage[] = "usage: mover [--pairs 1..64] [--rounds N] [--seed S] [--gid INDEX] "
			    "[--mtu BYTES] [--tries N] ADDRESS_A ADDRESS_B\n"
			    "       mover --port PORT [OPTION...] [ADDRESS]\n";

int main(int argc, char **argv)
{
	struct options o = {.pairs = 4,
			    .rounds = 1,
			    .gid_index = 1,
			    .mtu = 1024,
			    .tries = 3,
			    .longest = UINT32_MAX,
			    .seed = 1};

	for (; argc > 2 && argv[1][0] == '-'; argv += 2, argc -= 2) {
		if (strcmp(argv[1], "--pairs") == 0)
			o.pairs = atoi(argv[2]);
		else if (strcmp(argv[1], "--rounds") == 0)
			o.rounds = atoi(argv[2]);
		else if (strcmp(argv[1], "--seed") == 0)
			o.seed = strtoull(argv[2], NULL, 0);
		else if (strcmp(argv[1], "--gid") == 0)
			o.gid_index = atoi(argv[2]);
		else if (strcmp(argv[1], "--mtu") == 0)
			o.mtu = (uint32_t)atoi(argv[2]);
		else if (strcmp(argv[1], "--tries") == 0)
			o.tries = atoi(argv[2]);
		else if (strcmp(argv[1], "--only") == 0)
			o.only = argv[2];
		else if (strcmp(argv[1], "--longest") == 0)
			o.longest = (uint32_t)atoi(argv[2]);
		else if (strcmp(argv[1], "--port") == 0)
			o.port = atoi(argv[2]);
	}
	if (o.pairs < 1 || o.pairs > MOST_PAIRS || o.rounds < 1 ||
	    (o.port ? argc > 2 : argc != 3)) {
		fputs(usage, stderr);
		return 2;
	}
	return o.port ? run_one(&o, argc == 2 ? argv[1] : NULL) : run_pairs(&o, argv + 1);
}
