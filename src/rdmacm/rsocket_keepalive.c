/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_keepalive.c - the thread that sends keepalives.
 *
 * A keepalive is an RDMA WRITE of no bytes: the peer's adapter acknowledges it, its program sees
 * nothing, and when nobody acknowledges the queue pair fails, which wakes whoever waits. The thread
 * starts with the first rsocket that asks for it, and stays; it sleeps until the next one is due.
 */
#include "rdmacm/rsocket.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "host/last.h"

#define KERNEL_DEFAULT "/proc/sys/net/ipv4/tcp_keepalive_time"

enum { DEFAULT_S = 7200 };

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static struct vb_list list = {&list, &list};

static int default_seconds(void)
{
	FILE *file = fopen(KERNEL_DEFAULT, "re");
	int seconds = DEFAULT_S;

	if (!file)
		return seconds;
	if (fscanf(file, "%d", &seconds) != 1 || seconds <= 0)
		seconds = DEFAULT_S;
	fclose(file);
	return seconds;
}

static void send_keepalive(struct vb_rs *rs)
{
	pthread_mutex_lock(&rs->lock);
	if (rs->stream.keepalive)
		vb_rs_post_keepalive(rs);
	pthread_mutex_unlock(&rs->lock);
}

/* Takes one that is due off the list's head and to its end; the time of the next one otherwise. */
static struct vb_rs *next_due(uint64_t now, uint64_t *next)
{
	struct vb_list *link, *tmp;

	*next = UINT64_MAX;
	vb_list_for_each(link, tmp, &list)
	{
		struct vb_rs *rs = vb_list_entry(link, struct vb_rs, stream.keepalive_link);

		if (rs->stream.keepalive_at_ns <= now) {
			rs->stream.keepalive_at_ns =
				now + (uint64_t)rs->stream.keepalive_s * 1000000000u;
			atomic_fetch_add(&rs->references, 1);
			return rs;
		}
		if (rs->stream.keepalive_at_ns < *next)
			*next = rs->stream.keepalive_at_ns;
	}
	return NULL;
}

static void *run(void *unused)
{
	vb_host_thread_begins();
	pthread_mutex_lock(&list_lock);
	for (;;) {
		uint64_t next;
		struct vb_rs *rs = next_due(vb_rs_now_ns(), &next);

		if (rs) {
			pthread_mutex_unlock(&list_lock);
			send_keepalive(rs);
			vb_rs_put(rs);
			pthread_mutex_lock(&list_lock);
		} else if (next == UINT64_MAX) {
			pthread_cond_wait(&changed, &list_lock);
		} else {
			struct timespec until = {(time_t)(next / 1000000000u),
						 (long)(next % 1000000000u)};

			pthread_cond_timedwait(&changed, &list_lock, &until);
		}
	}
	return NULL;
}

static int start_result;

/* The thread takes no signals: they are the program's. */
static void start(void)
{
	pthread_condattr_t monotonic;
	sigset_t all, before;
	pthread_t thread;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	start_result = -pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!start_result)
		pthread_detach(thread);
}

int vb_rs_keepalive_start(struct vb_rs *rs)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start);
	if (start_result)
		return start_result;
	pthread_mutex_lock(&list_lock);
	if (!rs->stream.keepalive_s)
		rs->stream.keepalive_s = default_seconds();
	rs->stream.keepalive_at_ns =
		vb_rs_now_ns() + (uint64_t)rs->stream.keepalive_s * 1000000000u;
	if (!vb_list_is_linked(&rs->stream.keepalive_link))
		vb_list_append(&list, &rs->stream.keepalive_link);
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&list_lock);
	return 0;
}

void vb_rs_keepalive_stop(struct vb_rs *rs)
{
	pthread_mutex_lock(&list_lock);
	vb_list_remove(&rs->stream.keepalive_link);
	pthread_mutex_unlock(&list_lock);
}
