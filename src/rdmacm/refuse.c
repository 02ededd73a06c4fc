/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * refuse.c - librdmacm.so.1 while there is no connection manager: every name is there, so that
 * programs which link to it load and run as long as they connect by other means; every call says
 * ENODEV.
 *
 * The genuine library would look for kernel devices beside ours: the three libraries go together.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/select.h>

#pragma GCC visibility push(default)
const char *rdma_event_str(unsigned int event);
int rpoll(struct pollfd *fds, nfds_t count, int timeout);
int rselect(int count, fd_set *readable, fd_set *writable, fd_set *exceptional,
	    struct timeval *timeout);
#pragma GCC visibility pop

const char *rdma_event_str(unsigned int event)
{
	static const char *const words[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED",	 "RDMA_CM_EVENT_ADDR_ERROR",
		"RDMA_CM_EVENT_ROUTE_RESOLVED",	 "RDMA_CM_EVENT_ROUTE_ERROR",
		"RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
		"RDMA_CM_EVENT_CONNECT_ERROR",	 "RDMA_CM_EVENT_UNREACHABLE",
		"RDMA_CM_EVENT_REJECTED",	 "RDMA_CM_EVENT_ESTABLISHED",
		"RDMA_CM_EVENT_DISCONNECTED",	 "RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN",	 "RDMA_CM_EVENT_MULTICAST_ERROR",
		"RDMA_CM_EVENT_ADDR_CHANGE",	 "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};

	return event < sizeof(words) / sizeof(words[0]) ? words[event] : "UNKNOWN EVENT";
}

/* No descriptor can be an rsocket: all are the kernel's. */
int rpoll(struct pollfd *fds, nfds_t count, int timeout)
{
	return poll(fds, count, timeout);
}

int rselect(int count, fd_set *readable, fd_set *writable, fd_set *exceptional,
	    struct timeval *timeout)
{
	return select(count, readable, writable, exceptional, timeout);
}

/* What starts something: there is no device. What needs something started: there is none either. */
static long no_device(void)
{
	errno = ENODEV;
	return -1;
}

static void *no_object(void)
{
	errno = ENODEV;
	return NULL;
}

static long no_socket(void)
{
	errno = EBADF;
	return -1;
}

static uint16_t no_port(void)
{
	return 0;
}

static void nothing(void)
{
}

#define NAME(name, answer)                                                                         \
	extern __typeof__(answer) name __attribute__((alias(#answer), visibility("default")))

NAME(rdma_create_event_channel, no_object);
NAME(rdma_get_devices, no_object);
NAME(rdma_destroy_event_channel, nothing);
NAME(rdma_destroy_ep, nothing);
NAME(rdma_destroy_qp, nothing);
NAME(rdma_destroy_srq, nothing);
NAME(rdma_free_devices, nothing);
NAME(rdma_freeaddrinfo, nothing);
NAME(rdma_get_dst_port, no_port);
NAME(rdma_get_src_port, no_port);
NAME(rdma_accept, no_device);
NAME(rdma_ack_cm_event, no_device);
NAME(rdma_bind_addr, no_device);
NAME(rdma_connect, no_device);
NAME(rdma_create_ep, no_device);
NAME(rdma_create_id, no_device);
NAME(rdma_create_qp, no_device);
NAME(rdma_create_qp_ex, no_device);
NAME(rdma_create_srq, no_device);
NAME(rdma_create_srq_ex, no_device);
NAME(rdma_destroy_id, no_device);
NAME(rdma_disconnect, no_device);
NAME(rdma_establish, no_device);
NAME(rdma_get_cm_event, no_device);
NAME(rdma_get_remote_ece, no_device);
NAME(rdma_get_request, no_device);
NAME(rdma_getaddrinfo, no_device);
NAME(rdma_init_qp_attr, no_device);
NAME(rdma_join_multicast, no_device);
NAME(rdma_join_multicast_ex, no_device);
NAME(rdma_leave_multicast, no_device);
NAME(rdma_listen, no_device);
NAME(rdma_migrate_id, no_device);
NAME(rdma_notify, no_device);
NAME(rdma_reject, no_device);
NAME(rdma_reject_ece, no_device);
NAME(rdma_resolve_addr, no_device);
NAME(rdma_resolve_route, no_device);
NAME(rdma_set_local_ece, no_device);
NAME(rdma_set_option, no_device);
NAME(rsocket, no_device);
NAME(raccept, no_socket);
NAME(rbind, no_socket);
NAME(rclose, no_socket);
NAME(rconnect, no_socket);
NAME(rfcntl, no_socket);
NAME(rgetpeername, no_socket);
NAME(rgetsockname, no_socket);
NAME(rgetsockopt, no_socket);
NAME(riomap, no_socket);
NAME(riounmap, no_socket);
NAME(riowrite, no_socket);
NAME(rlisten, no_socket);
NAME(rread, no_socket);
NAME(rreadv, no_socket);
NAME(rrecv, no_socket);
NAME(rrecvfrom, no_socket);
NAME(rrecvmsg, no_socket);
NAME(rsend, no_socket);
NAME(rsendmsg, no_socket);
NAME(rsendto, no_socket);
NAME(rsetsockopt, no_socket);
NAME(rshutdown, no_socket);
NAME(rwrite, no_socket);
NAME(rwritev, no_socket);
