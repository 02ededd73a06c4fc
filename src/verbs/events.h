/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * events.h - queues of events behind a real descriptor, for completion channels and async events.
 *
 * The descriptor is an eventfd in semaphore mode: poll, epoll and O_NONBLOCK work on it as on the
 * kernel's. It holds one token for each event that waits. Events are not allocated: whatever can
 * raise one (a CQ; a QP, once for each type) is a source with a count, and the queue is a list of
 * sources.
 *
 *      raise    source.pending++, source into the list, a token into the descriptor
 *      take     a token out (this may block), then the first source's pending--, taken++
 *      forget   the source's pending events and their tokens vanish
 *
 * Invariant, under the lock: tokens in the descriptor + takers that hold one
 * == sum of pending + debt. Debt are tokens of forgotten events that a taker already held: it
 * finds the debt, pays it with its token and waits again.
 */
#ifndef VB_VERBS_EVENTS_H
#define VB_VERBS_EVENTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "base/list.h"

struct vb_event_queue {
	int fd;
	pthread_mutex_t lock;
	struct vb_list sources; /* with pending events, the next to be taken first */
	uint32_t debt;
};

struct vb_event_source {
	struct vb_list link;
	uint32_t pending; /* raised, not taken */
	uint32_t taken;	  /* given to the program: as many acknowledgements are to come */
};

struct vb_async_source {
	struct vb_event_source source;
	struct ibv_async_event event;
};

/* vb_event_queue_init - 0 or -errno. */
int vb_event_queue_init(struct vb_event_queue *queue);
/* vb_event_queue_close - the descriptor goes, nobody takes any more; sources may still be raised
 * and forgotten. */
void vb_event_queue_close(struct vb_event_queue *queue);
void vb_event_queue_finish(struct vb_event_queue *queue);

void vb_event_source_init(struct vb_event_source *source);

/* vb_event_raise - never blocks, allocates nothing. */
void vb_event_raise(struct vb_event_queue *queue, struct vb_event_source *source);

/* vb_event_waits - whether an event can be taken now. */
bool vb_event_waits(struct vb_event_queue *queue);

/* vb_event_take - blocks unless the descriptor is O_NONBLOCK. NULL with errno of read(2). */
struct vb_event_source *vb_event_take(struct vb_event_queue *queue);

/* vb_event_forget - nothing is raised by this source any more. Returns how often it was taken. */
uint32_t vb_event_forget(struct vb_event_queue *queue, struct vb_event_source *source);

#endif
