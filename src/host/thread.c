/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * thread.c - the background thread: runs the NIC while the program does not.
 *
 *                    the program polls               it does not
 *      AWAKE ---------------------------> PARKED  <-----------------+
 *        |  ^                               | 1 ms, or the program is going to wait
 *        |  +-------------------------------+                       |
 *        | nothing left to do: carriers armed                       |
 *        +----------> BLOCKED -- packet, deadline, wake_fd --> AWAKE, or PARKED again
 *
 * A program that polls runs the NIC itself, and a second thread beside it would only take the
 * processor and the lock from it. So poll_cq counts, and while the count moves the thread sleeps, a
 * little at first and up to a millisecond at a time the longer it goes on. It is too late by at
 * most that when the program stops polling with work left; finding work then makes the next sleep
 * short again, for a program that polls a while and then watches its memory, over and over. A
 * program that is going to wait says so (vb_engine_wake_thread) and has the thread at once.
 *
 * The next packet of a stream comes sooner than a sleeper wakes, so after traffic the thread looks
 * on for a moment before it blocks, yielding between looks. It does not do so while others want the
 * processor: where a yield takes long somebody else ran, perhaps the very thread that waits for
 * what was just delivered, and who blocks comes back sooner than who yields.
 *
 * While it is BLOCKED, what the program leaves behind may be due before the thread would wake:
 * vb_thread_notice() then writes wake_fd. To keep that rare where a program posts now and then, the
 * thread looks up every few milliseconds for a while after the last traffic: an ACK timer runs
 * for VB_ACK_TIMEOUT_MIN_NS at least, so the next look comes before it. With no traffic it sleeps
 * for ever.
 *
 * It watches the interface too (port.c): whenever it sleeps, and between its turns now and then.
 */
#define _GNU_SOURCE /* ppoll */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "carrier/local.h"
#include "host/engine.h"
#include "host/last.h"

#define STACK_BYTES (512u * 1024)
#define PARK_FIRST_NS (20u * 1000)
#define PARK_LONGEST_NS (1000u * 1000)
#define TIMER_SLACK_NS 1000u
#define POLLS_OF_A_SPINNER 16u /* fewer since the last look: it polls now and then */
#define SLICE_NS (100u * 1000)
#define NAP_NS (20u * 1000) /* after a failed attempt at the lock */
#define TRIES 100	    /* at the lock */
#define LINGER_NS (50u * 1000)
#define YIELD_TOO_LONG_NS (20u * 1000)
#define SHUN_BLOCKS 64 /* without lingering after a yield that took too long */
#define LOOK_UP_NS (4ull * 1000 * 1000)
#define RECENT_NS (100ull * 1000 * 1000)
#define PORT_NS (10ull * 1000 * 1000) /* between looks at the port without a sleep */

/* What the thread remembers between its looks. */
struct memory {
	uint32_t polls;	  /* at the last park or block */
	bool parked;	  /* parks alone since the last block */
	uint32_t park_ns; /* how long the next park is */
	uint64_t linger_until_ns;
	uint32_t shun; /* blocks to go without lingering */
	uint32_t udp_looks;
	uint64_t traffic;
	uint64_t active_ns; /* when traffic last moved */
	uint64_t port_ns;   /* the next look at the port; 0: it has something to say */
};

static struct timespec span(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / 1000000000u),
		.tv_nsec = (long)(ns % 1000000000u),
	};
}

void vb_thread_wake(struct vb_engine *engine)
{
	const uint64_t one = 1;
	ssize_t ignored;

	if (atomic_exchange(&engine->thread.woken, true))
		return;
	ignored = write(engine->thread.wake_fd, &one, sizeof(one));
	(void)ignored; /* a full counter is readable too */
}

void vb_thread_alarm(struct vb_engine *engine, uint64_t now_ns)
{
	struct vb_thread *thread = &engine->thread;
	struct itimerspec in = {.it_value.tv_nsec = VB_ALARM_NS};

	if (thread->alarm_ns > now_ns + VB_ALARM_NS / 2)
		return;
	thread->alarm_ns = now_ns + VB_ALARM_NS;
	timerfd_settime(thread->alarm_fd, 0, &in, NULL);
}

void vb_engine_wake_thread(struct vb_engine *engine)
{
	atomic_store(&engine->thread.wanted, true);
	if (atomic_load(&engine->thread.state) == VB_THREAD_PARKED)
		vb_thread_wake(engine);
}

void vb_thread_summon(struct vb_engine *engine)
{
	atomic_store(&engine->thread.wanted, true);
	if (atomic_load(&engine->thread.state) != VB_THREAD_AWAKE)
		vb_thread_wake(engine);
}

/* After it, whoever wakes the thread writes again; what they did before is seen from here on. */
static void drain(struct vb_thread *thread)
{
	uint64_t count;
	ssize_t ignored = read(thread->wake_fd, &count, sizeof(count));

	(void)ignored;
	atomic_exchange(&thread->woken, false);
}

static bool try_lock(struct vb_engine *engine)
{
	for (int i = 0; i < TRIES; i++) {
		if (!vb_lock_try(&engine->lock))
			continue;
		vb_engine_took_lock(engine);
		return true;
	}
	return false;
}

static bool is_over(const struct vb_engine *engine)
{
	return atomic_load(&engine->thread.stop) || atomic_load(&engine->life) != VB_ALIVE;
}

static bool program_polls(struct vb_engine *engine, struct memory *memory)
{
	uint32_t polls = atomic_load_explicit(&engine->polls, memory_order_relaxed);

	if (atomic_exchange(&engine->thread.wanted, false)) {
		memory->parked = false;
		memory->polls = polls;
		return false;
	}
	return polls - memory->polls >= (memory->parked ? 1 : POLLS_OF_A_SPINNER);
}

/* The program's polls leave the sockets out where nothing is connected over them; what comes there
 * all the same is looked at once in a park: strays, and MADs for any process of this host. */
static void look_for_strays(struct vb_engine *engine, struct memory *memory)
{
	uint32_t looks = atomic_load_explicit(&engine->udp_looks, memory_order_relaxed);

	if (looks == memory->udp_looks && try_lock(engine)) {
		if (!is_over(engine))
			vb_engine_run(engine, true);
		looks = atomic_load_explicit(&engine->udp_looks, memory_order_relaxed);
		vb_engine_give(engine);
	}
	memory->udp_looks = looks;
}

/* What waits for company waits for the program's next call, which may be long in coming. Posts that
 * are young have their alarm; to look at them more often would take the processor from a program
 * that posts in rows. */
static void release_late(struct vb_engine *engine, struct memory *memory)
{
	if (!vb_hold_waits(&engine->hold))
		return;
	if (!try_lock(engine)) { /* the program is inside */
		memory->park_ns = VB_MIN(memory->park_ns, VB_ALARM_NS / 2);
		return;
	}
	if (!is_over(engine)) {
		if (!vb_engine_holds(engine))
			vb_engine_release(engine);
		else if (engine->hold.answer == VB_ANSWER_HELD)
			memory->park_ns = PARK_FIRST_NS;
	}
	vb_engine_give(engine);
}

/* While the program polls. Where the lock is not to be had, the next park ends at once. */
static void hear_the_port(struct vb_engine *engine)
{
	if (!try_lock(engine))
		return;
	if (!is_over(engine))
		vb_port_look(engine);
	vb_engine_give(engine);
}

static void park(struct vb_engine *engine, struct memory *memory)
{
	struct vb_thread *thread = &engine->thread;
	struct pollfd fds[] = {
		{.fd = thread->wake_fd, .events = POLLIN},
		{.fd = engine->port.fd, .events = POLLIN},
		{.fd = thread->alarm_fd, .events = POLLIN},
	};
	struct timespec time = span(memory->park_ns);
	uint64_t count;
	int ready;

	memory->polls = atomic_load_explicit(&engine->polls, memory_order_relaxed);
	atomic_store(&thread->state, VB_THREAD_PARKED);
	if (atomic_load(&thread->wanted)) { /* set before the state was seen */
		atomic_store(&thread->state, VB_THREAD_AWAKE);
		return;
	}
	ready = ppoll(fds, VB_ARRAY_SIZE(fds), &time, NULL);
	atomic_store(&thread->state, VB_THREAD_AWAKE);
	memory->parked = true;
	if (fds[0].revents)
		drain(thread);
	if (fds[1].revents)
		hear_the_port(engine);
	if (fds[2].revents && read(thread->alarm_fd, &count, sizeof(count)) < 0)
		count = 0; /* it was set again */
	if (ready <= 0 && memory->park_ns == PARK_LONGEST_NS)
		look_for_strays(engine, memory);
	memory->park_ns = VB_MIN(memory->park_ns * 2, PARK_LONGEST_NS);
	release_late(engine, memory);
}

static void disarm(struct vb_engine *engine)
{
	if (!engine->thread.armed)
		return;
	engine->thread.armed = false;
	engine->udp->ops->disarm(engine->udp);
	if (engine->local)
		engine->local->ops->disarm(engine->local);
}

/* False: something is there already. */
static bool arm(struct vb_engine *engine)
{
	bool quiet;

	engine->thread.armed = true;
	quiet = engine->udp->ops->arm(engine->udp);
	if (engine->local)
		quiet = engine->local->ops->arm(engine->local) && quiet;
	return quiet;
}

static uint64_t traffic_of(const struct vb_engine *engine)
{
	const struct vb_counters *c = &engine->nic->counters;

	return c->rx_packets + c->tx_packets + c->direct_bytes;
}

static uint64_t wake_at(const struct vb_engine *engine, struct memory *memory)
{
	uint64_t now = vb_engine_now(), due = vb_engine_due(engine);
	uint64_t traffic = traffic_of(engine);

	if (traffic != memory->traffic) {
		memory->traffic = traffic;
		memory->active_ns = now;
	}
	if (now - memory->active_ns < RECENT_NS)
		due = VB_MIN(due, now + LOOK_UP_NS);
	return due;
}

enum turn {
	TURN_AGAIN,
	TURN_LINGER,
	TURN_BLOCK, /* the carriers are armed and the state is BLOCKED */
};

static enum turn run(struct vb_engine *engine, struct memory *memory)
{
	uint64_t before = traffic_of(engine);
	bool found, again;

	if (vb_engine_holds(engine))
		return TURN_LINGER;
	disarm(engine);
	engine->now_is_fresh = false;
	if (vb_engine_look(engine, &again)) {
		memory->park_ns = PARK_FIRST_NS;
		return TURN_LINGER;
	}
	vb_engine_run(engine, again);
	if (engine->hold.answer == VB_ANSWER_AWAITED)
		vb_hold_went(&engine->hold, vb_engine_now());
	if (engine->nic->now_ns >= memory->port_ns) {
		vb_port_look(engine);
		memory->port_ns = engine->nic->now_ns + PORT_NS;
	}
	found = traffic_of(engine) != before;
	if (found)
		memory->park_ns = PARK_FIRST_NS;
	if (found && memory->shun == 0)
		memory->linger_until_ns = engine->nic->now_ns + LINGER_NS;
	if (vb_engine_due(engine) == 0)
		return TURN_AGAIN;
	if (vb_engine_now() < memory->linger_until_ns)
		return TURN_LINGER;
	return arm(engine) ? TURN_BLOCK : TURN_AGAIN;
}

static enum turn take_turn(struct vb_engine *engine, struct memory *memory)
{
	struct vb_thread *thread = &engine->thread;
	struct timespec nap = span(NAP_NS);
	enum turn turn = TURN_AGAIN;

	if (!try_lock(engine)) {
		nanosleep(&nap, NULL);
		return turn;
	}
	if (!is_over(engine))
		turn = run(engine, memory);
	if (turn == TURN_BLOCK) {
		vb_traffic_publish(engine);
		memory->parked = false;
		memory->shun -= memory->shun > 0;
		memory->polls = atomic_load_explicit(&engine->polls, memory_order_relaxed);
		atomic_store(&thread->wake_at_ns, wake_at(engine, memory));
		atomic_store(&thread->state, VB_THREAD_BLOCKED);
	}
	vb_engine_give(engine);
	return turn;
}

static void yield(struct memory *memory)
{
	uint64_t before = vb_engine_now();

	sched_yield();
	if (vb_engine_now() - before > YIELD_TOO_LONG_NS) {
		memory->shun = SHUN_BLOCKS;
		memory->linger_until_ns = 0;
	}
}

/* epoll_pwait2 takes nanoseconds and came with Linux 5.11; before, milliseconds, rounded up. */
static int wait_until(int epoll_fd, struct epoll_event *events, int room, uint64_t until)
{
	static atomic_bool too_old;
	uint64_t now, left = 0;
	struct timespec time;
	int rc;

	if (until != VB_NEVER) {
		now = vb_engine_now();
		left = until > now ? until - now : 0;
	}
	time = span(left);
	if (!atomic_load_explicit(&too_old, memory_order_relaxed)) {
		rc = (int)syscall(SYS_epoll_pwait2, epoll_fd, events, room,
				  until == VB_NEVER ? NULL : &time, NULL, 0);
		if (rc >= 0 || errno != ENOSYS)
			return rc;
		atomic_store_explicit(&too_old, true, memory_order_relaxed);
	}
	return epoll_wait(epoll_fd, events, room,
			  until == VB_NEVER ? -1 : (int)VB_MIN(left / 1000000u + 1, 1000000u));
}

static void block(struct vb_engine *engine, struct memory *memory)
{
	struct vb_thread *thread = &engine->thread;
	struct epoll_event events[4];
	int got = wait_until(thread->epoll_fd, events, VB_ARRAY_SIZE(events),
			     atomic_load(&thread->wake_at_ns));

	atomic_store(&thread->state, VB_THREAD_AWAKE);
	for (int i = 0; i < got; i++)
		if (events[i].data.fd == thread->wake_fd)
			drain(thread);
		else if (events[i].data.fd == engine->port.fd)
			memory->port_ns = 0;
}

/* sched_setattr(2), first version. The C library of Debian 12 does not declare it, and the kernel's
 * own header collides with <sched.h>. */
struct sched_attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

/* The thread runs for microseconds, and often while the program spins on the memory that it writes.
 * Since Linux 6.12 a task may ask for a short slice; the scheduler then lets it in when it wakes
 * and not milliseconds later, at the end of the spinner's own slice. Older kernels ignore it. */
static void ask_for_short_slices(void)
{
	struct sched_attributes attr = {.size = sizeof(attr)};

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) < 0 || attr.policy != SCHED_OTHER)
		return;
	attr.runtime_ns = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &attr, 0);
}

/* Under the lock: at exit the carrier goes, perhaps before this thread has begun. */
static void say_that_we_live(struct vb_engine *engine)
{
	struct timespec nap = span(NAP_NS);

	while (engine->local && !is_over(engine)) {
		if (!try_lock(engine)) {
			nanosleep(&nap, NULL);
			continue;
		}
		if (!is_over(engine))
			vb_local_live(engine->local);
		vb_engine_give(engine);
		return;
	}
}

static void *thread_main(void *arg)
{
	struct vb_engine *engine = arg;
	struct memory memory = {.park_ns = PARK_FIRST_NS};

	vb_host_thread_begins();
	atomic_store(&engine->thread.up, true);
	prctl(PR_SET_NAME, "verbena");
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS); /* of this thread alone */
	ask_for_short_slices();
	say_that_we_live(engine);
	while (!is_over(engine)) {
		if (program_polls(engine, &memory)) {
			park(engine, &memory);
			continue;
		}
		switch (take_turn(engine, &memory)) {
		case TURN_AGAIN:
			break;
		case TURN_LINGER:
			yield(&memory);
			break;
		case TURN_BLOCK:
			block(engine, &memory);
			break;
		}
	}
	/* At exit the carrier may be gone, and the word with it. */
	if (engine->local && atomic_load(&engine->thread.stop))
		vb_local_live_no_more(engine->local);
	vb_host_thread_ends();
	return NULL;
}

static int watch(struct vb_thread *thread, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(thread->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

int vb_thread_init(struct vb_engine *engine)
{
	struct vb_thread *thread = &engine->thread;
	int rc;

	thread->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (thread->epoll_fd < 0)
		return -errno;
	thread->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (thread->wake_fd < 0) {
		rc = -errno;
		goto err_epoll;
	}
	thread->alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (thread->alarm_fd < 0) {
		rc = -errno;
		goto err_wake;
	}
	rc = watch(thread, thread->wake_fd);
	if (rc == 0)
		rc = watch(thread, engine->udp->fd);
	if (rc == 0 && engine->local)
		rc = watch(thread, engine->local->fd);
	if (rc == 0 && engine->port.fd >= 0)
		rc = watch(thread, engine->port.fd);
	if (rc == 0)
		return 0;
	close(thread->alarm_fd);
err_wake:
	close(thread->wake_fd);
err_epoll:
	close(thread->epoll_fd);
	return rc;
}

void vb_thread_start(struct vb_engine *engine)
{
	struct vb_thread *thread = &engine->thread;
	sigset_t all, before;
	pthread_attr_t attr;
	int rc;

	/* The program's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	rc = pthread_create(&thread->handle, &attr, thread_main, engine);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	thread->started = rc == 0;
	if (rc)
		fprintf(stderr,
			"verbena: no background thread (%s): data moves only while the "
			"program calls.\n",
			strerror(rc));
}

void vb_thread_settle(struct vb_engine *engine)
{
	while (engine->thread.started && !atomic_load(&engine->thread.up))
		sched_yield();
}

void vb_thread_stop(struct vb_engine *engine)
{
	struct vb_thread *thread = &engine->thread;

	if (!thread->started)
		return;
	atomic_store(&thread->stop, true);
	vb_thread_wake(engine);
	pthread_join(thread->handle, NULL);
	thread->started = false;
}

void vb_thread_finish(struct vb_engine *engine)
{
	close(engine->thread.alarm_fd);
	close(engine->thread.wake_fd);
	close(engine->thread.epoll_fd);
}
