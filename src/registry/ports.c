/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ports.c - the RDMA ports of one host; ports.h shows a word.
 *
 *      page 0          struct head: the tag of each slot's owner, written when it joins
 *      page 1 ..       words[space][family][port], 5 MiB of holes
 *
 * A word counts only while its slot is alive (the kernel's word) and its tag is the one of the
 * slot's owner: so nothing has to be cleaned up after a process that died, and whoever needs the
 * port takes the word over.
 *
 * Nobody touches a page of the mapping that has no memory behind it, since that kills with SIGBUS
 * where /dev/shm is full: a page is reserved before its first write, and looked at with pread(2)
 * until it has ever held something. Which pages are known to have memory each process remembers
 * for itself; no page ever loses it.
 *
 * The file is opened with the registry and closed with it. The first process of a host makes it
 * new, the last one removes it.
 */
#include "registry/ports.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "registry/registry_private.h"

#define FAMILIES 2u
#define PORTS 65536u
#define EPHEMERAL_FIRST 32768u /* as net.ipv4.ip_local_port_range has it */
#define EPHEMERAL_LAST 60999u
#define EPHEMERAL_COUNT (EPHEMERAL_LAST - EPHEMERAL_FIRST + 1)
#define TRIES 1000 /* at one word that others change at the same time */

#define TAG_SHIFT 32
#define CLAIMS_SHIFT 24
#define CLAIMS_MAX 0xffu
#define LISTENING (1ull << 16)

/* Each value comes from other processes and may be anything. */
struct head {
	uint32_t tag[VB_REGISTRY_SLOTS + 1];
};

#define WORDS_AT VB_FILE_PAGE
#define WORDS_BYTES (VB_PORT_SPACES * FAMILIES * PORTS * sizeof(uint64_t))
#define FILE_BYTES (WORDS_AT + WORDS_BYTES)

_Static_assert(sizeof(struct head) <= VB_FILE_PAGE, "the tags have a page");
_Static_assert(WORDS_BYTES / VB_FILE_PAGE == VB_PORT_PAGES, "a bit for each page of words");

static inline uint16_t slot_of(uint64_t word)
{
	return (uint16_t)word;
}

static inline uint32_t claims_of(uint64_t word)
{
	return (uint32_t)(word >> CLAIMS_SHIFT) & CLAIMS_MAX;
}

static uint64_t make_word(uint32_t tag, uint32_t claims, uint64_t flags, uint16_t slot)
{
	return (uint64_t)tag << TAG_SHIFT | (uint64_t)claims << CLAIMS_SHIFT | flags | slot;
}

static uint32_t own_tag(const struct vb_registry *registry)
{
	return (uint32_t)(registry->instance ^ registry->instance >> 32) | 1; /* never 0 */
}

static struct head *head_of(const struct vb_registry_private *p)
{
	return (struct head *)(void *)p->ports;
}

/* --- the file ---------------------------------------------------------------------------- */

static int open_file(struct vb_registry_private *p)
{
	struct stat st;
	int fd, r;

	/* What is left of a host whose processes were all killed. Under the registry's lock. */
	if (!vb_slot_holder(p->reg_fd, 1, VB_REGISTRY_SLOTS - 1, NULL))
		(void)unlinkat(p->dir_fd, VB_PORTS_NAME, 0);
	fd = openat(p->dir_fd, VB_PORTS_NAME,
		    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return -errno;
	r = -EACCES;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
		goto err;
	p->ports_inode = st.st_ino;
	r = -EBADMSG;
	if (st.st_size != 0 && st.st_size != (off_t)FILE_BYTES)
		goto err;
	r = ftruncate(fd, (off_t)FILE_BYTES) ? -errno : -posix_fallocate(fd, 0, VB_FILE_PAGE);
	if (r == 0)
		return fd;
err:
	close(fd);
	return r;
}

int vb_ports_open(struct vb_registry *registry)
{
	struct vb_registry_private *p = registry->private_data;
	void *map;
	int r = open_file(p);

	if (r < 0)
		return r;
	p->ports_fd = r;
	r = vb_file_map(p->ports_fd, FILE_BYTES, true, &map);
	if (r) {
		close(p->ports_fd);
		p->ports_fd = -1;
		return r;
	}
	p->ports = map;
	__atomic_store_n(&head_of(p)->tag[registry->slot], own_tag(registry), __ATOMIC_RELEASE);
	return 0;
}

void vb_ports_withdraw(struct vb_registry *registry)
{
	struct vb_registry_private *p = registry->private_data;

	if (p->ports)
		__atomic_store_n(&head_of(p)->tag[registry->slot], 0, __ATOMIC_RELEASE);
}

void vb_ports_close(struct vb_registry_private *p)
{
	if (p->ports)
		munmap(p->ports, FILE_BYTES);
	if (p->ports_fd >= 0)
		close(p->ports_fd);
	p->ports = NULL;
	p->ports_fd = -1;
}

/* --- words ------------------------------------------------------------------------------- */

/* -1: no such port space. */
static int space_index(uint16_t space)
{
	switch ((enum vb_port_space)space) {
	case VB_PS_IPOIB:
		return 0;
	case VB_PS_TCP:
		return 1;
	case VB_PS_UDP:
		return 2;
	case VB_PS_IB:
		return 3;
	case VB_PS_MAD:
		return 4;
	}
	return -1;
}

/* Where a word stands among all words. */
static size_t word_index(uint16_t space, unsigned int family, uint16_t port)
{
	return ((size_t)space_index(space) * FAMILIES + family) * PORTS + port;
}

static uint64_t *word_at(const struct vb_registry_private *p, size_t index)
{
	return (uint64_t *)(void *)(p->ports + WORDS_AT) + index;
}

static bool has_memory(const struct vb_registry_private *p, size_t index)
{
	size_t page = index * sizeof(uint64_t) / VB_FILE_PAGE;

	return atomic_load_explicit(&p->ports_pages[page / 64], memory_order_relaxed) &
	       1ull << page % 64;
}

static void note_memory(struct vb_registry_private *p, size_t index)
{
	size_t page = index * sizeof(uint64_t) / VB_FILE_PAGE;

	atomic_fetch_or(&p->ports_pages[page / 64], 1ull << page % 64);
}

/* The program may have closed our descriptor, and have opened a file of its own by that number. */
static bool is_our_file(const struct vb_registry_private *p)
{
	struct stat st;

	return fstat(p->ports_fd, &st) == 0 && st.st_ino == p->ports_inode && S_ISREG(st.st_mode);
}

/* Before a word is written. */
static int give_memory(struct vb_registry_private *p, size_t index)
{
	off_t at = (off_t)(WORDS_AT + index * sizeof(uint64_t));
	int r;

	if (has_memory(p, index))
		return 0;
	if (!is_our_file(p))
		return -EBADF;
	do
		r = posix_fallocate(p->ports_fd, at, sizeof(uint64_t));
	while (r == EINTR);
	if (r == 0)
		note_memory(p, index);
	return -r;
}

static uint64_t load_word(struct vb_registry_private *p, size_t index)
{
	uint64_t word = 0;

	if (has_memory(p, index))
		return __atomic_load_n(word_at(p, index), __ATOMIC_ACQUIRE);
	if (!is_our_file(p) ||
	    pread(p->ports_fd, &word, sizeof(word), (off_t)(WORDS_AT + index * sizeof(uint64_t))) !=
		    (ssize_t)sizeof(word))
		return 0;
	if (word)
		note_memory(p, index);
	return word;
}

/* --- whose it is ------------------------------------------------------------------------- */

static bool is_ours(const struct vb_registry *registry, uint64_t word)
{
	return slot_of(word) == registry->slot &&
	       (uint32_t)(word >> TAG_SHIFT) == own_tag(registry);
}

/* Which slots were seen alive during one call: the kernel is asked once for each. */
struct lives {
	uint64_t alive[(VB_REGISTRY_SLOTS + 64) / 64];
};

static bool is_others(struct vb_registry *registry, uint64_t word, struct lives *lives)
{
	uint16_t slot = slot_of(word);
	const struct head *head = head_of(registry->private_data);

	if (slot == 0 || slot >= VB_REGISTRY_SLOTS || slot == registry->slot)
		return false;
	if (__atomic_load_n(&head->tag[slot], __ATOMIC_ACQUIRE) != (uint32_t)(word >> TAG_SHIFT))
		return false;
	if (lives->alive[slot / 64] & 1ull << slot % 64)
		return true;
	if (!vb_registry_is_alive(registry, slot))
		return false;
	lives->alive[slot / 64] |= 1ull << slot % 64;
	return true;
}

/* One claim of one word. again: a word that is ours already may be claimed once more. */
static int claim_word(struct vb_registry *registry, size_t index, bool again, struct lives *lives)
{
	struct vb_registry_private *p = registry->private_data;
	uint64_t word = load_word(p, index);
	int r;

	for (int i = 0; i < TRIES; i++) {
		uint64_t next = make_word(own_tag(registry), 1, 0, registry->slot);

		if (is_ours(registry, word)) {
			if (!again || claims_of(word) == CLAIMS_MAX)
				return -EADDRINUSE;
			next = word + (1ull << CLAIMS_SHIFT);
		} else if (is_others(registry, word, lives)) {
			return -EADDRINUSE;
		}
		r = give_memory(p, index);
		if (r)
			return r;
		if (__atomic_compare_exchange_n(word_at(p, index), &word, next, false,
						__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return 0;
	}
	return -EADDRINUSE;
}

static void release_word(struct vb_registry *registry, size_t index)
{
	struct vb_registry_private *p = registry->private_data;
	uint64_t word = load_word(p, index);

	for (int i = 0; i < TRIES && is_ours(registry, word); i++) {
		uint64_t next = claims_of(word) > 1 ? word - (1ull << CLAIMS_SHIFT) : 0;

		if (__atomic_compare_exchange_n(word_at(p, index), &word, next, false,
						__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return;
	}
}

/* All families or none; in one order, so that of two processes one gets all. */
static int claim_families(struct vb_registry *registry, uint16_t space, unsigned int families,
			  uint16_t port, bool again, struct lives *lives)
{
	int r = 0;

	for (unsigned int f = 0; f < FAMILIES && r == 0; f++) {
		if (!(families & 1u << f))
			continue;
		r = claim_word(registry, word_index(space, f, port), again, lives);
		if (r)
			vb_ports_release(registry, space, families & ((1u << f) - 1), port);
	}
	return r;
}

int vb_ports_claim(struct vb_registry *registry, uint16_t space, unsigned int families,
		   uint16_t *port)
{
	struct lives lives = {{0}};
	uint32_t start = 0;
	int r = -EADDRINUSE;

	if (space_index(space) < 0 || !families || families >> FAMILIES)
		return -EINVAL;
	if (*port)
		return claim_families(registry, space, families, *port, true, &lives);
	if (getrandom(&start, sizeof(start), 0) != (ssize_t)sizeof(start))
		return -EIO;
	for (uint32_t i = 0; i < EPHEMERAL_COUNT && r == -EADDRINUSE; i++) {
		uint16_t chosen = (uint16_t)(EPHEMERAL_FIRST +
					     (start % EPHEMERAL_COUNT + i) % EPHEMERAL_COUNT);

		r = claim_families(registry, space, families, chosen, false, &lives);
		if (r == 0)
			*port = chosen;
	}
	return r;
}

void vb_ports_release(struct vb_registry *registry, uint16_t space, unsigned int families,
		      uint16_t port)
{
	if (space_index(space) < 0)
		return;
	for (unsigned int f = 0; f < FAMILIES; f++)
		if (families & 1u << f)
			release_word(registry, word_index(space, f, port));
}

void vb_ports_set_listening(struct vb_registry *registry, uint16_t space, unsigned int families,
			    uint16_t port, bool listening)
{
	struct vb_registry_private *p = registry->private_data;

	if (space_index(space) < 0)
		return;
	for (unsigned int f = 0; f < FAMILIES; f++) {
		size_t index = word_index(space, f, port);
		uint64_t word;

		if (!(families & 1u << f))
			continue;
		word = load_word(p, index);
		for (int i = 0; i < TRIES && is_ours(registry, word); i++) {
			uint64_t next = listening ? word | LISTENING : word & ~LISTENING;

			if (__atomic_compare_exchange_n(word_at(p, index), &word, next, false,
							__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
				break;
		}
	}
}

uint16_t vb_ports_listener(struct vb_registry *registry, uint16_t space,
			   enum vb_port_families family, uint16_t port)
{
	struct lives lives = {{0}};
	uint64_t word;

	if (space_index(space) < 0 || (family != VB_PORT_IPV4 && family != VB_PORT_IPV6))
		return 0;
	word = load_word(registry->private_data, word_index(space, family == VB_PORT_IPV6, port));
	if (!(word & LISTENING))
		return 0;
	if (is_ours(registry, word) || is_others(registry, word, &lives))
		return slot_of(word);
	return 0;
}
