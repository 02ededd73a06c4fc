/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * demo.c - verbena demo: Debian's own programs between two virtual hosts, as one table.
 *
 * A virtual host is an address of 127.0.0.0/8. Each step runs one program, on one host or as server
 * and client on two; the row appears when its result is known. On a terminal the step under way is
 * shown in its place. The whole demo has one time limit, each step another, so that it always ends.
 */
#include <errno.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tools/child.h"
#include "tools/results.h"
#include "tools/tools.h"

#define DEMO_LIMIT_NS (55 * VB_NS_PER_S) /* under a minute, whatever happens */
#define STEP_LIMIT_NS (15 * VB_NS_PER_S)
#define ARGUMENTS_MAX 10
#define START_TRIES 3 /* another program may take the port that was free */
#define HOST_PAIRS 16 /* another user may have the first pair's port 4791 */
#define ROCE_PORT 4791

struct step {
	const char *program;
	const char *what, *size;
	const char *arguments[ARGUMENTS_MAX]; /* up to the first NULL */
	bool pair;			      /* a server and a client */
	vb_result_fn *result;
};

static const struct step steps[] = {
	{"ibv_devinfo", "device and port", "", {NULL}, false, vb_result_devinfo},
	{"ibv_rc_pingpong",
	 "SEND and RECEIVE, round trip",
	 "4 KiB",
	 {"-g", "0", "-n", "1000"},
	 true,
	 vb_result_pingpong},
	{"ib_write_bw",
	 "RDMA WRITE, bandwidth",
	 "1 MiB",
	 {"-F", "-s", "1048576", "-n", "1000"},
	 true,
	 vb_result_bandwidth},
	{"ib_read_bw",
	 "RDMA READ, bandwidth",
	 "1 MiB",
	 {"-F", "-s", "1048576", "-n", "1000"},
	 true,
	 vb_result_bandwidth},
	{"ib_send_lat",
	 "SEND, latency",
	 "8 B",
	 {"-F", "-s", "8", "-n", "2000"},
	 true,
	 vb_result_latency},
	{"ib_atomic_bw", "FETCH AND ADD, rate", "8 B", {"-F", "-n", "2000"}, true, vb_result_rate},
};

struct outcome {
	bool ok;
	char result[64];
	char *output; /* of a step that failed: what was run and what it said */
};

struct demo {
	char server[INET_ADDRSTRLEN], client[INET_ADDRSTRLEN];
	uint64_t deadline_ns;
	bool terminal;
};

/* address_is_free - no other user holds the RoCE port of that address (processes of one user share
 * it). */
static bool address_is_free(const char *text)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(ROCE_PORT)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int one = 1;
	bool ok;

	if (fd < 0)
		return true; /* the programs will say what is wrong */
	inet_pton(AF_INET, text, &address.sin_addr);
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	ok = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno != EADDRINUSE;
	close(fd);
	return ok;
}

static void choose_hosts(struct demo *demo)
{
	for (unsigned int i = 0; i < HOST_PAIRS; i++) {
		snprintf(demo->server, sizeof(demo->server), "127.0.%u.2", i);
		snprintf(demo->client, sizeof(demo->client), "127.0.%u.3", i);
		if (address_is_free(demo->server) && address_is_free(demo->client))
			return;
	}
}

static void describe_end(const struct vb_child *child, const char *role, FILE *to)
{
	char *text = vb_child_output(child);

	if (!child->ended)
		fprintf(to, "--- %s: did not end in time\n", role);
	else if (WIFSIGNALED(child->status))
		fprintf(to, "--- %s: ended by signal %d (%s)\n", role, WTERMSIG(child->status),
			strsignal(WTERMSIG(child->status)));
	else
		fprintf(to, "--- %s: exit status %d\n", role, WEXITSTATUS(child->status));
	if (text)
		fputs(text, to);
	free(text);
}

/* build_arguments - the program, the step's arguments, the port and the server's address. */
static void build_arguments(const struct step *step, const char *port, const char *server,
			    char *argv[ARGUMENTS_MAX + 5])
{
	int argc = 0;

	argv[argc++] = (char *)step->program;
	for (int i = 0; i < ARGUMENTS_MAX && step->arguments[i]; i++)
		argv[argc++] = (char *)step->arguments[i];
	if (port) {
		argv[argc++] = (char *)"-p";
		argv[argc++] = (char *)port;
	}
	if (server)
		argv[argc++] = (char *)server;
	argv[argc] = NULL;
}

/* start_server - running and listening. False: it ended or cannot be started; see child->pid. */
static bool start_server(const struct demo *demo, const struct step *step, char port[8],
			 struct vb_child *child, uint64_t deadline_ns)
{
	char *argv[ARGUMENTS_MAX + 5];

	for (int try = 1;; try++) {
		uint16_t number = vb_free_tcp_port();

		snprintf(port, 8, "%u", number);
		build_arguments(step, port, NULL, argv);
		if (vb_child_start(child, argv, demo->server) != 0)
			return false;
		if (vb_child_wait_listening(child, number, deadline_ns))
			return true;
		if (!child->ended || try == START_TRIES ||
		    WEXITSTATUS(child->status) == VB_EXIT_NOT_FOUND)
			return false;
		vb_child_end(child);
	}
}

/* conclude - the outcome of children that have ended or run out of time. The first has the result.
 */
static void conclude(const struct step *step, struct vb_child *children, const char *const *roles,
		     int count, struct outcome *out)
{
	char *text = vb_child_output(&children[0]);
	size_t size;
	FILE *to;

	out->ok = text && step->result(text, out->result, sizeof(out->result));
	free(text);
	for (int i = 0; i < count; i++)
		out->ok = out->ok && vb_child_succeeded(&children[i]);
	if (out->ok)
		return;
	snprintf(out->result, sizeof(out->result), "-");
	to = open_memstream(&out->output, &size);
	if (!to)
		return;
	for (int i = 0; i < count; i++)
		if (children[i].pid)
			describe_end(&children[i], roles[i], to);
		else
			fprintf(to, "--- %s: was not started\n", roles[i]);
	fclose(to);
}

static void run_pair(const struct demo *demo, const struct step *step, uint64_t deadline_ns,
		     struct outcome *out)
{
	static const char *const roles[] = {"client", "server"};
	struct vb_child children[2] = {0};
	struct vb_child *client = &children[0], *server = &children[1];
	char *argv[ARGUMENTS_MAX + 5];
	char port[8];

	if (start_server(demo, step, port, server, deadline_ns)) {
		build_arguments(step, port, demo->server, argv);
		if (vb_child_start(client, argv, demo->client) == 0 &&
		    vb_child_wait(client, deadline_ns))
			vb_child_wait(server, deadline_ns);
	}
	conclude(step, children, roles, 2, out);
	vb_child_end(client);
	vb_child_end(server);
}

/* run_on_each - a program without a peer: on both hosts, shown once. */
static void run_on_each(const struct demo *demo, const struct step *step, uint64_t deadline_ns,
			struct outcome *out)
{
	const char *const roles[] = {demo->server, demo->client};
	struct vb_child children[2] = {0};
	char *argv[ARGUMENTS_MAX + 5];

	build_arguments(step, NULL, NULL, argv);
	for (int i = 0; i < 2; i++)
		if (vb_child_start(&children[i], argv, roles[i]) == 0)
			vb_child_wait(&children[i], deadline_ns);
	conclude(step, children, roles, 2, out);
	for (int i = 0; i < 2; i++)
		vb_child_end(&children[i]);
}

static void run_step(const struct demo *demo, const struct step *step, struct outcome *out)
{
	uint64_t deadline_ns = VB_MIN(vb_tools_now() + STEP_LIMIT_NS, demo->deadline_ns);

	if (demo->terminal) {
		printf("  %-16s %-29s %-6s running ...", step->program, step->what, step->size);
		fflush(stdout);
	}
	if (step->pair)
		run_pair(demo, step, deadline_ns, out);
	else
		run_on_each(demo, step, deadline_ns, out);
	printf("%s  %-16s %-29s %-6s %20s  %s\n", demo->terminal ? "\r\033[K" : "", step->program,
	       step->what, step->size, out->result, out->ok ? "ok" : "FAILED");
	fflush(stdout);
}

static int demo_main(int argc, char **argv)
{
	struct outcome outcomes[VB_ARRAY_SIZE(steps)] = {0};
	struct demo demo = {.terminal = isatty(STDOUT_FILENO)};
	uint64_t start = vb_tools_now();
	unsigned int failed = 0;

	if (argc > 1) {
		vb_complain("demo takes no argument \"%s\"", argv[1]);
		return VB_EXIT_USAGE;
	}
	if (!vb_use_libraries())
		return VB_EXIT_FAILED;
	demo.deadline_ns = start + DEMO_LIMIT_NS;
	choose_hosts(&demo);
	printf("Debian's own RDMA programs between two virtual hosts, %s and %s:\n\n", demo.server,
	       demo.client);
	printf("  %-16s %-29s %-6s %20s\n", "program", "what", "size", "result");
	for (size_t i = 0; i < VB_ARRAY_SIZE(steps); i++) {
		run_step(&demo, &steps[i], &outcomes[i]);
		failed += !outcomes[i].ok;
	}
	printf("\n%zu of %zu ok in %.1f s\n", VB_ARRAY_SIZE(steps) - failed, VB_ARRAY_SIZE(steps),
	       (double)(vb_tools_now() - start) / 1e9);
	for (size_t i = 0; i < VB_ARRAY_SIZE(steps); i++) {
		if (!outcomes[i].ok)
			printf("\n%s failed:\n%s", steps[i].program,
			       outcomes[i].output ? outcomes[i].output : "(no output)\n");
		free(outcomes[i].output);
	}
	return failed ? VB_EXIT_FAILED : 0;
}

const struct vb_command vb_command_demo = {
	.name = "demo",
	.summary = "two virtual hosts, and Debian's RDMA programs between them",
	.help = "verbena demo\n\n"
		"Runs ibv_devinfo, ibv_rc_pingpong, ib_write_bw, ib_read_bw, ib_send_lat and\n"
		"ib_atomic_bw, as Debian ships them, between two virtual hosts of this machine,\n"
		"127.0.0.2 and 127.0.0.3, and shows what they measured as one table. No privilege\n"
		"is needed. It ends in under a minute.\n\n"
		"A virtual host is any address of 127.0.0.0/8, named by VERBENA_ADDR. When "
		"another\n"
		"user of the machine has the RoCE port of these two, 127.0.1.2 and 127.0.1.3 are\n"
		"taken, and so on.\n\n"
		"Exit status: 0 when all succeeded; 1 when one failed, after its output.\n",
	.main = demo_main,
};
