/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timer.c - sends whose answer does not come: repeated, and given back when that does not help.
 *
 * A program may wait for its descriptor alone, so that somebody else must watch the time: a thread,
 * for each port that has sent something that waits. It sleeps until the earliest deadline. Who
 * waits for a message with a timeout looks as well when that is over: programs give the same
 * timeout to umad_send and umad_recv, and expect the send to be given up first.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "host/last.h"
#include "umad/face.h"

#define STACK_BYTES (256u * 1024)

void vb_umad_send_forget(struct vb_umad_port *port, struct vb_umad_send *send)
{
	vb_list_remove(&send->link);
	port->send_count--;
	free(send->message);
	free(send);
}

static struct vb_umad_send *earliest(struct vb_umad_port *port)
{
	struct vb_umad_send *found = NULL;
	struct vb_list *link, *tmp;

	vb_list_for_each(link, tmp, &port->sends)
	{
		struct vb_umad_send *send = vb_list_entry(link, struct vb_umad_send, link);

		if (!found || send->deadline_ns < found->deadline_ns)
			found = send;
	}
	return found;
}

uint64_t vb_umad_deadline(uint32_t timeout_ms)
{
	return timeout_ms > INT32_MAX ? VB_NEVER : vb_engine_now() + timeout_ms * 1000000ull;
}

void vb_umad_give_up(struct vb_umad_port *port, struct vb_umad_send *send, int status)
{
	struct vb_umad_message *message = send->message;

	message->head.status = (uint32_t)status;
	send->message = NULL;
	vb_umad_send_forget(port, send);
	vb_umad_queue(port, message);
}

/* Once more, without the lock: the answer may come meanwhile. */
static void repeat(struct vb_umad_port *port, struct vb_umad_send *send)
{
	const struct vb_umad_send copy = *send;
	uint8_t mad[VB_MAD_BYTES];
	int ignored;

	send->retries--;
	if (vb_umad_rmpp_is_sending(send)) {
		vb_umad_rmpp_repeat(port, send);
		return;
	}
	send->deadline_ns = vb_umad_deadline(send->message->head.timeout_ms);
	if (!copy.by_wire || copy.transfer.segments > 0) /* the peer has it, and says so */
		return;
	memcpy(mad, send->message->mad, sizeof(mad));
	pthread_mutex_unlock(&port->lock);
	ignored = vb_gsi_send(port->engine, &copy.to, copy.qpn, copy.qkey, mad);
	(void)ignored; /* one more that is lost */
	pthread_mutex_lock(&port->lock);
}

static void sleep_until(struct vb_umad_port *port, uint64_t deadline_ns)
{
	const struct timespec time = {
		.tv_sec = (time_t)(deadline_ns / 1000000000u),
		.tv_nsec = (long)(deadline_ns % 1000000000u),
	};

	if (deadline_ns == VB_NEVER)
		pthread_cond_wait(&port->timer_wake, &port->lock);
	else
		pthread_cond_timedwait(&port->timer_wake, &port->lock, &time);
}

uint64_t vb_umad_timer_run(struct vb_umad_port *port)
{
	struct vb_umad_send *send;

	vb_umad_rmpp_flush(port);
	while ((send = earliest(port)) != NULL) {
		if (send->deadline_ns > vb_engine_now())
			return send->deadline_ns;
		if (send->retries > 0)
			repeat(port, send);
		else
			vb_umad_give_up(port, send, ETIMEDOUT);
		vb_umad_rmpp_flush(port);
	}
	return VB_NEVER;
}

static void *timer_main(void *arg)
{
	struct vb_umad_port *port = arg;

	vb_host_thread_begins();
	prctl(PR_SET_NAME, "verbena-umad");
	pthread_mutex_lock(&port->lock);
	while (!port->timer_stop) {
		uint64_t next = vb_umad_timer_run(port);

		if (!port->timer_stop)
			sleep_until(port, next);
	}
	pthread_mutex_unlock(&port->lock);
	vb_host_thread_ends();
	return NULL;
}

int vb_umad_timer_watch(struct vb_umad_port *port)
{
	sigset_t all, before;
	pthread_attr_t attr;
	int rc;

	if (port->timer_started) {
		pthread_cond_signal(&port->timer_wake);
		return 0;
	}
	/* The program's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	rc = pthread_create(&port->timer, &attr, timer_main, port);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	port->timer_started = rc == 0;
	return -rc;
}

void vb_umad_timer_stop(struct vb_umad_port *port)
{
	bool started;

	pthread_mutex_lock(&port->lock);
	port->timer_stop = true;
	started = port->timer_started;
	pthread_cond_signal(&port->timer_wake);
	pthread_mutex_unlock(&port->lock);
	if (started)
		pthread_join(port->timer, NULL);
}
