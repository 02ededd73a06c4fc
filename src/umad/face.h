/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * face.h - the objects behind libibumad.so.3.
 *
 * A port that a program opened is named by its descriptor, an eventfd that holds a token while
 * something waits to be received, so that poll, epoll and O_NONBLOCK work on it as on the kernel's
 * device. What happens to a MAD is what Linux's ib_umad does with it:
 *
 *      umad_send --+--> an agent of this host answers at once     (SMPs, PerfMgmt, to ourselves)
 *                  +--> vb_gsi_send                               (to QP 1 of a peer)
 *                  +--> sends: waits for the answer, is repeated, runs out    (timeout_ms != 0)
 *
 *      an answer that came --> its send, found by transaction ID --> received --> umad_recv
 *      a send that ran out ---------------- status ETIMEDOUT ------> received --> umad_recv
 *      a request that came --> whoever registered its method ------> received --> umad_recv
 *
 * Answers nobody waits for are dropped. The upper half of a request's transaction ID is the
 * agent's.
 *
 * Locks, outermost first: the engine's, the table of ports, a port's. Nothing here calls into the
 * engine with a port's lock held, since answers come in under the engine's.
 */
#ifndef VB_UMAD_FACE_H
#define VB_UMAD_FACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What the header declares is what the library exports. */
#pragma GCC visibility push(default)
#include <infiniband/umad.h>
#pragma GCC visibility pop

#include "base/list.h"
#include "host/gsi.h"
#include "host/host.h"

#define VB_UMAD_PORT 1	    /* the only port of a device */
#define VB_UMAD_NAMED_GID 1 /* of the address in VERBENA_ADDR, whose end is the LID if any */
#define VB_UMAD_WAITING                                                                            \
	4096u		    /* messages that a port holds for the program, and sends in flight     \
			     */
#define VB_UMAD_SHORTEST 36 /* bytes of a MAD that may be sent: its header and RMPP's */
#define VB_UMAD_VENDOR_FIRST 0x30 /* vendor classes whose MADs name their vendor (IBTA 16.5) */
#define VB_UMAD_VENDOR_LAST 0x4f

struct vb_umad_port;

struct vb_umad_agent {
	struct vb_umad_port *port;
	uint32_t id;
	uint8_t mgmt_class;
	uint8_t oui[3];		  /* of a vendor's class */
	bool rmpp;		  /* long messages are cut and put together for it */
	uint32_t tid;		  /* the upper half of its transaction IDs */
	struct vb_gsi_agent *gsi; /* NULL: subnet management, which never leaves this host */
};

/* One message for the program. */
struct vb_umad_message {
	struct vb_list link;
	struct ib_user_mad head;
	uint32_t length; /* bytes of mad that the program gets */
	uint8_t mad[];	 /* VB_MAD_BYTES at least */
};

/* A message of several segments on its way out (rmpp.c). segments 0: it is one MAD. */
struct vb_umad_transfer {
	uint32_t segments, pad; /* pad: bytes that the last segment is short of */
	uint32_t sent, acked;	/* up to this segment */
	uint32_t window;	/* the last that may be sent now */
};

/* A message that went out and waits for its answer. */
struct vb_umad_send {
	struct vb_list link;
	uint64_t serial;
	struct vb_umad_message
		*message;     /* as the program gave it: what comes back when time is up */
	uint64_t deadline_ns; /* VB_NEVER: waits as long as it takes */
	uint32_t retries;     /* left */
	bool by_wire;	      /* false: repeating it would do nothing */
	struct vb_cm_path to;
	uint32_t qpn, qkey;
	struct vb_umad_transfer transfer;
};

struct vb_umad_port {
	struct vb_list link; /* in the table of ports */
	int fd;
	unsigned int users; /* the table, and each call under way; under the table's lock */
	pid_t pid;	    /* of the process that opened it; a forked child has none */
	struct vb_device *device;
	struct vb_engine *engine;

	pthread_mutex_t lock;
	struct vb_umad_agent *agents[UMAD_CA_MAX_AGENTS];
	struct vb_list received; /* vb_umad_message, the next to be taken first */
	struct vb_list sends;	 /* vb_umad_send */
	uint32_t received_count, send_count;
	uint64_t last_serial;		   /* of a send */
	struct vb_list outbox, assemblies; /* rmpp.c's own */
	uint32_t outbox_count, assembly_count;

	bool timer_started, timer_stop;
	pthread_t timer;
	pthread_cond_t timer_wake;
};

/* --- device.c ---------------------------------------------------------------------------- */
/* vb_umad_find - the device of that name (NULL: the first whose port is up, else the first) and its
 * port (0: the only one). 0, -ENODEV, -EINVAL. */
int vb_umad_find(const char *ca_name, int portnum, struct vb_device **out) VB_MUST_USE;
/* vb_umad_describe_port - fills what umad_get_port() does but for pkeys, which become NULL. */
void vb_umad_describe_port(struct vb_device *device, enum vb_port_state state, umad_port_t *port);

/* --- port.c ------------------------------------------------------------------------------ */
/* vb_umad_port_get - an open port of this process by its descriptor; NULL. It stays until it is
 * given back. */
struct vb_umad_port *vb_umad_port_get(int fd);
void vb_umad_port_put(struct vb_umad_port *port);
/* vb_umad_queue - with the port's lock: message is the program's to receive, or freed when too many
 * wait already. */
void vb_umad_queue(struct vb_umad_port *port, struct vb_umad_message *message);
/* vb_umad_queue_first - with the port's lock: one that was taken and did not fit. */
void vb_umad_queue_first(struct vb_umad_port *port, struct vb_umad_message *message);
/* vb_umad_take - with the port's lock: the next message, or NULL. */
struct vb_umad_message *vb_umad_take(struct vb_umad_port *port);

/* --- agent.c ----------------------------------------------------------------------------- */
/* vb_umad_agent_destroy - without any lock; it is in no port's table any more. */
void vb_umad_agent_destroy(struct vb_umad_agent *agent);

/* vb_umad_has_rmpp - whether MADs of the class have an RMPP header. */
bool vb_umad_has_rmpp(uint8_t mgmt_class);
/* vb_umad_is_from - whether a MAD from source may answer one that went to asked. */
bool vb_umad_is_from(const struct vb_umad_port *port, const struct in6_addr *source,
		     const struct in6_addr *asked);
/* vb_umad_is_for_vendor - whether the OUI in a vendor's MAD is the agent's; true for others. */
bool vb_umad_is_for_vendor(const struct vb_umad_agent *agent, const uint8_t *mad);
/* vb_umad_find_request - with the port's lock: what an answer that came is for; NULL. */
struct vb_umad_send *vb_umad_find_request(const struct vb_umad_agent *agent,
					  const struct vb_gsi_rx *rx);
/* vb_umad_deliver - with the port's lock: message, whose bytes came from rx, is the program's, if
 * somebody waits for it; otherwise it is freed. */
void vb_umad_deliver(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx,
		     struct vb_umad_message *message);

/* --- timer.c ----------------------------------------------------------------------------- */
/* vb_umad_timer_watch - with the port's lock, after a send was appended. 0 or -errno. */
int vb_umad_timer_watch(struct vb_umad_port *port) VB_MUST_USE;
/* vb_umad_timer_run - with the port's lock, which it may give away for moments: does what is due.
 * Returns when it is to be called next. */
uint64_t vb_umad_timer_run(struct vb_umad_port *port);
/* vb_umad_timer_stop - without any lock; waits for its end. */
void vb_umad_timer_stop(struct vb_umad_port *port);
/* vb_umad_send_forget - with the port's lock: takes it off the port and frees it. */
void vb_umad_send_forget(struct vb_umad_port *port, struct vb_umad_send *send);
/* vb_umad_give_up - with the port's lock: the program gets it back with status, a positive errno.
 */
void vb_umad_give_up(struct vb_umad_port *port, struct vb_umad_send *send, int status);
/* vb_umad_deadline - from now; timeouts that are negative as an int never end. */
uint64_t vb_umad_deadline(uint32_t timeout_ms);

/* --- rmpp.c: all with the port's lock ----------------------------------------------------- */
/* vb_umad_rmpp_is_ours - whether a MAD of the agent's is a segment, or to be cut into some. */
bool vb_umad_rmpp_is_ours(const struct vb_umad_agent *agent, const uint8_t *mad);
/* vb_umad_rmpp_is_programs - whether it is a segment that the program made, or will put together.
 */
bool vb_umad_rmpp_is_programs(const struct vb_umad_agent *agent, const uint8_t *mad);
/* vb_umad_rmpp_begin - plans how a message of length bytes is cut. 0, -EINVAL, -EMSGSIZE. */
int vb_umad_rmpp_begin(struct vb_umad_send *send, uint32_t length) VB_MUST_USE;
/* vb_umad_rmpp_push - puts what the window allows into the outbox, and sets the deadline. */
void vb_umad_rmpp_push(struct vb_umad_port *port, struct vb_umad_send *send);
/* vb_umad_rmpp_repeat - the same from what was acknowledged last. */
void vb_umad_rmpp_repeat(struct vb_umad_port *port, struct vb_umad_send *send);
/* vb_umad_rmpp_is_sending - whether acknowledgements are still to come. */
bool vb_umad_rmpp_is_sending(const struct vb_umad_send *send);
/* vb_umad_rmpp_flush - sends what is in the outbox; gives the lock away for moments. */
void vb_umad_rmpp_flush(struct vb_umad_port *port);
void vb_umad_rmpp_received(struct vb_umad_agent *agent, const struct vb_gsi_rx *rx);
/* vb_umad_rmpp_forget - what an agent (NULL: everybody) has half received. */
void vb_umad_rmpp_forget(struct vb_umad_port *port, const struct vb_umad_agent *agent);

/* --- subnet_agent.c ---------------------------------------------------------------------- */
/* vb_umad_subnet_answer - what this port's subnet management agent says to a MAD of ours. False:
 * nothing, the MAD is not for this port or not a request. */
bool vb_umad_subnet_answer(struct vb_umad_port *port, const uint8_t in[VB_MAD_BYTES],
			   uint8_t out[VB_MAD_BYTES]);

/* --- buffer.c ---------------------------------------------------------------------------- */
/* vb_umad_message_create - zeros, with room for so many bytes, VB_MAD_BYTES at least; its length is
 * VB_MAD_BYTES. NULL: no memory. */
struct vb_umad_message *vb_umad_message_create(uint32_t room);
/* vb_umad_is_response - of a MAD (IBTA 13.4.5). */
bool vb_umad_is_response(const uint8_t *mad);
/* vb_umad_trace - a line to standard error from debug level 1 on. */
void vb_umad_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
