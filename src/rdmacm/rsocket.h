/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket.h - sockets over RDMA, as the files rsocket_*.c see them. They use nothing but the public
 * calls of librdmacm and libibverbs.
 *
 *      rsocket_wire        what travels, as bytes
 *      rsocket_config      the defaults of /etc/rdma/rsocket
 *      rsocket_table       descriptor -> rsocket, references
 *      rsocket_life        rsocket(), rclose(), rshutdown()
 *      rsocket_address     socket addresses in and out
 *      rsocket_connect     bind, listen, accept, connect: the CM's events move the state
 *      rsocket_endpoint    queue pair, buffers and keys of a stream
 *      rsocket_progress    completions and credits of a stream
 *      rsocket_stream      bytes of a stream in and out
 *      rsocket_iomap       riomap(): memory that the peer may write
 *      rsocket_datagram    datagrams in and out
 *      rsocket_datagram_qp their queue pairs, one per address of ours
 *      rsocket_datagram_udp  what goes by UDP until the queue pairs know each other
 *      rsocket_wait        to sleep until something happens
 *      rsocket_poll        rpoll(), rselect()
 *      rsocket_option      options, names, flags
 *      rsocket_io          rsend() and rrecv() in all their forms
 *      rsocket_keepalive   the thread that sends keepalives
 *
 * The descriptor of a stream is that of its event channel, of a datagram rsocket its UDP socket:
 * real, unique in the process, and of no use to the kernel's own calls.
 *
 * Nothing runs behind the program's back: an rsocket moves on when a call is made on it. A peer
 * writes into the receive buffer all the same, as far as it was granted.
 *
 *      stream:   NEW -> BOUND -> LISTENING
 *                  \    |    -> RESOLVING_ADDRESS -> RESOLVING_ROUTE -> CONNECTING -+-> CONNECTED
 *                   `---'                          of raccept():        ACCEPTING  -'      |
 *                                     FAILED <- any of these             BROKEN, ENDED <---'
 *
 *      datagram: NEW -> BOUND (there is an address)
 *
 * Locks, in this order: `sender` or `receiver` for as long as one call sends or receives; `lock`
 * for the state, which a call gives back while it sleeps. A call holds a reference; the last one
 * frees.
 */
#ifndef VB_RDMACM_RSOCKET_H
#define VB_RDMACM_RSOCKET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
#pragma GCC visibility pop
#include <rdma/rdma_verbs.h>

#include "base/list.h"
#include "base/macros.h"
#include "rdmacm/rsocket_wire.h"

enum {
	VB_RS_DATAGRAM_BYTES = 2048, /* a datagram's buffer, its header included */
	VB_RS_CONTROL_DEPTH = 4,     /* control messages under way */
	VB_RS_SLOTS = 2,	     /* regions that a peer may announce to us */
	VB_RS_QUEUE_MIN = 16,
	VB_RS_QUEUE_MAX = 0xfffe,
	VB_RS_BUFFER_MIN = 2 * VB_RS_DATAGRAM_BYTES,
	VB_RS_BUFFER_MAX = 1 << 30,
	VB_RS_FDS_MAX = 64, /* descriptors that one rsocket sleeps on */
};

struct vb_rs_config {
	uint32_t receive_bytes, send_bytes; /* buffers */
	uint32_t sq_size, rq_size, inline_bytes, iomap_slots;
	uint32_t polling_us; /* how long to look before sleeping */
	uint32_t wake_up_ms; /* the longest sleep in rpoll() */
};

enum vb_rs_state {
	VB_RS_NEW,
	VB_RS_BOUND,
	VB_RS_LISTENING,
	VB_RS_RESOLVING_ADDRESS,
	VB_RS_RESOLVING_ROUTE,
	VB_RS_CONNECTING,
	VB_RS_ACCEPTING,
	VB_RS_CONNECTED,
	VB_RS_FAILED, /* to connect; `error` says why */
	VB_RS_BROKEN, /* the connection; `error` says why */
	VB_RS_ENDED,  /* by one side or the other, in good order */
};

/* A connection request that a listener took from its channel and nobody has accepted yet. */
struct vb_rs_request {
	struct rdma_cm_id *id;
	struct vb_rs_conn peer;
	struct rdma_conn_param param;
};

struct vb_rs_stream {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct vb_rs_request request;
	struct ibv_comp_channel *cq_channel;
	struct ibv_cq *cq;
	bool read_open, write_open;
	bool end_told; /* the peer was told that we write no more */
	unsigned int fruitless; /* progress calls in a row that found nothing */
	uint64_t heard_ns;	/* when something last completed */
	void *path;		/* RDMA_ROUTE: to be used instead of resolving one */
	size_t path_size;

	/* received: `arrived` is a ring of lengths, the bytes lie behind each other in `rbuf` */
	uint8_t *rbuf;
	struct ibv_mr *rmr;
	uint32_t *arrived;
	uint32_t arrived_size, arrived_head, arrived_count;
	uint32_t unread;     /* bytes */
	uint32_t read_at;    /* offset of the next byte to hand over */
	uint32_t granted;    /* bytes the peer may still write */
	uint32_t free_bytes; /* handed over and not granted again */
	uint32_t grant_at;   /* offset of the half that is granted next */
	uint16_t taken;	     /* data messages handed over */
	uint16_t credit_due; /* the peer hears of credits when `taken` reaches this */
	struct vb_rs_region peer_slots, peer_iomap;
	uint32_t peer_slot; /* which one is filled next */
	bool peer_big_endian;

	/* sent: a ring of bytes, those of requests under way behind `send_at` */
	uint8_t *sbuf; /* send_bytes, then VB_RS_CONTROL_DEPTH slots */
	struct ibv_mr *smr;
	uint32_t send_at, send_free;
	uint32_t sq_free, control_free, control_next;
	uint32_t inline_bytes;
	uint16_t sent, allowed; /* data messages; none may be sent once they are equal */
	struct vb_rs_region target;
	uint32_t target_slot;

	/* what the peer writes: VB_RS_SLOTS slots, then iomap_slots entries */
	uint8_t *shared;
	struct ibv_mr *shared_mr;
	struct vb_list mapped, to_map; /* struct vb_rs_mapping */
	uint8_t *map_used;	       /* peer's entries */

	struct vb_list keepalive_link;
	bool keepalive;
	int keepalive_s;
	uint64_t keepalive_at_ns;
};

struct vb_rs_datagram {
	struct vb_list queue_pairs; /* struct vb_rs_local: one per address of ours */
	struct vb_list peers;	    /* struct vb_rs_peer: the ones used last come first */
	struct vb_list arrived;	    /* struct vb_rs_arrival, in order */
	unsigned int local_count, peer_count, by_udp; /* by_udp: of the arrived */
	struct vb_rs_peer *connected;
	unsigned int since_udp; /* looks since the UDP socket was looked at */
};

struct vb_rs {
	atomic_int references;
	int fd;
	int type, domain;
	pthread_mutex_t sender, receiver, lock;
	enum vb_rs_state state;
	bool closed;
	bool nonblocking;
	int error; /* what SO_ERROR returns, and clears */
	struct vb_list sleepers;
	uint32_t receive_bytes, send_bytes;
	uint32_t sq_size, rq_size, inline_bytes, iomap_slots;
	uint64_t so_flags; /* SOL_SOCKET options that are only remembered, by number */
	bool nodelay, v6only;
	struct linger linger;
	union {
		struct vb_rs_stream stream;
		struct vb_rs_datagram datagram;
	};
};

/* --- rsocket_config ------------------------------------------------------------------------ */

const struct vb_rs_config *vb_rs_config(void);

/* --- rsocket_epoll ------------------------------------------------------------------------- */

/* vb_rs_close_set - ends a set of repoll_create(); false: the descriptor is none. */
bool vb_rs_close_set(int fd);

/* --- rsocket_table ------------------------------------------------------------------------- */

/* vb_rs_insert - -ENOMEM, else rs->fd finds it from now on; the table has a reference. */
int vb_rs_insert(struct vb_rs *rs);
/* vb_rs_find - the rsocket of a descriptor with a reference, or NULL. */
struct vb_rs *vb_rs_find(int fd);
/* vb_rs_enter - the same, and its lock; NULL with errno EBADF. */
struct vb_rs *vb_rs_enter(int fd);
/* vb_rs_leave - gives both back; returns what the API returns for a result or -errno. */
long vb_rs_leave(struct vb_rs *rs, long result);
/* vb_rs_remove - takes it out; the table's reference is the caller's now. NULL if it is not in. */
struct vb_rs *vb_rs_remove(int fd);
void vb_rs_put(struct vb_rs *rs);

/* --- rsocket_life -------------------------------------------------------------------------- */

/* vb_rs_create - with the defaults, or what it inherits from a listener; no descriptor yet. */
struct vb_rs *vb_rs_create(int domain, int type, const struct vb_rs *listener);
void vb_rs_destroy(struct vb_rs *rs);

/* vb_rs_result - what the calls of the API return for a result or -errno. */
long vb_rs_result(long result);
/* vb_rs_failed - 0, or -errno of a call that returned -1. */
int vb_rs_failed(int result);

/* --- rsocket_connect ----------------------------------------------------------------------- */

static inline bool vb_rs_is_opening(const struct vb_rs *rs)
{
	return rs->state >= VB_RS_RESOLVING_ADDRESS && rs->state <= VB_RS_ACCEPTING;
}

/* vb_rs_cm_events - handles what the CM has to say; true when there was something. */
bool vb_rs_cm_events(struct vb_rs *rs);
/* vb_rs_has_request - a listener has a connection to accept. */
bool vb_rs_has_request(struct vb_rs *rs);
/* vb_rs_await_connection - 0 once connected (or past it); -EAGAIN, -EINTR, -ENOTCONN or why it
 * failed. */
int vb_rs_await_connection(struct vb_rs *rs, bool nonblocking);

/* --- rsocket_address ----------------------------------------------------------------------- */

/* vb_rs_copy_in - 0, -EINVAL or -EAFNOSUPPORT. An IPv4 address mapped into IPv6 becomes IPv4. */
int vb_rs_copy_in(union vb_rs_address *to, const struct sockaddr *from, socklen_t size);
/* vb_rs_copy_out - cut to *size, which becomes its real size; IPv4 mapped for an IPv6 rsocket. */
void vb_rs_copy_out(const struct vb_rs *rs, const struct sockaddr *from, struct sockaddr *to,
		    socklen_t *size);
bool vb_rs_is_any(const union vb_rs_address *address);
bool vb_rs_same_host(const union vb_rs_address *a, const union vb_rs_address *b);
uint16_t vb_rs_port(const union vb_rs_address *address); /* as in the sockaddr */
socklen_t vb_rs_address_size(const union vb_rs_address *address);

/* --- rsocket_endpoint ---------------------------------------------------------------------- */

/* vb_rs_open_endpoint - queue pair and buffers for the stream's id, which has a device. */
int vb_rs_open_endpoint(struct vb_rs *rs);
void vb_rs_close_endpoint(struct vb_rs *rs);
void vb_rs_describe(const struct vb_rs *rs, uint8_t bytes[VB_RS_CONN_BYTES]);
void vb_rs_meet(struct vb_rs *rs, const struct vb_rs_conn *peer);

/* --- rsocket_progress ---------------------------------------------------------------------- */

/* What a send queue's completion says of its request. */
enum vb_rs_request_kind {
	VB_RS_REQUEST_BYTES,   /* of the send buffer: so many come back, and a place in the queue */
	VB_RS_REQUEST_CONTROL, /* a control message */
	VB_RS_REQUEST_LAST,    /* the control message that ends the connection */
	VB_RS_REQUEST_RECEIVE,
};

/* vb_rs_progress - does what can be done now; true when something changed. */
bool vb_rs_progress(struct vb_rs *rs);
/* vb_rs_take_completions - the part of it that no CM event is needed for; the stream has a CQ. */
bool vb_rs_take_completions(struct vb_rs *rs);
/* vb_rs_give_credits - tells the peer of what was handed over, when it is enough. */
void vb_rs_give_credits(struct vb_rs *rs);
/* vb_rs_break - ends a connection that cannot go on. */
void vb_rs_break(struct vb_rs *rs, int error);
int vb_rs_post_write(struct vb_rs *rs, enum vb_rs_request_kind kind, uint32_t bytes,
		     struct ibv_send_wr *wr);
int vb_rs_post_control(struct vb_rs *rs, enum vb_rs_control control);
/* vb_rs_post_keepalive - an empty RDMA WRITE, if a control message may be sent. */
void vb_rs_post_keepalive(struct vb_rs *rs);
/* vb_rs_probe - makes sure that a peer which has been silent for long is still there. */
void vb_rs_probe(struct vb_rs *rs);
bool vb_rs_control_free(struct vb_rs *rs);
bool vb_rs_all_sent(struct vb_rs *rs);
bool vb_rs_readable(struct vb_rs *rs);
bool vb_rs_writable(struct vb_rs *rs);

/* --- rsocket_stream ------------------------------------------------------------------------ */

/* Bytes to be sent, or room for bytes, in the order of the vector. */
struct vb_rs_vector {
	const struct iovec *iov;
	int count;
	size_t offset; /* in the first one */
};

/* vb_rs_vector_bytes - how many; -EINVAL when there are more than a result can say. */
ssize_t vb_rs_vector_bytes(const struct vb_rs_vector *vector);
/* vb_rs_vector_copy - moves up to `size` bytes out of the vector, or into it, and goes on behind
 * them; returns how many there was place for. */
size_t vb_rs_vector_copy(struct vb_rs_vector *vector, void *bytes, size_t size, bool into);

ssize_t vb_rs_stream_send(struct vb_rs *rs, struct vb_rs_vector *from, int flags);
ssize_t vb_rs_stream_receive(struct vb_rs *rs, struct vb_rs_vector *to, int flags);
/* vb_rs_send_piece - `size` bytes through the send buffer, which has room, as one request. */
int vb_rs_send_piece(struct vb_rs *rs, struct vb_rs_vector *from, uint32_t size,
		     struct ibv_send_wr *wr);
/* vb_rs_await_room - until one more message may be sent; 0 or why not. */
int vb_rs_await_room(struct vb_rs *rs, bool nonblocking);
/* vb_rs_piece - how much of `left` goes into the next request; `step` grows with each. */
uint32_t vb_rs_piece(const struct vb_rs *rs, size_t left, uint32_t room, uint32_t *step);
bool vb_rs_may_send(struct vb_rs *rs);
enum { VB_RS_FIRST_STEP = 4096, VB_RS_LAST_STEP = 65536 };

/* --- rsocket_iomap ------------------------------------------------------------------------- */

/* vb_rs_send_mappings - tells the peer of what was mapped; 0, or why not. */
int vb_rs_send_mappings(struct vb_rs *rs, bool nonblocking);
void vb_rs_drop_mappings(struct vb_rs *rs);

/* --- rsocket_datagram ---------------------------------------------------------------------- */

int vb_rs_datagram_open(struct vb_rs *rs);
/* vb_rs_datagram_flush - what was sent leaves, before its queue pair goes. */
void vb_rs_datagram_flush(struct vb_rs *rs);
void vb_rs_datagram_close(struct vb_rs *rs);
int vb_rs_datagram_bind(struct vb_rs *rs, const union vb_rs_address *address);
int vb_rs_datagram_connect(struct vb_rs *rs, const union vb_rs_address *address);
int vb_rs_datagram_peer(struct vb_rs *rs, struct sockaddr *to, socklen_t *size);
/* vb_rs_datagram_send - to the connected peer when `to` is NULL. */
ssize_t vb_rs_datagram_send(struct vb_rs *rs, struct vb_rs_vector *from, int flags,
			    const union vb_rs_address *to);
/* vb_rs_datagram_receive - the datagram's size, which may be more than there was room for. */
ssize_t vb_rs_datagram_receive(struct vb_rs *rs, struct vb_rs_vector *to, int flags,
			       union vb_rs_address *from);
bool vb_rs_datagram_progress(struct vb_rs *rs);
bool vb_rs_datagram_readable(struct vb_rs *rs);
bool vb_rs_datagram_writable(struct vb_rs *rs);

/* One address of ours with its queue pair. */
struct vb_rs_local {
	struct vb_list link;
	union vb_rs_address address;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *cq_channel;
	struct ibv_cq *cq;
	uint8_t sgid_index;
	uint8_t header[VB_RS_UD_BYTES_IPV6]; /* of everything sent from here */
	uint32_t header_bytes;
	uint32_t payload_bytes; /* the longest datagram, its header left out */
	uint8_t *memory;	/* receive slots, then send slots */
	struct ibv_mr *mr;
	uint32_t receive_slots, send_slots;
	struct vb_rs_arrival *arrivals; /* one per receive slot */
	uint32_t *free_slots, free_count;
};

/* A datagram that nobody has read yet. */
struct vb_rs_arrival {
	struct vb_list link;
	struct vb_rs_local *local; /* where its slot is given back; NULL: it came by UDP, freed */
	uint32_t slot;
	uint32_t size;
	const uint8_t *data;
	union vb_rs_address from;
};

/* Somebody that datagrams go to or come from. */
struct vb_rs_peer {
	struct vb_list link;
	union vb_rs_address address;
	struct vb_rs_local *local; /* which queue pair reaches it */
	struct ibv_ah *ah;	   /* NULL until its queue pair is known */
	uint32_t queue_pair;
};

/* --- rsocket_datagram_qp ------------------------------------------------------------------- */

/* vb_rs_local_find - the queue pair for an address of ours (the port does not matter), made when it
 * is new; -ENODEV when no device has the address. */
int vb_rs_local_find(struct vb_rs *rs, const union vb_rs_address *address,
		     struct vb_rs_local **local);
void vb_rs_local_destroy(struct vb_rs_local *local);
/* vb_rs_local_poll - takes completions; true when there were some. */
bool vb_rs_local_poll(struct vb_rs *rs, struct vb_rs_local *local);
int vb_rs_local_send(struct vb_rs_local *local, const struct vb_rs_peer *peer,
		     struct vb_rs_vector *from, uint32_t size);
void vb_rs_local_repost(struct vb_rs_local *local, uint32_t slot);
struct ibv_ah *vb_rs_local_ah(const struct vb_rs_local *local, const union vb_rs_address *to);
void vb_rs_datagram_arm(struct vb_rs *rs);
int vb_rs_datagram_fds(struct vb_rs *rs, struct pollfd *fds);
void vb_rs_datagram_heed(struct vb_rs *rs, const struct pollfd *fds, int count);

/* --- rsocket_datagram_udp ------------------------------------------------------------------ */

/* vb_rs_udp_take - up to some of what came by UDP; true when there was something. */
bool vb_rs_udp_take(struct vb_rs *rs);
/* vb_rs_udp_send - `from` NULL: a control message. 0, -EAGAIN, ... */
int vb_rs_udp_send(struct vb_rs *rs, const struct vb_rs_peer *peer, struct vb_rs_vector *from);
/* vb_rs_udp_name - the UDP socket's own address. */
int vb_rs_udp_name(const struct vb_rs *rs, union vb_rs_address *address);
/* vb_rs_udp_bind - binds the UDP socket. */
int vb_rs_udp_bind(struct vb_rs *rs, const union vb_rs_address *address);
/* vb_rs_peer_find - the peer at an address, made when it is new. */
int vb_rs_peer_find(struct vb_rs *rs, const union vb_rs_address *address, struct vb_rs_peer **peer);

/* --- rsocket_wait -------------------------------------------------------------------------- */

typedef bool vb_rs_test(struct vb_rs *rs);

/* vb_rs_wait - with `lock` held (given back while asleep): 0 when test holds, -EAGAIN when it does
 * not and nonblocking, or at the end of timeout_ms (-1: none), -EINTR, -EBADF when it was closed.
 */
int vb_rs_wait(struct vb_rs *rs, vb_rs_test *test, bool nonblocking, int timeout_ms);

/* A thread that sleeps on some rsockets; others wake it through its descriptor. */
struct vb_rs_sleeper {
	struct vb_list link;
	int fd;
};

/* vb_rs_sleeper_fd - this thread's eventfd, or -errno. */
int vb_rs_sleeper_fd(void);
/* vb_rs_arm - asks to be told of the next completion, and makes progress once more. */
void vb_rs_arm(struct vb_rs *rs);
/* vb_rs_fds - the descriptors that tell of news, at most VB_RS_FDS_MAX. */
int vb_rs_fds(struct vb_rs *rs, struct pollfd *fds);
/* vb_rs_heed - takes in what they told; wakes the others who sleep on this rsocket. */
void vb_rs_heed(struct vb_rs *rs, const struct pollfd *fds, int count);
void vb_rs_wake(struct vb_rs *rs);
uint64_t vb_rs_now_ns(void);

/* --- rsocket_keepalive --------------------------------------------------------------------- */

int vb_rs_keepalive_start(struct vb_rs *rs);
void vb_rs_keepalive_stop(struct vb_rs *rs);

#endif
