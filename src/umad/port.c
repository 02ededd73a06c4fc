/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * port.c - opened ports: the table that names them by descriptor, and what waits for the program.
 *
 * Invariant, under a port's lock: its eventfd is readable exactly while `received` is not empty.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "umad/face.h"

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list table = {&table, &table};

/* --- the table --------------------------------------------------------------------------- */

struct vb_umad_port *vb_umad_port_get(int fd)
{
	struct vb_umad_port *found = NULL;
	struct vb_list *link, *tmp;
	pid_t pid = getpid();

	pthread_mutex_lock(&table_lock);
	vb_list_for_each(link, tmp, &table)
	{
		struct vb_umad_port *port = vb_list_entry(link, struct vb_umad_port, link);

		if (port->fd == fd && port->pid == pid) {
			port->users++;
			found = port;
			break;
		}
	}
	pthread_mutex_unlock(&table_lock);
	return found;
}

static void free_messages(struct vb_umad_port *port)
{
	struct vb_list *link;

	while ((link = vb_list_pop(&port->received)) != NULL)
		free(vb_list_entry(link, struct vb_umad_message, link));
}

static void destroy(struct vb_umad_port *port)
{
	struct vb_list *link, *tmp;

	for (int i = 0; i < UMAD_CA_MAX_AGENTS; i++)
		vb_umad_agent_destroy(port->agents[i]);
	vb_umad_timer_stop(port);
	vb_list_for_each(link, tmp, &port->sends)
		vb_umad_send_forget(port, vb_list_entry(link, struct vb_umad_send, link));
	vb_umad_rmpp_forget(port, NULL);
	free_messages(port);
	vb_engine_put(port->engine);
	close(port->fd);
	pthread_cond_destroy(&port->timer_wake);
	pthread_mutex_destroy(&port->lock);
	free(port);
}

void vb_umad_port_put(struct vb_umad_port *port)
{
	bool last;

	pthread_mutex_lock(&table_lock);
	last = --port->users == 0;
	pthread_mutex_unlock(&table_lock);
	if (last)
		destroy(port);
}

static void before_fork(void)
{
	pthread_mutex_lock(&table_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&table_lock);
}

static void prepare_fork(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

/* --- opening and closing ----------------------------------------------------------------- */

static struct vb_umad_port *create(struct vb_device *device)
{
	struct vb_umad_port *port = calloc(1, sizeof(*port));
	pthread_condattr_t clock;

	if (!port)
		return NULL;
	port->device = device;
	port->users = 1;
	port->pid = getpid();
	vb_list_init(&port->received);
	vb_list_init(&port->sends);
	vb_list_init(&port->outbox);
	vb_list_init(&port->assemblies);
	pthread_mutex_init(&port->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&port->timer_wake, &clock);
	pthread_condattr_destroy(&clock);
	return port;
}

static int open_port(struct vb_device *device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct vb_umad_port *port = create(device);
	int rc = -ENOMEM;

	if (!port)
		return rc;
	pthread_once(&once, prepare_fork);
	rc = vb_engine_get(device, &port->engine);
	if (rc)
		goto err_free;
	port->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (port->fd < 0) {
		rc = -errno;
		goto err_engine;
	}
	pthread_mutex_lock(&table_lock);
	vb_list_append(&table, &port->link);
	pthread_mutex_unlock(&table_lock);
	return port->fd;
err_engine:
	vb_engine_put(port->engine);
err_free:
	pthread_cond_destroy(&port->timer_wake);
	pthread_mutex_destroy(&port->lock);
	free(port);
	return rc;
}

int umad_open_port(const char *ca_name, int portnum)
{
	struct vb_device *device;
	int rc = vb_umad_find(ca_name, portnum, &device);

	if (rc == 0) {
		rc = open_port(device);
		if (rc < 0)
			rc = -EIO; /* the cause was said on standard error */
	}
	vb_umad_trace("open %s port %d: %d", ca_name ? ca_name : "(any)", portnum, rc);
	return rc;
}

/* A forked child has nothing of its parent's port but the copy of its descriptor. */
int umad_close_port(int portid)
{
	struct vb_umad_port *found = NULL;
	struct vb_list *link, *tmp;

	pthread_mutex_lock(&table_lock);
	vb_list_for_each(link, tmp, &table)
	{
		struct vb_umad_port *port = vb_list_entry(link, struct vb_umad_port, link);

		if (port->fd == portid) {
			vb_list_remove(&port->link);
			found = port;
			break;
		}
	}
	pthread_mutex_unlock(&table_lock);
	vb_umad_trace("close %d: %s", portid, found ? "done" : "not open");
	if (!found)
		return -EINVAL;
	if (found->pid == getpid())
		vb_umad_port_put(found);
	else
		close(portid);
	return 0;
}

int umad_get_fd(int portid)
{
	struct vb_umad_port *port = vb_umad_port_get(portid);

	if (!port)
		return -EINVAL;
	vb_umad_port_put(port);
	return portid;
}

/* --- what waits -------------------------------------------------------------------------- */

static void added(struct vb_umad_port *port)
{
	const uint64_t token = 1;
	ssize_t ignored;

	if (port->received_count++ > 0)
		return;
	ignored = write(port->fd, &token, sizeof(token));
	(void)ignored; /* a descriptor that the program closed tells nobody */
}

void vb_umad_queue(struct vb_umad_port *port, struct vb_umad_message *message)
{
	if (port->received_count >= VB_UMAD_WAITING) {
		free(message);
		return;
	}
	vb_list_append(&port->received, &message->link);
	added(port);
}

void vb_umad_queue_first(struct vb_umad_port *port, struct vb_umad_message *message)
{
	vb_list_append(port->received.next, &message->link); /* before what was the first */
	added(port);
}

struct vb_umad_message *vb_umad_take(struct vb_umad_port *port)
{
	struct vb_list *link = vb_list_pop(&port->received);
	uint64_t token;
	ssize_t ignored;

	if (!link)
		return NULL;
	if (--port->received_count == 0) {
		/* a program may have made the descriptor block; the token is there, so it does not
		 */
		ignored = read(port->fd, &token, sizeof(token));
		(void)ignored;
	}
	return vb_list_entry(link, struct vb_umad_message, link);
}
