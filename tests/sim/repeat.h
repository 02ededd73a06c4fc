/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * repeat.h - a simulation that fails or crashes says how to repeat it, also where a sanitizer ends
 * the process.
 */
#ifndef VB_TESTS_SIM_REPEAT_H
#define VB_TESTS_SIM_REPEAT_H

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Called by the sanitizers' runtimes, where there is one, before the process ends. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static char repeat[192]; /* how to repeat what runs; with its end of line */

static void say_repeat(void)
{
	if (write(STDERR_FILENO, repeat, strlen(repeat)) < 0)
		_exit(1);
}

static void on_crash(int signal_number)
{
	say_repeat();
	signal(signal_number, SIG_DFL);
	raise(signal_number);
}

static void say_repeat_when_it_crashes(void)
{
	signal(SIGABRT, on_crash);
	signal(SIGSEGV, on_crash);
	signal(SIGBUS, on_crash);
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(say_repeat);
}

static uint64_t wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
