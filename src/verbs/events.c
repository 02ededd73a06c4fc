/* SPDX-License-Identifier: BSD-2-Clause */
/* events.c - see events.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/macros.h"
#include "verbs/events.h"

int vb_event_queue_init(struct vb_event_queue *queue)
{
	queue->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (queue->fd < 0)
		return -errno;
	pthread_mutex_init(&queue->lock, NULL);
	vb_list_init(&queue->sources);
	queue->debt = 0;
	return 0;
}

void vb_event_queue_close(struct vb_event_queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	if (queue->fd >= 0)
		close(queue->fd);
	queue->fd = -1;
	pthread_mutex_unlock(&queue->lock);
}

void vb_event_queue_finish(struct vb_event_queue *queue)
{
	vb_event_queue_close(queue);
	pthread_mutex_destroy(&queue->lock);
}

void vb_event_source_init(struct vb_event_source *source)
{
	vb_list_init(&source->link);
	source->pending = 0;
	source->taken = 0;
}

void vb_event_raise(struct vb_event_queue *queue, struct vb_event_source *source)
{
	static const uint64_t one = 1;
	ssize_t written;

	pthread_mutex_lock(&queue->lock);
	if (source->pending++ == 0)
		vb_list_append(&queue->sources, &source->link);
	/* It could only fail or block with 2^64 - 2 tokens inside. A descriptor that the program
	 * closed under us is its own loss. */
	written = write(queue->fd, &one, sizeof(one));
	(void)written;
	pthread_mutex_unlock(&queue->lock);
}

bool vb_event_waits(struct vb_event_queue *queue)
{
	bool waits;

	pthread_mutex_lock(&queue->lock);
	waits = !vb_list_is_empty(&queue->sources);
	pthread_mutex_unlock(&queue->lock);
	return waits;
}

struct vb_event_source *vb_event_take(struct vb_event_queue *queue)
{
	struct vb_event_source *source = NULL;
	struct vb_list *link;
	uint64_t token;

	while (!source) {
		if (read(queue->fd, &token, sizeof(token)) != sizeof(token))
			return NULL;
		pthread_mutex_lock(&queue->lock);
		if (queue->debt) {
			queue->debt--;
		} else if ((link = vb_list_pop(&queue->sources))) {
			source = vb_list_entry(link, struct vb_event_source, link);
			source->taken++;
			if (--source->pending)
				vb_list_append(&queue->sources, link);
		}
		pthread_mutex_unlock(&queue->lock);
	}
	return source;
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

uint32_t vb_event_forget(struct vb_event_queue *queue, struct vb_event_source *source)
{
	uint32_t taken;

	pthread_mutex_lock(&queue->lock);
	for (; source->pending; source->pending--)
		if (!take_token(queue->fd))
			queue->debt++;
	vb_list_remove(&source->link);
	taken = source->taken;
	pthread_mutex_unlock(&queue->lock);
	return taken;
}
