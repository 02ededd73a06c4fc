/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts, PDs, regions and device memory that are imported (ibv_import_device(3) and kin): one
 * object with two owners, whoever lets go first.
 */
#include "edge.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* b's end, once more. */
struct twin {
	struct edge_pair pair;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
};

static struct ibv_context *import(struct ibv_context *of)
{
	int fd = dup(of->cmd_fd);
	struct ibv_context *context;

	assert_true(fd >= 0);
	context = ibv_import_device(fd);
	assert_non_null(context);
	assert_int_equal(context->cmd_fd, fd);
	assert_ptr_equal(context->device, of->device);
	return context;
}

static void open_twin(struct twin *t)
{
	edge_open(&t->pair, &(struct edge_options){0});
	t->context = import(t->pair.b.context);
	t->pd = ibv_import_pd(t->context, t->pair.b.pd->handle);
	assert_non_null(t->pd);
	assert_ptr_equal(t->pd->context, t->context);
	assert_int_equal(t->pd->handle, t->pair.b.pd->handle);
	t->mr = ibv_import_mr(t->pd, t->pair.b.mr->handle);
	assert_non_null(t->mr);
	assert_null(t->mr->addr);
	assert_int_equal(t->mr->length, t->pair.b.mr->length);
	assert_int_equal(t->mr->rkey, t->pair.b.mr->rkey);
	assert_int_equal(t->mr->lkey, t->pair.b.mr->lkey);
}

static void write_across(struct edge_pair *pair, enum ibv_wc_status status)
{
	assert_int_equal(edge_post(&pair->a, &pair->b, 3, IBV_WR_RDMA_WRITE, 64, 100), 0);
	edge_expect(pair->a.cq, 3, status);
}

static void unimported_it_stays(void **state)
{
	struct twin t;

	open_twin(&t);
	ibv_unimport_mr(t.mr);
	ibv_unimport_pd(t.pd);
	assert_int_equal(ibv_close_device(t.context), 0);
	write_across(&t.pair, IBV_WC_SUCCESS);
	edge_close(&t.pair);
}

/* A queue pair of the twin's own in the shared PD reaches the shared region. */
static void used_by_the_twin(void **state)
{
	struct twin t;
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	open_twin(&t);
	cq = ibv_create_cq(t.context, 4, NULL, NULL, 0);
	assert_non_null(cq);
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(t.pd, &init);
	assert_non_null(qp);
	assert_int_equal(ibv_dealloc_pd(t.pd), EBUSY);
	assert_int_equal(ibv_dealloc_pd(t.pair.b.pd), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	ibv_unimport_mr(t.mr);
	ibv_unimport_pd(t.pd);
	assert_int_equal(ibv_close_device(t.context), 0);
	edge_close(&t.pair);
}

static void deregistered_by_the_twin(void **state)
{
	struct twin t;

	open_twin(&t);
	assert_int_equal(ibv_dereg_mr(t.mr), 0);
	write_across(&t.pair, IBV_WC_REM_ACCESS_ERR);
	errno = 0;
	assert_null(ibv_import_mr(t.pd, t.pair.b.mr->handle));
	assert_int_equal(errno, ENOENT);
	ibv_unimport_mr(t.pair.b.mr); /* what the manual leaves to do with it */
	t.pair.b.mr = ibv_reg_mr(t.pair.b.pd, t.pair.b.buffer, EDGE_BUFFER, EDGE_ALL_ACCESS);
	assert_non_null(t.pair.b.mr);
	edge_reconnect(&t.pair);
	write_across(&t.pair, IBV_WC_SUCCESS);
	ibv_unimport_pd(t.pd);
	assert_int_equal(ibv_close_device(t.context), 0);
	edge_close(&t.pair);
}

static void closed_first_it_stays_the_twins(void **state)
{
	struct edge_pair pair;
	struct ibv_context *first, *second;
	struct ibv_pd *pd, *again;
	struct ibv_mr *mr, *imported;
	uint8_t bytes[64] = {0};

	edge_open(&pair, &(struct edge_options){0});
	first = ibv_open_device(pair.b.context->device);
	assert_non_null(first);
	pd = ibv_alloc_pd(first);
	mr = ibv_reg_mr(pd, bytes, sizeof(bytes), EDGE_ALL_ACCESS);
	assert_non_null(mr);
	second = import(first);
	again = ibv_import_pd(second, pd->handle);
	assert_non_null(again);
	imported = ibv_import_mr(again, mr->handle);
	assert_non_null(imported);
	assert_int_equal(ibv_close_device(first), 0);
	assert_int_equal(ibv_dealloc_pd(again), EBUSY); /* the region lives */
	assert_int_equal(ibv_dereg_mr(imported), 0);
	assert_int_equal(ibv_dealloc_pd(again), 0);
	ibv_unimport_mr(mr);
	ibv_unimport_pd(pd);
	assert_int_equal(ibv_close_device(second), 0);
	edge_close(&pair);
}

static unsigned int descriptors(void)
{
	DIR *open = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(open);
	while (readdir(open))
		n++;
	closedir(open);
	return n;
}

/* A context takes its descriptors with it, whatever the program still holds of it. */
static void closed_with_shells_alive(void **state)
{
	struct edge_pair pair;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	unsigned int before;

	edge_open(&pair, &(struct edge_options){0});
	for (int imported = 0; imported < 2; imported++) {
		before = descriptors();
		context =
			imported ? import(pair.b.context) : ibv_open_device(pair.b.context->device);
		assert_non_null(context);
		pd = imported ? ibv_import_pd(context, pair.b.pd->handle) : ibv_alloc_pd(context);
		assert_non_null(pd);
		mr = imported ? ibv_import_mr(pd, pair.b.mr->handle)
			      : ibv_reg_mr(pd, pair.b.buffer, 64, EDGE_ALL_ACCESS);
		assert_non_null(mr);
		assert_int_equal(ibv_close_device(context), 0);
		assert_int_equal(descriptors(), before);
		ibv_unimport_mr(mr);
		ibv_unimport_pd(pd);
		assert_int_equal(descriptors(), before);
	}
	write_across(&pair, IBV_WC_SUCCESS);
	edge_close(&pair);
}

static void device_memory_with_two_owners(void **state)
{
	struct twin t;
	struct ibv_alloc_dm_attr attr = {.length = 64};
	uint32_t word = 0x01020304;
	struct ibv_dm *dm, *imported;
	struct ibv_mr *mr;

	open_twin(&t);
	dm = ibv_alloc_dm(t.pair.b.context, &attr);
	assert_non_null(dm);
	imported = ibv_import_dm(t.context, dm->handle);
	assert_non_null(imported);
	assert_int_equal(imported->handle, dm->handle);
	assert_int_equal(ibv_memcpy_to_dm(imported, 8, &word, 4), 0);
	word = 0;
	assert_int_equal(ibv_memcpy_from_dm(&word, dm, 8, 4), 0);
	assert_int_equal(word, 0x01020304);
	mr = ibv_reg_dm_mr(t.pd, imported, 0, 64, IBV_ACCESS_ZERO_BASED);
	assert_non_null(mr);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	assert_int_not_equal(ibv_memcpy_from_dm(&word, imported, 8, 4), 0);
	ibv_unimport_dm(imported);
	errno = 0;
	assert_null(ibv_import_dm(t.context, 0xffffffff));
	assert_int_equal(errno, ENOENT);
	ibv_unimport_mr(t.mr);
	ibv_unimport_pd(t.pd);
	assert_int_equal(ibv_close_device(t.context), 0);
	edge_close(&t.pair);
}

/* Handles are good in the family alone. */
static void a_strange_context_finds_nothing(void **state)
{
	struct edge_pair pair;
	struct ibv_context *strange;
	struct ibv_pd *pd;

	edge_open(&pair, &(struct edge_options){0});
	strange = ibv_open_device(pair.b.context->device);
	assert_non_null(strange);
	errno = 0;
	assert_null(ibv_import_pd(strange, pair.b.pd->handle));
	assert_int_equal(errno, ENOENT);
	pd = ibv_alloc_pd(strange);
	assert_non_null(pd);
	errno = 0;
	assert_null(ibv_import_mr(pd, pair.b.mr->handle));
	assert_int_equal(errno, ENOENT);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(strange), 0);
	edge_close(&pair);
}

static void expect_no_import(int fd, int error)
{
	errno = 0;
	assert_null(ibv_import_device(fd));
	assert_int_equal(errno, error);
}

static void wrong_descriptors(void **state)
{
	struct edge_pair pair;
	int fd, pipes[2], status;
	pid_t pid;

	edge_open(&pair, &(struct edge_options){0});
	expect_no_import(-1, EINVAL);
	assert_int_equal(pipe(pipes), 0);
	expect_no_import(pipes[0], EINVAL);
	close(pipes[0]);
	close(pipes[1]);
	fd = open("/dev/null", O_RDWR);
	expect_no_import(fd, ENODEV);
	close(fd);
	fflush(NULL);
	pid = fork(); /* what it inherited is the parent's; what it imports it can use */
	assert_true(pid >= 0);
	if (pid == 0) {
		struct ibv_context *context = ibv_import_device(dup(pair.a.context->cmd_fd));

		_exit(!context || !ibv_import_pd(context, pair.a.pd->handle) ||
		      ibv_close_device(context));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	edge_close(&pair);
}

/* The descriptor may have travelled through a socket on its way. */
static void by_scm_rights(void **state)
{
	struct edge_pair pair;
	struct ibv_context *context;
	struct iovec byte = {(char[]){'x'}, 1};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &byte,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	int sockets[2], fd;

	edge_open(&pair, &(struct edge_options){0});
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.header), &pair.a.context->cmd_fd, sizeof(int));
	assert_int_equal(sendmsg(sockets[0], &message, 0), 1);
	assert_int_equal(recvmsg(sockets[1], &message, 0), 1);
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(int));
	context = ibv_import_device(fd);
	assert_non_null(context);
	assert_int_equal(ibv_close_device(context), 0);
	close(sockets[0]);
	close(sockets[1]);
	edge_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unimported_it_stays),
		cmocka_unit_test(used_by_the_twin),
		cmocka_unit_test(deregistered_by_the_twin),
		cmocka_unit_test(closed_first_it_stays_the_twins),
		cmocka_unit_test(closed_with_shells_alive),
		cmocka_unit_test(device_memory_with_two_owners),
		cmocka_unit_test(a_strange_context_finds_nothing),
		cmocka_unit_test(wrong_descriptors),
		cmocka_unit_test(by_scm_rights),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
