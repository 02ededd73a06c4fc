/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * last.c - the program ends when its own last thread does.
 *
 * A thread that ends by pthread_exit() leaves the process to the others, the first one too, and the
 * C library calls exit(0) in whichever comes last. With hardware these are the program's threads;
 * here ours are among them, and theirs never end. So somebody has to notice that nobody but them is
 * left, and to call exit(0) instead.
 *
 *      the first thread ends ---> the watcher starts ---> only ours are left ---> exit(0)
 *      a thread-specific key's    looks every 100 ms      /proc/self/stat
 *      destructor
 *
 * Until the first thread ends nothing runs, and afterwards one look in 100 ms, which is one file
 * read, as long as the other threads live. A first thread that ends is a zombie until the process
 * does, so only ours are left when its state is Z and there is one thread more than we have. Ours
 * count themselves as they begin and end, so that there are never fewer than are counted.
 *
 * The library may have been loaded by another thread than the first, which then never came to us
 * and has no key. Then every thread that opens a device has one, and the watcher starts when the
 * first of those ends.
 *
 * The watcher is a thread of its own, with a stack as the program's exit handlers may expect it,
 * and with all signals blocked until it is the last: handlers run where the program lets them. Then
 * it takes the signal mask of the thread that ended. Without /proc the process does not end by
 * itself.
 */
#define _GNU_SOURCE /* gettid */
#include "host/last.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define FIRST_LOOK_NS (1000 * 1000)
#define LONGEST_NS (100 * 1000 * 1000)
#define FIELDS_TO_THREADS 17 /* of /proc/self/stat, from the state to the number of threads */

#define ONE_THREAD ((uint64_t)1)
#define ONE_CHANGE ((uint64_t)1 << 32)

static pthread_key_t key;
static bool has_key;
static _Atomic uint64_t ours;	   /* threads; and in the upper half how often that has changed */
static atomic_bool first_has_key;  /* the first thread */
static atomic_bool somebody_ended; /* who matters */
static atomic_bool watched;
static atomic_bool has_mask;
static sigset_t mask; /* of who ended first */

static uint32_t threads_of(uint64_t word)
{
	return (uint32_t)word;
}

/* --- the watcher ------------------------------------------------------------------------- */

/* read_state - of the process: that of its first thread, and how many threads there are. */
static bool read_state(char *state, unsigned long *threads)
{
	char text[1024];
	const char *at;
	ssize_t got;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return false;
	text[got] = '\0';
	at = strrchr(text, ')'); /* the name before it may be anything */
	if (!at || at[1] != ' ')
		return false;
	*state = at[2];
	for (int field = 0; at && field <= FIELDS_TO_THREADS; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return false;
	*threads = strtoul(at, NULL, 10);
	return true;
}

static bool only_ours_are_left(void)
{
	const uint64_t before = atomic_load(&ours);
	unsigned long threads;
	char state;

	return read_state(&state, &threads) && state == 'Z' &&
	       threads == (unsigned long)threads_of(before) + 1 && atomic_load(&ours) == before;
}

static void *watch(void *arg)
{
	struct timespec pause = {.tv_nsec = FIRST_LOOK_NS};

	prctl(PR_SET_NAME, "verbena-last");
	vb_host_thread_begins();
	while (!only_ours_are_left()) {
		nanosleep(&pause, NULL);
		if ((pause.tv_nsec *= 2) > LONGEST_NS)
			pause.tv_nsec = LONGEST_NS;
	}
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	exit(0);
	return arg;
}

static void watch_if_needed(void)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	if (!atomic_load(&somebody_ended) || threads_of(atomic_load(&ours)) == 0 ||
	    atomic_exchange(&watched, true))
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, watch, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		atomic_store(&watched, false);
		fprintf(stderr,
			"verbena: no thread to end the process when the program's last one "
			"does (%s).\n",
			strerror(rc));
	}
}

void vb_host_thread_begins(void)
{
	atomic_fetch_add(&ours, ONE_CHANGE + ONE_THREAD);
	watch_if_needed();
}

void vb_host_thread_ends(void)
{
	atomic_fetch_add(&ours, ONE_CHANGE - ONE_THREAD);
}

/* --- who ends ---------------------------------------------------------------------------- */

static bool is_first(void)
{
	return gettid() == getpid();
}

static void ended(void *value)
{
	(void)value;
	if (!is_first() && atomic_load(&first_has_key))
		return;
	if (!atomic_exchange(&has_mask, true))
		pthread_sigmask(SIG_SETMASK, NULL, &mask);
	atomic_store(&somebody_ended, true);
	watch_if_needed();
}

void vb_last_note_thread(void)
{
	if (!has_key || pthread_setspecific(key, &key) != 0)
		return;
	if (is_first())
		atomic_store(&first_has_key, true);
}

/* Its one thread is its first, whatever it was in the parent. */
static void in_child(void)
{
	atomic_store(&ours, 0);
	atomic_store(&first_has_key, false);
	atomic_store(&somebody_ended, false);
	atomic_store(&watched, false);
	atomic_store(&has_mask, false);
	vb_last_note_thread();
}

__attribute__((constructor)) static void on_load(void)
{
	has_key = pthread_key_create(&key, ended) == 0;
	pthread_atfork(NULL, NULL, in_child);
	vb_last_note_thread();
}
