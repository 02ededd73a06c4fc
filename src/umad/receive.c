/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * receive.c - taking what came, and waiting for it.
 *
 * The descriptor does not block unless the program made it: then a timeout of zero waits too, as a
 * read of the kernel's device would.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

#include "umad/face.h"

#define NS_PER_MS 1000000ull

/* Until something is there. 0, -ETIMEDOUT, or -EIO with errno. */
static int wait_readable(struct vb_umad_port *port, int timeout_ms)
{
	struct pollfd one = {.fd = port->fd, .events = POLLIN};
	int rc = poll(&one, 1, timeout_ms);

	if (rc == 0) {
		pthread_mutex_lock(&port->lock);
		vb_umad_timer_run(port);
		rc = port->received_count > 0;
		pthread_mutex_unlock(&port->lock);
	}
	if (rc > 0)
		return 0;
	if (rc == 0)
		errno = ETIMEDOUT;
	return rc == 0 ? -ETIMEDOUT : -EIO;
}

/* Returns the agent; -EINVAL: not even the first MAD fits; -ENOSPC: that one was copied. */
static int copy_out(const struct vb_umad_message *message, struct ib_user_mad *to, int *length)
{
	uint32_t first = VB_MIN(message->length, VB_MAD_BYTES);
	int room = *length;

	*length = (int)message->length;
	if (room < (int)first)
		return -EINVAL;
	*to = message->head;
	memcpy(to->data, message->mad, first);
	if (room < (int)message->length)
		return -ENOSPC;
	memcpy(to->data + first, message->mad + first, message->length - first);
	return (int)message->head.agent_id;
}

/* -EAGAIN: nothing is there. */
static int take(struct vb_umad_port *port, struct ib_user_mad *to, int *length)
{
	struct vb_umad_message *message;
	int rc = -EAGAIN;

	pthread_mutex_lock(&port->lock);
	message = vb_umad_take(port);
	if (message) {
		rc = copy_out(message, to, length);
		if (rc < 0)
			vb_umad_queue_first(port, message);
		else
			free(message);
	}
	pthread_mutex_unlock(&port->lock);
	return rc;
}

static bool is_blocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !(flags & O_NONBLOCK);
}

static int receive(struct vb_umad_port *port, struct ib_user_mad *to, int *length, int timeout_ms)
{
	uint64_t end = vb_engine_now() + (uint64_t)VB_MAX(timeout_ms, 0) * NS_PER_MS;
	int rc;

	if (timeout_ms == 0 && is_blocking(port->fd))
		timeout_ms = -1;
	while ((rc = take(port, to, length)) == -EAGAIN) {
		uint64_t now = vb_engine_now();
		int left = timeout_ms;

		if (timeout_ms == 0)
			return -EWOULDBLOCK;
		if (timeout_ms > 0)
			left = now < end ? (int)((end - now + NS_PER_MS - 1) / NS_PER_MS) : 0;
		rc = wait_readable(port, left);
		if (rc)
			return rc;
	}
	return rc;
}

int umad_recv(int portid, void *umad, int *length, int timeout_ms)
{
	struct vb_umad_port *port;
	int rc;

	errno = EINVAL;
	if (!umad || !length)
		return -EINVAL;
	port = vb_umad_port_get(portid);
	if (!port)
		return -EINVAL;
	errno = 0;
	rc = receive(port, umad, length, timeout_ms);
	if (rc < 0 && errno == 0)
		errno = -rc;
	vb_umad_trace("receive on %d: %d", portid, rc);
	vb_umad_port_put(port);
	return rc;
}

int umad_poll(int portid, int timeout_ms)
{
	struct vb_umad_port *port = vb_umad_port_get(portid);
	int rc;

	if (!port) {
		errno = EINVAL;
		return -EINVAL;
	}
	rc = wait_readable(port, timeout_ms);
	vb_umad_port_put(port);
	return rc;
}
