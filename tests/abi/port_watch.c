/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * port_watch.c - a program that opens a device, waits in poll(2) on its async descriptor, and says
 * each event with the port's states at that time: "port error: state 1, physical state 3".
 *
 * It calls nothing else meanwhile. With "spin" a second thread polls a CQ all the time.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/verbs.h>

static void say(struct ibv_context *context, const char *what)
{
	struct ibv_port_attr port;

	if (ibv_query_port(context, 1, &port) == 0)
		printf("%s: state %d, physical state %d\n", what, port.state, port.phys_state);
}

static void *spin(void *arg)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(arg, 1, &wc) == 0)
		;
	return NULL;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_async_event event;
	struct pollfd async;
	pthread_t thread;

	if (!context)
		return 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && strcmp(argv[1], "spin") == 0) {
		struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);

		if (!cq || pthread_create(&thread, NULL, spin, cq) != 0)
			return 1;
	}
	say(context, "open");
	async = (struct pollfd){.fd = context->async_fd, .events = POLLIN};
	while (poll(&async, 1, -1) == 1 && ibv_get_async_event(context, &event) == 0) {
		if (event.element.port_num != 1)
			return 1;
		say(context, ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
	return 1;
}
