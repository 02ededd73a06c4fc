/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_ring.c - packets through a ring with one producer and one consumer.
 *
 *      | mark 8 | BTH, extended headers | payload | pad | to a multiple of 16 | mark | ...
 *
 * Where the payload is lent, what names it takes its place, and the mark says so (LENT):
 *
 *      | BTH, extended headers | bytes 4 | count 4 | va 8, rkey 4, length 4 | ...
 *
 * WANTED in the mark: its acknowledgement is not to wait for the end of the consumer's look
 * (core/rc_short.c).
 *
 * A mark holds the packet's size, and its complement as a check; a mark of 0 says that nothing is
 * here yet. The producer writes the packet, then a mark of 0 where the next frame will begin, then
 * the packet's mark with release semantics; so the consumer never takes old bytes for a frame,
 * needs to read no shared position, and a producer killed anywhere leaves a ring that ends cleanly.
 *
 * Positions are counted in bytes, free running. The data is mapped twice in a row, in both
 * processes, so that a frame at the end runs on into the beginning. The consumer publishes how far
 * it has read in its own segment, at least every PUBLISH_BYTES. Room for the next mark is always
 * kept.
 *
 * No room: the producer changes `want` and looks again; the consumer, having published, looks at
 * `want` and rings the producer's doorbell when it changed. Both store first and load then.
 *
 * The consumer reads each mark once and checks it; small packets are copied out before they are
 * looked at; of large ones the bounds are ours, and a producer that changes the bytes meanwhile
 * changes its own packet. A ring that holds nonsense is not read any more.
 */
#define _GNU_SOURCE
#include "carrier/local_private.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MASK (VB_LOCAL_RING_BYTES - 1u)
#define FRAME_ALIGN 16u
#define MARK_BYTES 8u
#define PACKET_MAX (VB_HEADERS_MAX + VB_LOCAL_SEGMENT + 3u)
#define PUBLISH_BYTES (VB_LOCAL_RING_BYTES / 8)
#define SMALL_BYTES 256u
#define AHEAD_BYTES 128u /* farther ones the consumer's processor fetches meanwhile, unasked */
#define LEAST_BYTES 24u	 /* of a packet; its frame has as many behind the mark at least */
#define LENT 0x80000000u /* in a mark, beside the size */
#define WANTED 0x40000000u
#define LENT_HEAD 8u

_Static_assert((VB_LOCAL_RING_BYTES & MASK) == 0, "a power of two");
_Static_assert(VB_LOCAL_RING_BYTES >= 8 * (PACKET_MAX + 64), "eight pieces and more");

/* The builtin alone fetches to read, on x86-64. */
#ifdef __x86_64__
static inline void prefetch_for_write(const void *at)
{
	__asm__ volatile("prefetchw %0" ::"m"(*(const char *)at));
}
#else
static inline void prefetch_for_write(const void *at)
{
	__builtin_prefetch(at, 1);
}
#endif

_Static_assert(VB_HEADERS_MAX + LENT_HEAD + VB_LENT_PARTS * sizeof(struct vb_lent_part) <=
		       SMALL_BYTES,
	       "what is copied before it is looked at");

static inline uint64_t mark_of(uint32_t size)
{
	return (uint64_t)~size << 32 | size;
}

static inline uint32_t frame_bytes(uint32_t size)
{
	return (MARK_BYTES + size + FRAME_ALIGN - 1) & ~(FRAME_ALIGN - 1);
}

/* Header page and data, and the data once more behind it. */
static int map_ring(int fd, bool writable, struct vb_local_ring **ring)
{
	const int prot = PROT_READ | (writable ? PROT_WRITE : 0);
	const size_t bytes = VB_LOCAL_RING_FILE + VB_LOCAL_RING_BYTES;
	uint8_t *base =
		mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct stat st;

	if (base == MAP_FAILED)
		return -errno;
	/* Populated: a page fault costs more than a piece's copy, and the ring is used from end to
	 * end. */
	if (mmap(base, VB_LOCAL_RING_FILE, prot, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) ==
		    MAP_FAILED ||
	    mmap(base + VB_LOCAL_RING_FILE, VB_LOCAL_RING_BYTES, prot,
		 MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, VB_FILE_PAGE) == MAP_FAILED) {
		int error = errno;

		munmap(base, bytes);
		return -error;
	}
	if (fstat(fd, &st) || (uint64_t)st.st_size < VB_LOCAL_RING_FILE) {
		munmap(base, bytes);
		return -EBADMSG;
	}
	*ring = (struct vb_local_ring *)base;
	return 0;
}

void vb_local_ring_unmap(const struct vb_local_ring *ring)
{
	if (ring)
		munmap((void *)(uintptr_t)ring, VB_LOCAL_RING_FILE + VB_LOCAL_RING_BYTES);
}

/* --- the producer's end
 * --------------------------------------------------------------------------- */

int vb_local_ring_create(struct vb_local *local, struct vb_local_peer *peer)
{
	struct vb_local_out *out = &peer->out;
	struct vb_local_ring *ring;
	uint32_t number;
	uint64_t id;
	int r, fd;

	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return -EIO;
	fd = vb_registry_file_create(local->registry, VB_FILE_RING, peer->slot, VB_LOCAL_RING_FILE,
				     VB_LOCAL_RING_FILE, &number);
	if (fd < 0)
		return fd;
	r = map_ring(fd, true, &ring);
	close(fd);
	if (r)
		goto err_abandon;
	ring->ring_id = id | 1; /* never 0 */
	ring->consumer_id = peer->id;
	ring->barriers = local->barriers;
	r = vb_registry_file_publish(local->registry, VB_FILE_RING, peer->slot, number);
	if (r)
		goto err_unmap;
	memset(out, 0, sizeof(*out));
	out->ring = ring;
	out->data = (uint8_t *)ring + VB_FILE_PAGE;
	out->ring_id = id | 1;
	return 0;

err_unmap:
	vb_local_ring_unmap(ring);
err_abandon:
	vb_registry_file_abandon(local->registry, number);
	return r;
}

/* Takes the consumer's position over. False: it is none. */
static bool refresh_head(struct vb_local *local, struct vb_local_peer *peer)
{
	const struct vb_local_consumed *line = &peer->area->consumed[local->slot];
	struct vb_local_out *out = &peer->out;
	uint64_t head;

	if (__atomic_load_n(&line->ring_id, __ATOMIC_SEQ_CST) != out->ring_id)
		return true; /* it has not opened this ring yet */
	head = __atomic_load_n(&line->head, __ATOMIC_SEQ_CST);
	if (head - out->head > out->tail - out->head || head % FRAME_ALIGN)
		return false;
	out->head = head;
	return true;
}

static inline bool fits(const struct vb_local_out *out, uint32_t need)
{
	return out->tail - out->head + need + FRAME_ALIGN <= VB_LOCAL_RING_BYTES;
}

void vb_local_ring_close_out(struct vb_local *local, struct vb_local_peer *peer)
{
	struct vb_local_out *out = &peer->out;
	bool useless = vb_local_is_closed(peer->segment) ||
		       __atomic_load_n(&peer->area->id, __ATOMIC_ACQUIRE) != peer->id ||
		       !refresh_head(local, peer) || out->head == out->tail ||
		       !vb_registry_is_alive(local->registry, peer->slot);

	__atomic_store_n(&out->ring->header.closed, 1, __ATOMIC_RELEASE);
	/* What a living consumer has not read yet it shall find: it may be the last acknowledgement
	 * of a process that is about to exit. */
	if (useless)
		vb_registry_file_remove(local->registry, VB_FILE_RING, peer->slot);
	vb_local_bell_leave(local, peer);
	vb_local_ring_unmap(out->ring);
	if (out->waiting) {
		local->waiting--;
		local->room_due = true; /* the packets that wait find out what became of the peer */
	}
	memset(out, 0, sizeof(*out));
}

/* Nonsense in the consumer's position: we do not know what it has read, so the ring is over. */
static int give_up(struct vb_local *local, struct vb_local_peer *peer)
{
	vb_local_ring_close_out(local, peer);
	peer->broken = true;
	return -EIO;
}

/* Says that we wait. True: there is room after all. */
static bool ask_for_room(struct vb_local *local, struct vb_local_peer *peer)
{
	struct vb_local_out *out = &peer->out;

	__atomic_fetch_add(&out->ring->want, 1, __ATOMIC_SEQ_CST);
	return refresh_head(local, peer) && fits(out, out->needed);
}

/* 0: need bytes fit, or -EAGAIN, -EIO. */
static int find_room(struct vb_local *local, struct vb_local_peer *peer, uint32_t need)
{
	struct vb_local_out *out = &peer->out;

	if (!refresh_head(local, peer))
		return give_up(local, peer);
	if (fits(out, need))
		return 0;
	out->needed = need;
	if (ask_for_room(local, peer))
		return 0;
	if (!out->waiting) {
		out->waiting = true;
		if (local->waiting++ == 0)
			local->waiting_checked_ms = vb_local_now_ms();
	}
	return -EAGAIN;
}

bool vb_local_ring_has_room(struct vb_local *local, struct vb_local_peer *peer)
{
	struct vb_local_out *out = &peer->out;

	if (!refresh_head(local, peer)) {
		(void)give_up(local, peer);
		return true; /* the next attempt hears what is wrong */
	}
	if (!fits(out, out->needed) && !ask_for_room(local, peer))
		return false;
	out->waiting = false;
	local->waiting--;
	return true;
}

/* The usual short message at the cost of a load and a store. */
static inline void copy(uint8_t *to, const void *from, size_t bytes)
{
	if (bytes == 8)
		memcpy(to, from, 8);
	else
		memcpy(to, from, bytes);
}

/* Gathers exactly bytes of payload. False: the parts hold fewer. */
static bool gather(uint8_t *to, const struct iovec *parts, int count, uint32_t bytes)
{
	int i;

	if (count == 1 && parts->iov_len == bytes) {
		copy(to, parts->iov_base, bytes);
		return true;
	}
	for (i = 0; i < count && bytes; i++) {
		size_t n = VB_MIN(parts[i].iov_len, (size_t)bytes);

		memcpy(to, parts[i].iov_base, n);
		to += n;
		bytes -= (uint32_t)n;
	}
	return bytes == 0;
}

static void put_lent(uint8_t *to, const struct vb_lent *lent)
{
	const uint32_t head[2] = {lent->bytes, lent->count};

	memcpy(to, head, LENT_HEAD);
	memcpy(to + LENT_HEAD, lent->parts, lent->count * sizeof(*lent->parts));
}

/* Bytes behind the headers: payload and pad, or what names them. */
static uint32_t body_bytes(const struct vb_tx *tx)
{
	if (tx->lent)
		return LENT_HEAD + tx->lent->count * (uint32_t)sizeof(*tx->lent->parts);
	return tx->payload_bytes + tx->headers->pad;
}

static bool put_body(uint8_t *to, const struct vb_tx *tx)
{
	if (tx->lent) {
		put_lent(to, tx->lent);
		return true;
	}
	if (!gather(to, tx->payload, tx->payload_parts, tx->payload_bytes))
		return false;
	memset(to + tx->payload_bytes, 0, tx->headers->pad);
	return true;
}

/* begin_frame - where it goes; the lines that it needs are on their way. */
static inline uint8_t *begin_frame(const struct vb_local *local, const struct vb_local_peer *peer)
{
	const struct vb_local_out *out = &peer->out;
	uint8_t *at = out->data + (out->tail & MASK);

	/* The consumer has both lines in its cache, having looked for this packet: fetch them at
	 * once rather than one after the other (0.50 us one way instead of 0.55). */
	prefetch_for_write(at);
	/* Of a row of short packets the lines that come next; they are long read. */
	prefetch_for_write(out->data + ((out->tail + AHEAD_BYTES) & MASK));
	if (!vb_local_is_followed(local, peer))
		prefetch_for_write(&peer->bell->summary);
	return at;
}

/* end_frame - its bytes are there, and from here on the consumer may see it. */
static inline void end_frame(struct vb_local *local, struct vb_local_peer *peer, uint8_t *at,
			     uint32_t need, uint64_t mark)
{
	__atomic_store_n((uint64_t *)(void *)(at + need), 0, __ATOMIC_RELAXED);
	__atomic_store_n((uint64_t *)(void *)at, mark, __ATOMIC_RELEASE);
	peer->out.tail += need;
	if (!vb_local_is_followed(local, peer))
		vb_local_bell_ring(local, peer);
}

int vb_local_ring_put(struct vb_local *local, struct vb_local_peer *peer, const struct vb_tx *tx)
{
	struct vb_local_out *out = &peer->out;
	uint32_t header_bytes = vb_opcode_table[tx->headers->opcode].header_bytes;
	uint32_t size = header_bytes + body_bytes(tx);
	uint32_t need = frame_bytes(size);
	uint8_t *at;
	int r;

	if ((!tx->lent && tx->payload_bytes > VB_LOCAL_SEGMENT) || tx->headers->pad > 3)
		return -EMSGSIZE;
	if (!fits(out, need)) {
		r = find_room(local, peer, need);
		if (r)
			return r;
	}
	at = begin_frame(local, peer);
	r = vb_headers_encode(tx->headers, at + MARK_BYTES, VB_HEADERS_MAX);
	if (r < 0)
		return r;
	if ((uint32_t)r != header_bytes || !put_body(at + MARK_BYTES + header_bytes, tx))
		return -EINVAL;
	if (tx->lent) {
		local->lent_to = peer->slot;
		local->lent_looks = VB_LOCAL_LENT_LOOKS;
	}
	end_frame(local, peer, at, need, mark_of(tx->lent ? size | LENT : size));
	return 0;
}

bool vb_local_ring_put_short(struct vb_local *local, struct vb_local_peer *peer,
			     const struct vb_short *packet)
{
	const uint32_t size = packet->header_bytes + packet->bytes + packet->pad;
	const uint32_t need = frame_bytes(size);
	uint8_t *at, *to;

	if (!fits(&peer->out, need) && (!refresh_head(local, peer) || !fits(&peer->out, need)))
		return false;
	at = begin_frame(local, peer);
	to = at + MARK_BYTES;
	memcpy(to, packet->header, sizeof(packet->header)); /* the payload overwrites the rest */
	to += packet->header_bytes;
	if (packet->bytes)
		copy(to, packet->payload, packet->bytes);
	for (uint32_t i = 0; i < packet->pad; i++)
		to[packet->bytes + i] = 0;
	end_frame(local, peer, at, need, mark_of(packet->wanted ? size | WANTED : size));
	return true;
}

/* --- the consumer's end
 * ----------------------------------------------------------------------------- */

static int open_in(struct vb_local *local, struct vb_local_peer *peer)
{
	struct vb_local_consumed *line = &local->area->consumed[peer->slot];
	struct vb_local_in *in = &peer->in;
	struct vb_file_header header;
	struct vb_local_ring *ring;
	uint64_t id;
	int r, fd;

	fd = vb_registry_file_open(local->registry, VB_FILE_RING, peer->slot, local->slot,
				   VB_LOCAL_RING_FILE, false, &header);
	if (fd < 0)
		return fd;
	r = map_ring(fd, false, &ring);
	close(fd);
	if (r)
		return r;
	id = __atomic_load_n(&ring->ring_id, __ATOMIC_ACQUIRE);
	if (id == 0 || id == in->ring_id || ring->consumer_id != local->area->id) {
		vb_local_ring_unmap(ring);
		return -ENOENT;
	}
	memset(in, 0, sizeof(*in));
	in->ring = ring;
	in->data = (const uint8_t *)ring + VB_FILE_PAGE;
	in->ring_id = id;
	in->instance = header.instance;
	__atomic_store_n(&line->ring_id, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&line->head, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&line->followed, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&line->ring_id, id, __ATOMIC_SEQ_CST);
	return 0;
}

void vb_local_ring_close_in(struct vb_local *local, struct vb_local_peer *peer)
{
	struct vb_local_in *in = &peer->in;

	vb_local_unfollow(local, peer);
	vb_local_ring_unmap(in->ring);
	in->ring = NULL;
	in->data = NULL;
	vb_registry_file_retire(local->registry, peer->slot, in->instance);
}

static void publish(struct vb_local *local, struct vb_local_peer *peer)
{
	struct vb_local_in *in = &peer->in;
	uint32_t want;

	__atomic_store_n(&local->area->consumed[peer->slot].head, in->head, __ATOMIC_SEQ_CST);
	in->published = in->head;
	want = __atomic_load_n(&in->ring->want, __ATOMIC_SEQ_CST);
	if (want == in->want_served)
		return;
	in->want_served = want;
	if (vb_local_peer_view(local, peer) == 0 && peer->instance == in->instance)
		vb_local_bell_ring(local, peer);
}

/* What a packet of size bytes at data lends; it is ours already. False: nonsense. */
static bool take_lent(const uint8_t *data, uint32_t *size, struct vb_lent_part *parts,
		      struct vb_lent *lent)
{
	const uint32_t header_bytes = vb_opcode_table[data[0]].header_bytes;
	uint64_t sum = 0;

	if (header_bytes == 0 || *size < header_bytes + LENT_HEAD)
		return false;
	memcpy(&lent->bytes, data + header_bytes, 4);
	memcpy(&lent->count, data + header_bytes + 4, 4);
	if (lent->count > VB_LENT_PARTS ||
	    *size != header_bytes + LENT_HEAD + lent->count * (uint32_t)sizeof(*parts))
		return false;
	memcpy(parts, data + header_bytes + LENT_HEAD, lent->count * sizeof(*parts));
	for (uint32_t i = 0; i < lent->count; i++)
		sum += parts[i].length;
	lent->parts = parts;
	*size = header_bytes;
	return sum == lent->bytes && sum > 0 && sum <= VB_LENT_BYTES;
}

/* The packet of the frame that begins at that position, if there is one yet: whatever is there. */
static const uint8_t *peek(const struct vb_local_in *in, uint64_t position)
{
	const uint8_t *at = in->data + (position & MASK);

	if (__atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE) == 0)
		return NULL;
	return at + MARK_BYTES;
}

/* deliver_lent - the same of a packet that lends its payload. */
static bool deliver_lent(struct vb_local *local, struct vb_rx *rx)
{
	struct vb_lent_part parts[VB_LENT_PARTS];
	uint32_t size = (uint32_t)rx->size;
	struct vb_lent lent;

	if (size > SMALL_BYTES || !take_lent(rx->data, &size, parts, &lent))
		return false;
	rx->size = size;
	rx->lent = &lent;
	local->base.deliver(local->base.env, rx);
	rx->lent = NULL;
	return true;
}

/* Delivers the packet of size bytes at data, by rx, which says already whence. False: it is none.
 */
static inline bool deliver(struct vb_local *local, const uint8_t *data, uint32_t size, bool is_lent,
			   struct vb_rx *rx)
{
	_Alignas(16) uint8_t small[SMALL_BYTES];

	rx->data = size <= SMALL_BYTES ? small : data;
	rx->size = size;
	if (size <= LEAST_BYTES)
		memcpy(small, data, LEAST_BYTES); /* all of its frame: worth no call */
	else if (size <= SMALL_BYTES)
		memcpy(small, data, size);
	local->counters.rx_packets++;
	if (__builtin_expect(is_lent, 0))
		return deliver_lent(local, rx);
	local->base.deliver(local->base.env, rx);
	return true;
}

/* A ring that nobody writes any more has been read, or one that must not be read. */
static int finish_in(struct vb_local *local, struct vb_local_peer *peer, bool over, bool *more)
{
	*more = false;
	if (over) {
		vb_local_ring_close_in(local, peer);
		*more = true; /* the slot's next owner may have written already */
	}
	return 0;
}

int vb_local_ring_drain(struct vb_local *local, struct vb_local_peer *peer, int budget, bool *more)
{
	struct vb_local_in *in = &peer->in;
	struct vb_rx rx = {
		.src = local->registry->address,
		.dst = local->registry->address,
		.hop_limit = 64,
	};
	bool over;
	int count;

	*more = false;
	if (!in->ring) {
		int r = open_in(local, peer);

		if (r && r != -ENOENT && r != -EBADMSG) {
			/* Out of descriptors or memory: what is in there is not lost, only late. */
			local->retry[peer->slot / 64] |= 1ull << (peer->slot % 64);
			local->retries = true;
		}
		if (r)
			return 0;
	}
	/* Before the marks are read: what it wrote before it closed is seen below. */
	over = in->producer_dead || vb_local_is_closed(&in->ring->header);
	if (in->corrupt)
		return finish_in(local, peer, over, more);
	for (count = 0; count < budget; count++) {
		const uint8_t *at = in->data + (in->head & MASK);
		uint64_t mark =
			__atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
		const bool is_lent = mark & LENT;
		uint32_t size = (uint32_t)mark & ~(LENT | WANTED);

		if (mark == 0)
			break;
		rx.wanted = mark & WANTED;
		rx.next = peek(in, in->head + frame_bytes(size));
		if (mark != mark_of((uint32_t)mark) || size < VB_BTH_BYTES || size > PACKET_MAX ||
		    !deliver(local, at + MARK_BYTES, size, is_lent, &rx)) {
			in->corrupt = true;
			vb_local_unfollow(local, peer);
			break;
		}
		in->head += frame_bytes(size);
		if (is_lent)
			budget = count + 1; /* its answer is not to wait for the next one's copy */
		if (in->head - in->published >= PUBLISH_BYTES)
			publish(local, peer);
	}
	*more = count == budget && !in->corrupt;
	if (!in->corrupt)
		vb_local_follow_if_busy(local, peer, count);
	if (!*more)
		(void)finish_in(local, peer, over, more);
	return count;
}
