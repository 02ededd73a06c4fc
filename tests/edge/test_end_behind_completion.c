/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program takes the last completion that it waits for, and ends, in each of the ways there are,
 * or computes on. To an adapter that makes no difference: it has acknowledged the message before.
 * So the peer, in another process, must have its own completion, and a success.
 *
 * Before the end both exchange messages for a while, since what a NIC puts off it puts off for
 * those who answer quickly.
 */
#include "edge.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 100u
#define ROW 12u
#define LENGTH 8u
#define LAST 0xee /* the last message begins so */

/* Both sides are processes of their own, in which no test of cmocka's is to go on. */
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "process %d, line %d: not %s\n", (int)getpid(), __LINE__,  \
				#condition);                                                       \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

enum style { POLLS, SLEEPS, WATCHES_MEMORY };
enum end { DESTROYS, RESETS, CLOSES, EXITS, EXITS_AT_ONCE, EXECUTES, COMPUTES, ENDS };

struct side {
	int talk; /* a socket to the other process */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	volatile uint8_t *buffer; /* what comes, then what goes */
	uint64_t theirs;
	uint32_t their_key;
	unsigned int received, sent; /* completions */
};

struct card {
	uint32_t qpn, key;
	uint64_t address;
	union ibv_gid gid;
};

/* The two processes are two hosts over the wire, one otherwise. */
static void be_host(pid_t parent, unsigned int number)
{
	const char *topology = getenv("VB_EDGE_TOPOLOGY");
	char host[32];

	MUST(topology);
	if (strcmp(topology, "wire") != 0)
		number = 0;
	snprintf(host, sizeof(host), "127.%u.%u.%u", 64 + (unsigned int)parent / 256 % 64,
		 (unsigned int)parent % 256, 4 + number);
	setenv("VERBENA_ADDR", host, 1);
}

static void talk(struct side *s, const void *out, void *in, size_t length)
{
	MUST(write(s->talk, out, length) == (ssize_t)length);
	MUST(read(s->talk, in, length) == (ssize_t)length);
}

static void post_receive(struct side *s)
{
	struct ibv_sge sge = {(uintptr_t)s->buffer, LENGTH, s->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	MUST(ibv_post_recv(s->qp, &wr, &bad) == 0);
}

static void post(struct side *s, enum ibv_wr_opcode opcode, uint8_t value)
{
	struct ibv_sge sge = {(uintptr_t)s->buffer + LENGTH, LENGTH, s->mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = s->theirs, .rkey = s->their_key},
	};
	struct ibv_send_wr *bad;

	s->buffer[LENGTH] = value;
	MUST(ibv_post_send(s->qp, &wr, &bad) == 0);
}

static void open_side(struct side *s, int fd)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct card mine = {0}, theirs;
	struct ibv_qp peer = {0};

	MUST(list);
	MUST(list[0]);
	*s = (struct side){.talk = fd, .context = ibv_open_device(list[0])};
	ibv_free_device_list(list);
	MUST(s->context);
	s->pd = ibv_alloc_pd(s->context);
	s->channel = ibv_create_comp_channel(s->context);
	s->cq = ibv_create_cq(s->context, 256, NULL, s->channel, 0);
	s->buffer = calloc(2, LENGTH);
	MUST(s->buffer);
	s->mr = ibv_reg_mr(s->pd, (void *)s->buffer, (size_t)2 * LENGTH, EDGE_ALL_ACCESS);
	MUST(s->mr);
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &init);
	MUST(s->qp);

	mine.qpn = s->qp->qp_num;
	mine.key = s->mr->rkey;
	mine.address = (uintptr_t)s->buffer;
	MUST(ibv_query_gid(s->context, 1, 1, &mine.gid) == 0);
	talk(s, &mine, &theirs, sizeof(mine));
	s->theirs = theirs.address;
	s->their_key = theirs.key;
	peer.qp_num = theirs.qpn;
	edge_connect_qp(s->qp, &peer, &theirs.gid, EDGE_ALL_ACCESS);
	MUST(ibv_req_notify_cq(s->cq, 0) == 0);
	for (unsigned int i = 0; i < 2 * ROW; i++)
		post_receive(s);
	talk(s, &mine, &theirs, 1); /* both are ready */
}

static void await_event(struct side *s)
{
	struct ibv_cq *cq;
	void *context;

	MUST(ibv_get_cq_event(s->channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	MUST(ibv_req_notify_cq(cq, 0) == 0);
}

/* Until so many receives and sends have completed. Nothing is called behind the last of them. */
static void await(struct side *s, enum style style, unsigned int received, unsigned int sent)
{
	const double until = edge_seconds() + 20;
	struct ibv_wc wc;
	int n;

	while (s->received < received || s->sent < sent) {
		n = ibv_poll_cq(s->cq, 1, &wc);
		MUST(n >= 0);
		if (n > 0) {
			MUST(wc.status == IBV_WC_SUCCESS);
			*(wc.opcode == IBV_WC_RECV ? &s->received : &s->sent) += 1;
		} else if (style == SLEEPS) {
			await_event(s);
		}
		MUST(edge_seconds() < until);
	}
}

static void await_value(const struct side *s, uint8_t value)
{
	const double until = edge_seconds() + 20;

	while (s->buffer[0] != value)
		MUST(edge_seconds() < until);
}

/* One who says something and hears the answer. */
static void lead(struct side *s, enum style style)
{
	for (unsigned int i = 1; i <= ROUNDS; i++) {
		if (style == WATCHES_MEMORY) {
			post(s, IBV_WR_RDMA_WRITE, (uint8_t)(i % 128 + 1));
			await(s, POLLS, 0, i);
			await_value(s, (uint8_t)(i % 128 + 1));
		} else {
			post_receive(s);
			post(s, IBV_WR_SEND, 0);
			await(s, style, i, i);
		}
	}
	post(s, style == WATCHES_MEMORY ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, LAST);
	await(s, POLLS, 0, ROUNDS + 1);
}

static void follow(struct side *s, enum style style)
{
	for (unsigned int i = 1; i <= ROUNDS; i++) {
		if (style == WATCHES_MEMORY) {
			await_value(s, (uint8_t)(i % 128 + 1));
			post(s, IBV_WR_RDMA_WRITE, (uint8_t)(i % 128 + 1));
			await(s, POLLS, 0, i);
		} else {
			await(s, style, i, 0);
			post_receive(s);
			post(s, IBV_WR_SEND, 0);
		}
	}
	if (style == WATCHES_MEMORY)
		await_value(s, LAST);
	else
		await(s, style, ROUNDS + 1, ROUNDS);
}

/* Goes on in the one way or the other until the peer has said how it fared. */
static void end_by(struct side *s, enum end end)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	uint8_t byte = 0;

	switch (end) {
	case DESTROYS:
		MUST(ibv_destroy_qp(s->qp) == 0);
		break;
	case RESETS:
		MUST(ibv_modify_qp(s->qp, &reset, IBV_QP_STATE) == 0);
		break;
	case CLOSES:
		ibv_close_device(s->context);
		break;
	case EXITS:
		exit(0);
	case EXITS_AT_ONCE:
		_exit(0);
	case EXECUTES:
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	case COMPUTES:
	case ENDS:
		break;
	}
	talk(s, &byte, &byte, 1);
	_exit(0);
}

/* --- two processes ----------------------------------------------------------------------- */

struct play {
	enum style style;
	enum end end;
	unsigned int rows; /* of posts, in of_posts */
};

typedef void role_fn(struct side *s, const struct play *play);

static pid_t start(role_fn *role, const struct play *play, unsigned int number, const int pair[2])
{
	const pid_t parent = getpid(), child = fork();
	struct side s;

	if (child)
		return child;
	close(pair[!number]); /* one that fails is to be heard of */
	be_host(parent, number);
	open_side(&s, pair[number]);
	role(&s, play);
	_exit(0);
}

static void play(role_fn *first, role_fn *second, const struct play *play)
{
	pid_t children[2];
	int pair[2], status;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	children[0] = start(first, play, 0, pair);
	children[1] = start(second, play, 1, pair);
	close(pair[0]);
	close(pair[1]);
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			fail_msg("style %d, end %d, side %u: status 0x%x", play->style, play->end,
				 i, status);
	}
}

/* The follower waits for it, where it is there still. */
static void say_so(struct side *s, enum end end)
{
	uint8_t byte = 0;

	if (end != EXITS && end != EXITS_AT_ONCE && end != EXECUTES)
		talk(s, &byte, &byte, 1);
}

static void leads(struct side *s, const struct play *play)
{
	lead(s, play->style);
	say_so(s, play->end);
}

static void follows(struct side *s, const struct play *play)
{
	follow(s, play->style);
	end_by(s, play->end);
}

static void end_each_way(enum style style)
{
	for (enum end end = DESTROYS; end < ENDS; end++)
		play(leads, follows, &(struct play){.style = style, .end = end});
}

static void of_who_polls(void **state)
{
	end_each_way(POLLS);
}

static void of_who_sleeps(void **state)
{
	end_each_way(SLEEPS);
}

static void of_who_watches_its_memory(void **state)
{
	end_each_way(WATCHES_MEMORY);
}

static void posts_rows(struct side *s, const struct play *play)
{
	for (unsigned int row = 0; row < play->rows; row++) {
		for (unsigned int i = 0; i < ROW; i++)
			post(s, IBV_WR_SEND, 0);
		await(s, POLLS, 0, (row + 1) * ROW);
	}
	for (unsigned int i = 0; i < (play->rows ? ROW : 1); i++)
		post(s, IBV_WR_SEND, 0);
	end_by(s, COMPUTES);
}

static void takes_rows(struct side *s, const struct play *play)
{
	const unsigned int all = play->rows * ROW + (play->rows ? ROW : 1);

	for (unsigned int i = 1; i <= all; i++) {
		await(s, POLLS, i, 0);
		post_receive(s);
	}
	say_so(s, COMPUTES);
}

/* Who posts and then calls nothing has posted all the same, also where it is used to posting many
 * in a row. */
static void of_posts(void **state)
{
	play(takes_rows, posts_rows, &(struct play){.rows = 0});
	play(takes_rows, posts_rows, &(struct play){.rows = 20});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_who_polls),
		cmocka_unit_test(of_who_sleeps),
		cmocka_unit_test(of_who_watches_its_memory),
		cmocka_unit_test(of_posts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
