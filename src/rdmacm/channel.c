/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * channel.c - event channels: queues of events behind a real descriptor.
 *
 * The descriptor is an eventfd in semaphore mode, so that poll, epoll and O_NONBLOCK work on it as
 * on the kernel's. Invariant, under vb_cma_lock:
 *
 *      tokens in the descriptor + takers that hold one == events in the list + debt
 *
 * An event that vanishes (its id is destroyed, or moves to another channel) takes its token along;
 * where a taker was quicker and holds it, the channel is in debt: that taker finds no event for its
 * token and waits again.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rdmacm/cma.h"

#define GRAVES 16u

pthread_mutex_t vb_cma_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;

struct vb_channel *vb_channel_create(void)
{
	struct vb_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	channel->pub.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (channel->pub.fd < 0) {
		free(channel);
		return NULL;
	}
	vb_list_init(&channel->events);
	return channel;
}

/* The memory of the channels destroyed last stays for a while: see vb_channel_destroy(). */
static struct vb_channel *graves[GRAVES];
static unsigned int graves_dug;

static void finish(struct vb_channel *channel)
{
	struct vb_channel **grave;

	close(channel->pub.fd);
	pthread_mutex_lock(&vb_cma_lock);
	grave = &graves[graves_dug++ % GRAVES];
	free(*grave);
	*grave = channel;
	pthread_mutex_unlock(&vb_cma_lock);
}

/* Programs destroy a channel while a thread of theirs waits for its events (rping's does), and end
 * soon afterwards. With the kernel's channels that thread waits on; here it must neither find the
 * descriptor closed, nor another one under its number. And it may just have handled an event and
 * come back for the next a moment after: it then waits as well. */
void vb_channel_destroy(struct vb_channel *channel)
{
	struct vb_list *link;
	bool busy;

	pthread_mutex_lock(&vb_cma_lock);
	while ((link = vb_list_pop(&channel->events)))
		free(vb_list_entry(link, struct vb_id_event, link));
	channel->destroyed = true;
	channel->destroyer = pthread_self();
	busy = channel->takers > 0;
	pthread_mutex_unlock(&vb_cma_lock);
	if (!busy)
		finish(channel);
}

/* enter - false: the channel is gone, and it was this thread that destroyed it. */
static bool enter(struct vb_channel *channel)
{
	bool destroyed, here;

	pthread_mutex_lock(&vb_cma_lock);
	destroyed = channel->destroyed;
	here = destroyed && pthread_equal(channel->destroyer, pthread_self());
	channel->takers += !destroyed;
	pthread_mutex_unlock(&vb_cma_lock);
	while (destroyed && !here)
		pause(); /* until the process ends, or the thread is cancelled */
	return !destroyed;
}

/* Also where the thread is cancelled while it waits. */
static void leave(void *arg)
{
	struct vb_channel *channel = arg;
	bool last;

	pthread_mutex_lock(&vb_cma_lock);
	last = --channel->takers == 0 && channel->destroyed;
	pthread_mutex_unlock(&vb_cma_lock);
	if (last)
		finish(channel);
}

void vb_channel_raise(struct vb_channel *channel, struct vb_id_event *event)
{
	static const uint64_t one = 1;
	ssize_t written;
	int state;

	vb_list_append(&channel->events, &event->link);
	/* It could only fail or block with 2^64 - 2 tokens inside. A descriptor that the program
	 * closed under us is its own loss. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); /* not with the lock held */
	written = write(channel->pub.fd, &one, sizeof(one));
	pthread_setcancelstate(state, NULL);
	(void)written;
}

/* One token, without blocking whatever the program made of the descriptor's flags. */
static bool take_token(int fd)
{
	uint64_t token;
	struct iovec part = {&token, sizeof(token)};
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	ssize_t n = preadv2(fd, &part, 1, -1, RWF_NOWAIT);

	if (n == sizeof(token))
		return true;
	if (n < 0 && errno == EAGAIN)
		return false;
	/* A kernel before 5.8 cannot say NOWAIT on an eventfd. */
	return poll(&wait, 1, 0) == 1 && read(fd, &token, sizeof(token)) == sizeof(token);
}

void vb_channel_withdraw(struct vb_id *id, const struct vb_group *group, struct vb_list *out)
{
	struct vb_channel *channel = id->channel;
	struct vb_list *link, *next;
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); /* not with the lock held */
	vb_list_for_each(link, next, &channel->events)
	{
		struct vb_id_event *event = vb_list_entry(link, struct vb_id_event, link);

		if (group ? event->group != group
			  : event->owner != id && event->owner->listener != id)
			continue;
		vb_list_remove(link);
		vb_list_append(out, link);
		if (!take_token(channel->pub.fd))
			channel->debt++;
	}
	pthread_setcancelstate(state, NULL);
}

void vb_channel_move(struct vb_id *id, struct vb_channel *to)
{
	struct vb_list events, *link;

	vb_list_init(&events);
	vb_channel_withdraw(id, NULL, &events);
	id->channel = to;
	id->pub.channel = &to->pub;
	while ((link = vb_list_pop(&events))) {
		struct vb_id_event *event = vb_list_entry(link, struct vb_id_event, link);

		if (event->pub.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			vb_id(event->pub.id)->channel = to;
			event->pub.id->channel = &to->pub;
		}
		vb_channel_raise(to, event);
	}
}

static bool waits(struct vb_channel *channel)
{
	bool yes;

	pthread_mutex_lock(&vb_cma_lock);
	yes = !vb_list_is_empty(&channel->events);
	pthread_mutex_unlock(&vb_cma_lock);
	return yes;
}

static void account_taken(struct vb_id_event *event)
{
	event->owner->unacknowledged++;
	if (event->group)
		event->group->unacknowledged++;
	if (event->pub.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		event->owner->requests--;
		vb_id(event->pub.id)->listener = NULL;
	}
}

/* Blocks unless the descriptor is O_NONBLOCK; NULL with errno of read(2). */
static struct vb_id_event *take(struct vb_channel *channel)
{
	struct vb_id_event *event = NULL;
	struct vb_list *link;
	uint64_t token;

	while (!event) {
		if (read(channel->pub.fd, &token, sizeof(token)) != sizeof(token))
			return NULL;
		pthread_mutex_lock(&vb_cma_lock);
		if (channel->debt) {
			channel->debt--;
		} else if ((link = vb_list_pop(&channel->events))) {
			event = vb_list_entry(link, struct vb_id_event, link);
			account_taken(event);
		}
		pthread_mutex_unlock(&vb_cma_lock);
	}
	return event;
}

void vb_id_wait_acknowledged(struct vb_id *id)
{
	pthread_mutex_lock(&vb_cma_lock);
	while (id->unacknowledged)
		pthread_cond_wait(&acknowledged, &vb_cma_lock);
	pthread_mutex_unlock(&vb_cma_lock);
}

void vb_group_wait_acknowledged(struct vb_group *group)
{
	pthread_mutex_lock(&vb_cma_lock);
	while (group->unacknowledged)
		pthread_cond_wait(&acknowledged, &vb_cma_lock);
	pthread_mutex_unlock(&vb_cma_lock);
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct vb_adapter *adapters;
	int count = vb_adapters(&adapters);
	struct vb_channel *channel;

	if (count < 0) {
		errno = -count;
		return NULL;
	}
	channel = vb_channel_create();
	return channel ? &channel->pub : NULL;
}

void rdma_destroy_event_channel(struct rdma_event_channel *pub)
{
	vb_channel_destroy(vb_container_of(pub, struct vb_channel, pub));
}

/* The next event that is the program's business; NULL with errno of read(2). */
static struct vb_id_event *get(struct vb_channel *channel)
{
	struct vb_id_event *event;

	for (;;) {
		if (!waits(channel))
			vb_adapters_prepare_wait();
		event = take(channel);
		if (!event || vb_id_event_process(event))
			return event;
		rdma_ack_cm_event(&event->pub);
	}
}

int rdma_get_cm_event(struct rdma_event_channel *pub, struct rdma_cm_event **out)
{
	struct vb_channel *channel = vb_container_of(pub, struct vb_channel, pub);
	struct vb_id_event *event;
	int error;

	if (!out)
		return vb_cma_result(-EINVAL);
	if (!enter(channel))
		return vb_cma_result(-EBADF);
	pthread_cleanup_push(leave, channel);
	event = get(channel);
	error = errno;
	pthread_cleanup_pop(1);
	if (!event) {
		errno = error;
		return -1;
	}
	*out = &event->pub;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *pub)
{
	struct vb_id_event *event;

	if (!pub)
		return vb_cma_result(-EINVAL);
	event = vb_container_of(pub, struct vb_id_event, pub);
	pthread_mutex_lock(&vb_cma_lock);
	event->owner->unacknowledged--;
	if (event->group)
		event->group->unacknowledged--;
	pthread_cond_broadcast(&acknowledged);
	pthread_mutex_unlock(&vb_cma_lock);
	free(event);
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const words[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED",
		"RDMA_CM_EVENT_ADDR_ERROR",
		"RDMA_CM_EVENT_ROUTE_RESOLVED",
		"RDMA_CM_EVENT_ROUTE_ERROR",
		"RDMA_CM_EVENT_CONNECT_REQUEST",
		"RDMA_CM_EVENT_CONNECT_RESPONSE",
		"RDMA_CM_EVENT_CONNECT_ERROR",
		"RDMA_CM_EVENT_UNREACHABLE",
		"RDMA_CM_EVENT_REJECTED",
		"RDMA_CM_EVENT_ESTABLISHED",
		"RDMA_CM_EVENT_DISCONNECTED",
		"RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN",
		"RDMA_CM_EVENT_MULTICAST_ERROR",
		"RDMA_CM_EVENT_ADDR_CHANGE",
		"RDMA_CM_EVENT_TIMEWAIT_EXIT",
		"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
		"RDMA_CM_EVENT_ADDRINFO_ERROR",
		"RDMA_CM_EVENT_USER",
	};

	return (size_t)event < VB_ARRAY_SIZE(words) ? words[event] : "UNKNOWN EVENT";
}
