/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Import into another process (ibv_import_device(3) and kin): a queue pair here sends from and
 * receives into a region there, peers reach that region through it, and whatever its owner does
 * meanwhile is a status here.
 *
 * The owner is this program once more, which makes the objects, hands over cmd_fd with SCM_RIGHTS,
 * and does what it is told:
 *
 *      owner: region, DM        importer: x, a QP in the imported PD  <---->  y, its peer
 */
#define _GNU_SOURCE
#include "edge.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (1u << 20)
#define LONG 300000u /* many packets over either carrier */
#define PAGE 4096u
#define HANDLES 400 /* the importer comes to the owner's numbers with so many of its own */

enum order {
	FILL = 'f',  /* bytes [at, at + length) of the region become value */
	COUNT = 'c', /* how many of those are value */
	DEREG = 'd',
	CHANGE = 'r', /* ibv_rereg_mr: rights */
	UNMAP = 'u',
	WORD = 'w', /* the first word of the device memory */
	EXEC = 'e', /* become another program, which answers with the order */
};

struct order_message {
	enum order what;
	uint32_t at, length, value;
};

/* What the owner tells first, with the descriptor. */
struct hello {
	uint32_t pd, mr, lkey, rkey, implicit, null, small_dm, dm;
	uint64_t addr;
};

/* --- the owner --------------------------------------------------------------------------- */

/* Where no test runs: says where, and ends the process. */
#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "owner, line %d: %s\n", __LINE__, #what);                  \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

struct owner {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	uint8_t *memory;
};

static void say_hello(int to, const struct owner *o, struct hello *hello)
{
	struct iovec part = {hello, sizeof(*hello)};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.header), &o->context->cmd_fd, sizeof(int));
	CHECK(sendmsg(to, &message, 0) == (ssize_t)sizeof(*hello));
}

static void make_objects(struct owner *o, struct hello *hello)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_alloc_dm_attr attr = {.length = 64};
	struct ibv_mr *implicit, *null;
	struct ibv_dm *small_dm;

	CHECK(list && list[0]);
	o->context = ibv_open_device(list[0]);
	CHECK(o->context);
	/* So that its numbers are not those of the importer's first objects. */
	for (int i = 0; i < 3; i++)
		CHECK(ibv_alloc_pd(o->context));
	o->pd = ibv_alloc_pd(o->context);
	o->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(o->pd && o->memory != MAP_FAILED);
	for (int i = 0; i < HANDLES / 2; i++)
		CHECK(ibv_reg_mr(o->pd, o->memory, PAGE, 0));
	o->mr = ibv_reg_mr(o->pd, o->memory, BYTES, EDGE_ALL_ACCESS);
	implicit = ibv_reg_mr(o->pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
	null = ibv_alloc_null_mr(o->pd);
	small_dm = ibv_alloc_dm(o->context, &attr);
	attr.length = PAGE + 64;
	o->dm = ibv_alloc_dm(o->context, &attr);
	CHECK(o->mr && implicit && null && small_dm && o->dm);
	*hello = (struct hello){
		.pd = o->pd->handle,
		.mr = o->mr->handle,
		.lkey = o->mr->lkey,
		.rkey = o->mr->rkey,
		.implicit = implicit->handle,
		.null = null->handle,
		.small_dm = small_dm->handle,
		.dm = o->dm->handle,
		.addr = (uintptr_t)o->memory,
	};
}

static void become_cat(int socket)
{
	CHECK(dup2(socket, 0) == 0 && dup2(socket, 1) == 1);
	execlp("cat", "cat", (char *)NULL);
	CHECK(false);
}

static uint32_t obey(struct owner *o, const struct order_message *order)
{
	uint32_t word = 0, count = 0;

	switch (order->what) {
	case FILL:
		memset(o->memory + order->at, (int)order->value, order->length);
		return 0;
	case COUNT:
		for (uint32_t i = 0; i < order->length; i++)
			count += o->memory[order->at + i] == order->value;
		return count;
	case DEREG:
		return (uint32_t)ibv_dereg_mr(o->mr);
	case CHANGE:
		return (uint32_t)ibv_rereg_mr(o->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
					      IBV_ACCESS_LOCAL_WRITE);
	case UNMAP:
		return (uint32_t)munmap(o->memory, BYTES);
	case WORD:
		CHECK(ibv_memcpy_from_dm(&word, o->dm, 0, 4) == 0);
		return word;
	case EXEC:
		break;
	}
	return UINT32_MAX;
}

static int own(int socket)
{
	struct order_message order;
	struct hello hello;
	struct owner o;

	make_objects(&o, &hello);
	say_hello(socket, &o, &hello);
	while (read(socket, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
		uint32_t answer;

		if (order.what == EXEC)
			become_cat(socket);
		answer = obey(&o, &order);
		CHECK(write(socket, &answer, sizeof(answer)) == (ssize_t)sizeof(answer));
	}
	return 0;
}

/* --- the importer ------------------------------------------------------------------------ */

struct bench {
	struct edge_pair pair; /* its b has y beside it */
	struct hello hello;
	int socket, fd;
	pid_t owner;
	struct edge_end x, y;
};

static uint32_t tell(struct bench *t, enum order what, uint32_t at, uint32_t length, uint32_t value)
{
	struct order_message order = {what, at, length, value};
	uint32_t answer;

	assert_int_equal(write(t->socket, &order, sizeof(order)), sizeof(order));
	assert_int_equal(read(t->socket, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

static void hear_hello(struct bench *t)
{
	struct iovec part = {&t->hello, sizeof(t->hello)};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	assert_int_equal(recvmsg(t->socket, &message, MSG_CMSG_CLOEXEC), sizeof(t->hello));
	memcpy(&t->fd, CMSG_DATA(&control.header), sizeof(int));
}

static void start_owner(struct bench *t)
{
	char number[16];
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
	snprintf(number, sizeof(number), "%d", ends[1]);
	fflush(NULL);
	t->owner = fork();
	assert_true(t->owner >= 0);
	if (t->owner == 0) {
		execl("/proc/self/exe", "owner", number, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	t->socket = ends[0];
	hear_hello(t);
}

static void make_qp(struct edge_end *end)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {16, 16, 2, 2, 64}};

	end->cq = ibv_create_cq(end->context, 64, NULL, NULL, 0);
	assert_non_null(end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	assert_non_null(end->qp);
}

static void connect_ends(struct bench *t)
{
	edge_connect_qp(t->x.qp, t->y.qp, &t->pair.b.gid, EDGE_ALL_ACCESS);
	edge_connect_qp(t->y.qp, t->x.qp, &t->pair.a.gid, EDGE_ALL_ACCESS);
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

static void reconnect(struct bench *t)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(ibv_modify_qp(t->x.qp, &reset, IBV_QP_STATE), 0);
	assert_int_equal(ibv_modify_qp(t->y.qp, &reset, IBV_QP_STATE), 0);
	drain(t->x.cq);
	drain(t->y.cq);
	connect_ends(t);
}

static void import(struct bench *t)
{
	t->x.context = ibv_import_device(t->fd);
	assert_non_null(t->x.context);
	assert_int_equal(t->x.context->cmd_fd, t->fd);
	assert_ptr_equal(t->x.context->device, t->pair.a.context->device);
	t->x.pd = ibv_import_pd(t->x.context, t->hello.pd);
	assert_non_null(t->x.pd);
	assert_int_equal(t->x.pd->handle, t->hello.pd);
	t->x.mr = ibv_import_mr(t->x.pd, t->hello.mr);
	assert_non_null(t->x.mr);
	assert_null(t->x.mr->addr);
	assert_int_equal(t->x.mr->length, BYTES);
	assert_int_equal(t->x.mr->handle, t->hello.mr);
	/* Nothing else is registered here that could have taken them. */
	assert_int_equal(t->x.mr->lkey, t->hello.lkey);
	assert_int_equal(t->x.mr->rkey, t->hello.rkey);
	/* By the owner's addresses, as a region is named; never touched here. */
	t->x.buffer = (uint8_t *)(uintptr_t)t->hello.addr;
}

static void set_up(struct bench *t)
{
	memset(t, 0, sizeof(*t));
	edge_open(&t->pair, &(struct edge_options){0});
	assert_int_equal(ibv_dereg_mr(t->pair.a.mr), 0); /* see import */
	start_owner(t);
	import(t);
	make_qp(&t->x);
	t->y = t->pair.b;
	make_qp(&t->y);
	connect_ends(t);
}

static void end_owner(struct bench *t)
{
	int status;

	close(t->socket);
	assert_int_equal(waitpid(t->owner, &status, 0), t->owner);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void kill_owner(struct bench *t)
{
	assert_int_equal(kill(t->owner, SIGKILL), 0);
	assert_int_equal(waitpid(t->owner, NULL, 0), t->owner);
	close(t->socket);
}

static void tear_down(struct bench *t)
{
	assert_int_equal(ibv_destroy_qp(t->x.qp), 0);
	assert_int_equal(ibv_destroy_qp(t->y.qp), 0);
	assert_int_equal(ibv_destroy_cq(t->x.cq), 0);
	assert_int_equal(ibv_destroy_cq(t->y.cq), 0);
	if (t->x.mr)
		ibv_unimport_mr(t->x.mr);
	ibv_unimport_pd(t->x.pd);
	assert_int_equal(ibv_close_device(t->x.context), 0);
	t->pair.a.mr = ibv_reg_mr(t->pair.a.pd, t->pair.a.buffer, EDGE_BUFFER, EDGE_ALL_ACCESS);
	edge_close(&t->pair);
}

static bool all_are(const uint8_t *bytes, uint32_t length, uint8_t value)
{
	for (uint32_t i = 0; i < length; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

static void send_across(struct bench *t, struct edge_end *from, struct edge_end *to,
			uint32_t length)
{
	edge_post_recv(to, 1, 0, length);
	assert_int_equal(edge_post(from, to, 2, IBV_WR_SEND, 0, length), 0);
	edge_expect(from->cq, 2, IBV_WC_SUCCESS);
	assert_int_equal(edge_expect(to->cq, 1, IBV_WC_SUCCESS).byte_len, length);
}

static void sends_and_receives(void **state)
{
	static const uint32_t lengths[] = {100, LONG};
	struct bench t;

	set_up(&t);
	for (uint32_t i = 0; i < 2; i++) {
		tell(&t, FILL, 0, BYTES, 0x40 + i);
		send_across(&t, &t.x, &t.y, lengths[i]);
		assert_true(all_are(t.y.buffer, lengths[i], (uint8_t)(0x40 + i)));
		memset(t.y.buffer, (int)(0x50 + i), lengths[i]);
		send_across(&t, &t.y, &t.x, lengths[i]);
		assert_int_equal(tell(&t, COUNT, 0, BYTES, 0x50 + i), lengths[i]);
	}
	tear_down(&t);
	end_owner(&t);
}

static void reads_and_writes_both_ways(void **state)
{
	struct bench t;

	set_up(&t);
	for (int mine = 0; mine < 2; mine++) {
		struct edge_end *from = mine ? &t.x : &t.y, *to = mine ? &t.y : &t.x;

		memset(t.y.buffer, 0x61, LONG);
		tell(&t, FILL, 0, LONG, 0x62);
		assert_int_equal(edge_post(from, to, 3, IBV_WR_RDMA_WRITE, 8, LONG - 8), 0);
		edge_expect(from->cq, 3, IBV_WC_SUCCESS);
		if (mine)
			assert_true(all_are(t.y.buffer + 8, LONG - 8, 0x62));
		else
			assert_int_equal(tell(&t, COUNT, 0, LONG, 0x61), LONG - 8);
		memset(t.y.buffer, 0x63, LONG);
		tell(&t, FILL, 0, LONG, 0x64);
		assert_int_equal(edge_post(from, to, 4, IBV_WR_RDMA_READ, 8, LONG - 8), 0);
		edge_expect(from->cq, 4, IBV_WC_SUCCESS);
		if (mine)
			assert_int_equal(tell(&t, COUNT, 0, LONG, 0x63), LONG - 8);
		else
			assert_true(all_are(t.y.buffer + 8, LONG - 8, 0x64));
	}
	/* Behind its end, and what no system call does in another's memory. */
	t.x.buffer += 8;
	assert_int_equal(edge_post(&t.y, &t.x, 5, IBV_WR_RDMA_WRITE, BYTES - 16, 16), 0);
	edge_expect(t.y.cq, 5, IBV_WC_REM_ACCESS_ERR);
	t.x.buffer -= 8;
	reconnect(&t);
	assert_int_equal(edge_post(&t.y, &t.x, 6, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8), 0);
	edge_expect(t.y.cq, 6, IBV_WC_REM_ACCESS_ERR);
	tear_down(&t);
	end_owner(&t);
}

/* The result of an atomic elsewhere is placed like that of a READ. */
static void an_atomic_result_comes_there(void **state)
{
	struct bench t;

	set_up(&t);
	memset(t.y.buffer, 0x71, 8);
	tell(&t, FILL, 0, 16, 0);
	assert_int_equal(edge_post(&t.x, &t.y, 3, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8), 0);
	edge_expect(t.x.cq, 3, IBV_WC_SUCCESS);
	assert_int_equal(tell(&t, COUNT, 0, 16, 0x71), 8);
	tear_down(&t);
	end_owner(&t);
}

/* The statuses of requests over memory that is not there any more, from here and from the peer. */
static void expect_gone(struct bench *t)
{
	assert_int_equal(edge_post(&t->x, &t->y, 7, IBV_WR_SEND, 0, 64), 0);
	edge_expect(t->x.cq, 7, IBV_WC_LOC_PROT_ERR);
	reconnect(t);
	assert_int_equal(edge_post(&t->x, &t->y, 7, IBV_WR_RDMA_WRITE, 0, LONG), 0);
	edge_expect(t->x.cq, 7, IBV_WC_LOC_PROT_ERR);
	reconnect(t);
	assert_int_equal(edge_post(&t->y, &t->x, 8, IBV_WR_RDMA_WRITE, 0, LONG), 0);
	edge_expect(t->y.cq, 8, IBV_WC_REM_ACCESS_ERR);
	reconnect(t);
	assert_int_equal(edge_post(&t->y, &t->x, 8, IBV_WR_RDMA_READ, 0, 64), 0);
	edge_expect(t->y.cq, 8, IBV_WC_REM_ACCESS_ERR);
	reconnect(t);
	edge_post_recv(&t->x, 9, 0, 64);
	assert_int_equal(edge_post(&t->y, &t->x, 10, IBV_WR_SEND, 0, 64), 0);
	edge_expect(t->x.cq, 9, IBV_WC_LOC_PROT_ERR);
	edge_expect(t->y.cq, 10, IBV_WC_REM_OP_ERR);
	reconnect(t);
}

static void expect_no_mr(struct bench *t, uint32_t handle, int error)
{
	errno = 0;
	assert_null(ibv_import_mr(t->x.pd, handle));
	assert_int_equal(errno, error);
}

/* A handle is the owner's, also where the importer has a region of that number, which means
 * another.
 */
static void expect_no_own_mr(struct bench *t)
{
	struct ibv_mr *own[HANDLES];
	bool met = false;
	int count;

	for (count = 0; count < HANDLES && !met; count++) {
		own[count] = ibv_reg_mr(t->y.pd, t->y.buffer, 64, 0);
		assert_non_null(own[count]);
		met = own[count]->handle == t->hello.mr;
	}
	assert_true(met);
	expect_no_mr(t, t->hello.mr, ENOENT);
	while (count > 0)
		assert_int_equal(ibv_dereg_mr(own[--count]), 0);
}

static void deregistered_there(void **state)
{
	struct bench t;

	set_up(&t);
	assert_int_equal(tell(&t, DEREG, 0, 0, 0), 0);
	expect_gone(&t);
	expect_no_mr(&t, t.hello.mr, ENOENT); /* although it is here still */
	ibv_unimport_mr(t.x.mr);
	t.x.mr = NULL;
	expect_no_mr(&t, t.hello.mr, ENOENT);
	expect_no_own_mr(&t);
	tear_down(&t);
	end_owner(&t);
}

static void changed_there(void **state)
{
	struct ibv_mr *before;
	struct bench t;

	set_up(&t);
	assert_int_equal(tell(&t, CHANGE, 0, 0, 0), 0);
	expect_gone(&t);
	before = t.x.mr;
	t.x.mr = ibv_import_mr(t.x.pd, t.hello.mr); /* as it is now */
	assert_non_null(t.x.mr);
	ibv_unimport_mr(before);
	tell(&t, FILL, 0, 64, 0x33);
	send_across(&t, &t.x, &t.y, 64);
	assert_true(all_are(t.y.buffer, 64, 0x33));
	assert_int_equal(edge_post(&t.y, &t.x, 8, IBV_WR_RDMA_WRITE, 0, 64), 0);
	edge_expect(t.y.cq, 8, IBV_WC_REM_ACCESS_ERR); /* the right was taken back */
	tear_down(&t);
	end_owner(&t);
}

/* Still registered, as far as its owner knows. */
static void unmapped_there(void **state)
{
	struct bench t;

	set_up(&t);
	assert_int_equal(tell(&t, UNMAP, 0, 0, 0), 0);
	expect_gone(&t);
	tear_down(&t);
	end_owner(&t);
}

static void killed_there(void **state)
{
	struct bench t;
	int again;

	set_up(&t);
	again = dup(t.fd);
	kill_owner(&t);
	expect_gone(&t);
	expect_no_mr(&t, t.hello.null, EIO);
	errno = 0;
	assert_null(ibv_import_pd(t.x.context, t.hello.pd));
	assert_int_equal(errno, EIO);
	errno = 0;
	assert_null(ibv_import_device(again));
	assert_int_equal(errno, EIO);
	close(again);
	tear_down(&t);
}

/* The process is the same, and its memory another program's. */
static void replaced_there(void **state)
{
	struct order_message order = {.what = EXEC}, echo;
	struct bench t;
	int again;

	set_up(&t);
	again = dup(t.fd);
	assert_int_equal(write(t.socket, &order, sizeof(order)), sizeof(order));
	assert_int_equal(write(t.socket, &order, sizeof(order)), sizeof(order));
	assert_int_equal(recv(t.socket, &echo, sizeof(echo), MSG_WAITALL), sizeof(echo));
	assert_memory_equal(&echo, &order, sizeof(echo));
	errno = 0;
	assert_null(ibv_import_device(again));
	assert_int_equal(errno, EIO);
	close(again);
	expect_gone(&t);
	tear_down(&t);
	end_owner(&t);
}

/* What the importer lets go is there for the next. */
static void imported_again(void **state)
{
	struct ibv_context *second;
	struct ibv_pd *pd;
	struct bench t;

	set_up(&t);
	second = ibv_import_device(dup(t.fd));
	assert_non_null(second);
	pd = ibv_import_pd(second, t.hello.pd);
	assert_non_null(pd);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY); /* the same domain, with a region in it */
	ibv_unimport_mr(t.x.mr);
	t.x.mr = ibv_import_mr(pd, t.hello.mr); /* and the QP of the first reaches it */
	assert_non_null(t.x.mr);
	tell(&t, FILL, 0, 64, 0x44);
	send_across(&t, &t.x, &t.y, 64);
	assert_true(all_are(t.y.buffer, 64, 0x44));
	assert_int_equal(ibv_dereg_mr(t.x.mr), 0); /* of the importer's: the owner has its own */
	t.x.mr = ibv_import_mr(t.x.pd, t.hello.mr);
	assert_non_null(t.x.mr);
	ibv_unimport_pd(pd);
	assert_int_equal(ibv_close_device(second), 0);
	send_across(&t, &t.x, &t.y, 64);
	tear_down(&t);
	end_owner(&t);
}

static void wrong_arguments(void **state)
{
	struct ibv_pd *own, *null_pd;
	struct ibv_mr *null;
	struct bench t;

	set_up(&t);
	errno = 0;
	assert_null(ibv_import_pd(t.x.context, t.hello.pd + 1000));
	assert_int_equal(errno, ENOENT);
	expect_no_mr(&t, t.hello.mr + 1000, ENOENT);
	expect_no_mr(&t, t.hello.implicit, EOPNOTSUPP); /* as large as an address space */
	own = ibv_alloc_pd(t.x.context);
	assert_non_null(own);
	errno = 0;
	assert_null(ibv_import_mr(own, t.hello.mr)); /* it is not in that one */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_pd(own), 0);
	null_pd = ibv_import_pd(t.x.context, t.hello.pd);
	null = ibv_import_mr(null_pd, t.hello.null);
	assert_non_null(null);
	ibv_unimport_mr(null);
	ibv_unimport_pd(null_pd);
	errno = 0;
	assert_int_equal(ibv_rereg_mr(t.x.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EINVAL);
	if (geteuid() == 0) { /* another user's process is none of ours */
		int fd = dup(t.fd);

		assert_int_equal(seteuid(65534), 0);
		errno = 0;
		assert_null(ibv_import_device(fd));
		assert_int_equal(errno, EPERM);
		assert_int_equal(seteuid(0), 0);
		close(fd);
	}
	tear_down(&t);
	end_owner(&t);
}

static void device_memory(void **state)
{
	uint32_t word = 0x01020304;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct bench t;

	set_up(&t);
	errno = 0;
	assert_null(ibv_import_dm(t.x.context, t.hello.small_dm)); /* no descriptor of it */
	assert_int_equal(errno, ENOENT);
	dm = ibv_import_dm(t.x.context, t.hello.dm);
	assert_non_null(dm);
	assert_int_equal(dm->handle, t.hello.dm);
	assert_int_equal(ibv_memcpy_to_dm(dm, 0, &word, 4), 0);
	assert_int_equal(tell(&t, WORD, 0, 0, 0), 0x01020304);
	assert_int_equal(ibv_memcpy_to_dm(dm, PAGE + 64, &word, 4), EFAULT);
	ibv_unimport_mr(t.x.mr);
	mr = t.x.mr = ibv_reg_dm_mr(t.x.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | EDGE_ALL_ACCESS);
	assert_non_null(mr);
	t.x.buffer = NULL;
	/* compare_add is 0: the word is fetched, and was the owner's as well */
	assert_int_equal(edge_post(&t.y, &t.x, 6, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8), 0);
	edge_expect(t.y.cq, 6, IBV_WC_SUCCESS);
	memcpy(&word, t.y.buffer, 4);
	assert_int_equal(word, 0x01020304);
	kill_owner(&t); /* the memory is as much ours */
	assert_int_equal(ibv_memcpy_from_dm(&word, dm, 0, 4), 0);
	assert_int_equal(word, 0x01020304);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	t.x.mr = NULL;
	assert_int_equal(ibv_free_dm(dm), 0);
	tear_down(&t);
}

/* The owner gets its memory back when nobody copies to it, or EBUSY and nothing has changed. */
static void waited_for(void **state)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	char path[64];
	struct bench t;
	int fd;

	set_up(&t);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", t.fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0); /* as if it were in the middle */
	assert_int_equal(tell(&t, DEREG, 0, 0, 0), EBUSY);
	send_across(&t, &t.x, &t.y, 64);
	close(fd);
	assert_int_equal(tell(&t, DEREG, 0, 0, 0), 0);
	expect_gone(&t);
	tear_down(&t);
	end_owner(&t);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sends_and_receives),
		cmocka_unit_test(reads_and_writes_both_ways),
		cmocka_unit_test(an_atomic_result_comes_there),
		cmocka_unit_test(deregistered_there),
		cmocka_unit_test(changed_there),
		cmocka_unit_test(unmapped_there),
		cmocka_unit_test(killed_there),
		cmocka_unit_test(replaced_there),
		cmocka_unit_test(imported_again),
		cmocka_unit_test(wrong_arguments),
		cmocka_unit_test(device_memory),
		cmocka_unit_test(waited_for),
	};

	if (argc == 2 && strcmp(argv[0], "owner") == 0)
		return own(atoi(argv[1]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
