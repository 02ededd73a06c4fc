/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program's first thread leaves by pthread_exit(), and its other threads end when they are done.
 * When the last one ends the process does, with status 0 and through its exit handlers, as
 * pthread_exit(3) says: with hardware no thread is left then.
 *
 * Each program is a process of its own, which opens a device and says into a pipe how far it came.
 */
#define _GNU_SOURCE /* gettid */
#include "edge.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 20

/* The programs are processes in which no test of cmocka's is to go on. */
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: not %s\n", __LINE__, #condition);                \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static int out; /* the pipe's end, of the program */
static int in;	/* another one's */
static pthread_t first;
static struct ibv_context *context;

static void say(char letter)
{
	MUST(write(out, &letter, 1) == 1);
}

static void hear(void)
{
	char letter;

	MUST(read(in, &letter, 1) == 1);
}

static void at_exit(void)
{
	say('e');
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list);
	MUST(list[0]);
	context = ibv_open_device(list[0]);
	MUST(context);
	ibv_free_device_list(list);
}

/* One message over a queue pair that is connected with itself: all works yet. */
static void use_device(void)
{
	static uint8_t bytes[16];
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof(bytes), EDGE_ALL_ACCESS);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_sge sge = {(uintptr_t)bytes, 8, mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)bytes + 8, .rkey = mr->rkey},
	};
	struct ibv_send_wr *bad;
	const double until = edge_seconds() + PATIENCE_S;
	struct ibv_wc wc;
	union ibv_gid gid;
	int got;

	MUST(qp);
	MUST(ibv_query_gid(context, 1, 1, &gid) == 0);
	edge_connect_qp(qp, qp, &gid, EDGE_ALL_ACCESS);
	MUST(ibv_post_send(qp, &wr, &bad) == 0);
	while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
		MUST(edge_seconds() < until);
	MUST(got == 1);
	MUST(wc.status == IBV_WC_SUCCESS);
	say('u');
}

static void start(void *(*run)(void *))
{
	pthread_t thread;

	first = pthread_self();
	MUST(pthread_create(&thread, NULL, run, NULL) == 0);
	MUST(pthread_detach(thread) == 0);
}

static void await_end_of_first(void)
{
	MUST(pthread_join(first, NULL) == 0);
	say('f');
}

/* --- the programs ------------------------------------------------------------------------ */

static void ends_alone(void)
{
	open_device();
	use_device();
	pthread_exit(NULL);
}

static void closes_and_ends(void)
{
	open_device();
	MUST(ibv_close_device(context) == 0);
	pthread_exit(NULL);
}

static void *returns_later(void *arg)
{
	await_end_of_first();
	use_device();
	hear();
	return arg;
}

static void leaves_one_who_returns(void)
{
	open_device();
	start(returns_later);
	pthread_exit(NULL);
}

static void *exits_later(void *arg)
{
	(void)arg;
	await_end_of_first();
	hear();
	pthread_exit(NULL);
}

static void leaves_one_who_exits(void)
{
	open_device();
	start(exits_later);
	pthread_exit(NULL);
}

static void *opens_later(void *arg)
{
	await_end_of_first();
	open_device();
	use_device();
	hear();
	return arg;
}

static void leaves_one_who_opens(void)
{
	start(opens_later);
	pthread_exit(NULL);
}

/* Its child's first thread is this one. It stays as long as the child does, since the signal at the
 * parent's death comes when the thread that forked ends, and not when the process does. */
static void *forks(void *arg)
{
	pid_t child;
	int status;

	use_device();
	child = fork();
	MUST(child >= 0);
	if (child == 0) {
		MUST(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		open_device();
		use_device();
		pthread_exit(NULL);
	}
	MUST(waitpid(child, &status, 0) == child);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	say('c');
	return arg;
}

static void ends_in_a_child(void)
{
	pthread_t thread;

	open_device();
	MUST(pthread_create(&thread, NULL, forks, NULL) == 0);
	MUST(pthread_join(thread, NULL) == 0);
	pthread_exit(NULL);
}

static pid_t expected_in;

static void on_signal(int number)
{
	(void)number;
	MUST(gettid() == expected_in);
	say('s');
}

static void *takes_a_signal(void *arg)
{
	expected_in = gettid();
	await_end_of_first();
	for (int i = 0; i < 2; i++) {
		hear(); /* the signal was sent before */
		say('h');
	}
	return arg;
}

static void leaves_one_with_a_handler(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	MUST(sigaction(SIGTERM, &action, NULL) == 0);
	open_device();
	start(takes_a_signal);
	pthread_exit(NULL);
}

static void hang(void)
{
	say('x');
	for (;;)
		pause();
}

/* Whoever runs its exit handler hears the signals that its threads heard. */
static void hangs_at_exit(void)
{
	MUST(atexit(hang) == 0);
	open_device();
	pthread_exit(NULL);
}

/* --- how they end ------------------------------------------------------------------------ */

struct program {
	pid_t pid;
	int out, in;
};

static struct program run(void (*what)(void))
{
	int output[2], input[2];
	struct program program;

	assert_int_equal(pipe(output), 0);
	assert_int_equal(pipe(input), 0);
	program.pid = fork();
	assert_true(program.pid >= 0);
	if (program.pid == 0) {
		close(output[0]);
		close(input[1]);
		out = output[1];
		in = input[0];
		MUST(atexit(at_exit) == 0);
		what();
		_exit(1);
	}
	close(output[1]);
	close(input[0]);
	program.out = output[0];
	program.in = input[1];
	return program;
}

static void expect_said(const struct program *program, const char *text)
{
	struct pollfd fd = {.fd = program->out, .events = POLLIN};
	char letter;

	for (; *text; text++) {
		if (poll(&fd, 1, PATIENCE_S * 1000) != 1) {
			kill(program->pid, SIGKILL);
			fail_msg("the program has not said '%c'", *text);
		}
		assert_int_equal(read(program->out, &letter, 1), 1);
		assert_int_equal(letter, *text);
	}
}

static void tell(const struct program *program)
{
	assert_int_equal(write(program->in, "x", 1), 1);
}

/* The end of its output is its end, or that of whoever holds it last. */
static int status_at_end(struct program *program)
{
	const double until = edge_seconds() + PATIENCE_S;
	const struct timespec pause = {.tv_nsec = 1000 * 1000};
	int status;
	pid_t got;

	while ((got = waitpid(program->pid, &status, WNOHANG)) == 0 && edge_seconds() < until)
		nanosleep(&pause, NULL);
	if (got == 0) {
		kill(program->pid, SIGKILL);
		waitpid(program->pid, &status, 0);
		fail_msg("the program did not end");
	}
	close(program->out);
	close(program->in);
	return status;
}

static void when_the_first_is_the_last(void **state)
{
	struct program program = run(ends_alone);

	(void)state;
	expect_said(&program, "ue");
	assert_int_equal(status_at_end(&program), 0);
	program = run(closes_and_ends);
	expect_said(&program, "e");
	assert_int_equal(status_at_end(&program), 0);
}

static void when_another_is_the_last(void **state)
{
	struct program program = run(leaves_one_who_returns);

	(void)state;
	expect_said(&program, "fu");
	tell(&program);
	expect_said(&program, "e");
	assert_int_equal(status_at_end(&program), 0);
	program = run(leaves_one_who_exits);
	expect_said(&program, "f");
	tell(&program);
	expect_said(&program, "e");
	assert_int_equal(status_at_end(&program), 0);
	program = run(leaves_one_who_opens);
	expect_said(&program, "fu");
	tell(&program);
	expect_said(&program, "e");
	assert_int_equal(status_at_end(&program), 0);
}

static void in_a_child(void **state)
{
	struct program program = run(ends_in_a_child);

	(void)state;
	expect_said(&program, "uuece");
	assert_int_equal(status_at_end(&program), 0);
}

/* Not on the threads of the library, which are there as well. */
static void signals_meanwhile(void **state)
{
	struct program program = run(leaves_one_with_a_handler);

	(void)state;
	expect_said(&program, "f");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kill(program.pid, SIGTERM), 0);
		expect_said(&program, "s");
		tell(&program);
		expect_said(&program, "h");
	}
	expect_said(&program, "e");
	assert_int_equal(status_at_end(&program), 0);
}

static void signals_at_the_end(void **state)
{
	struct program program = run(hangs_at_exit);
	int status;

	(void)state;
	expect_said(&program, "x");
	assert_int_equal(kill(program.pid, SIGTERM), 0);
	status = status_at_end(&program);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
}

static void be_a_host(void)
{
	const char *topology = getenv("VB_EDGE_TOPOLOGY");
	const unsigned int pid = (unsigned int)getpid();
	char host[32];

	assert_non_null(topology);
	snprintf(host, sizeof(host), "127.%u.%u.4", 64 + pid / 256 % 64, pid % 256);
	setenv("VERBENA_ADDR", host, 1);
	setenv("VERBENA_LOCAL", strcmp(topology, "wire") == 0 ? "0" : "1", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(when_the_first_is_the_last),
		cmocka_unit_test(when_another_is_the_last),
		cmocka_unit_test(in_a_child),
		cmocka_unit_test(signals_meanwhile),
		cmocka_unit_test(signals_at_the_end),
	};

	be_a_host();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
