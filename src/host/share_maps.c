/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * share_maps.c - see share.h: what /proc/self says about memory.
 *
 * Memory may be shared that is private, anonymous, readable and writable, and about which the
 * program asked for nothing special: what the kernel's flags of a mapping (smaps, VmFlags) say must
 * be among those that mean nothing. A stack may not: the kernel writes there on a thread's behalf,
 * and may not wait. The main one says that it grows; another thread's lies above a page that nobody
 * may touch, and the caller's own is known.
 *
 * Nothing here allocates: the memory that is looked at may be the heap.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "host/share.h"

/* A file of lines. */
struct lines {
	int fd;
	size_t have, used;
	char buffer[8192]; /* a line has up to 4096 bytes of path and about 80 before it */
};

static bool open_lines(struct lines *lines, const char *path)
{
	lines->fd = open(path, O_RDONLY | O_CLOEXEC);
	lines->have = lines->used = 0;
	return lines->fd >= 0;
}

/* The next line, without its end, until the next call; NULL: there is none. */
static char *next_line(struct lines *lines)
{
	for (;;) {
		char *line = lines->buffer + lines->used;
		char *end = memchr(line, '\n', lines->have - lines->used);
		ssize_t got;

		if (end) {
			*end = '\0';
			lines->used = (size_t)(end + 1 - lines->buffer);
			return line;
		}
		memmove(lines->buffer, line, lines->have - lines->used);
		lines->have -= lines->used;
		lines->used = 0;
		if (lines->have == sizeof(lines->buffer))
			return NULL;
		got = read(lines->fd, lines->buffer + lines->have,
			   sizeof(lines->buffer) - lines->have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return NULL;
		lines->have += (size_t)got;
	}
}

/* The first line of a mapping. */
struct map_line {
	uint64_t from, to, offset, inode, device;
	const char *perms; /* rwxp */
	const char *path;
};

/* Not by sscanf(3): a process may have thousands of mappings. */
static bool read_map_line(char *line, struct map_line *map)
{
	unsigned long major, minor;
	char *at;

	map->from = strtoul(line, &at, 16);
	if (*at != '-')
		return false;
	map->to = strtoul(at + 1, &at, 16);
	if (*at != ' ' || strnlen(at, 6) < 6)
		return false;
	map->perms = at + 1;
	map->offset = strtoul(at + 6, &at, 16);
	major = strtoul(at, &at, 16);
	if (*at != ':')
		return false;
	minor = strtoul(at + 1, &at, 16);
	map->device = makedev(major, minor);
	map->inode = strtoul(at, &at, 10);
	map->path = at + strspn(at, " ");
	return true;
}

/* --- fitness ----------------------------------------------------------------------------- */

/* Of VmFlags: readable, writable, may be made so; accounted; dirty; advice about reading and about
 * huge pages. Any other is a wish of the program's, or something that is no plain memory. */
static bool flags_are_plain(const char *flags)
{
	static const char plain[] = "rd wr mr mw me ac sd nr nh hg rr sr";

	for (; *flags == ' '; flags++)
		;
	for (; *flags; flags += flags[2] ? 3 : 2) {
		const char word[3] = {flags[0], flags[1], '\0'};

		if (!flags[1] || !strstr(plain, word))
			return false;
	}
	return true;
}

static bool is_anonymous(const struct map_line *map)
{
	return strncmp(map->perms, "rw-p", 4) == 0 && map->inode == 0 &&
	       (!*map->path || strcmp(map->path, "[heap]") == 0 ||
		strncmp(map->path, "[anon:", 6) == 0);
}

static bool is_own_stack(uint64_t start, uint64_t end)
{
	pthread_attr_t attr;
	void *low = NULL;
	size_t bytes = 0;

	if (pthread_getattr_np(pthread_self(), &attr))
		return true;
	pthread_attr_getstack(&attr, &low, &bytes);
	pthread_attr_destroy(&attr);
	return start < (uintptr_t)low + bytes && (uintptr_t)low < end;
}

/* What is known of the lines so far. */
struct search {
	uint64_t start, end; /* what is still to be found */
	uint64_t barred_to;  /* where the last mapping that nobody may touch ends */
	bool inside;	     /* the lines are those of a mapping that has a part of it */
};

/* False: it is not fit. */
static bool judge_line(struct search *s, char *line)
{
	struct map_line map;

	if (strncmp(line, "VmFlags:", 8) == 0)
		return !s->inside || flags_are_plain(line + 8);
	if (strncmp(line, "ProtectionKey:", 14) == 0)
		return !s->inside || strtoul(line + 14, NULL, 10) == 0;
	if (isupper((unsigned char)*line) || !read_map_line(line, &map))
		return true; /* another fact about a mapping */
	s->inside = map.from < s->end && s->start < map.to;
	if (strncmp(map.perms, "---", 3) == 0)
		s->barred_to = map.to;
	if (!s->inside)
		return map.from < s->end;
	if (map.from > s->start || !is_anonymous(&map) || s->barred_to == map.from)
		return false;
	s->start = map.to;
	return true;
}

bool vb_share_is_fit(uint64_t start, uint64_t end)
{
	struct search s = {.start = start, .end = end};
	struct lines lines;
	bool fit = true;
	char *line;

	if (is_own_stack(start, end) || !open_lines(&lines, "/proc/thread-self/smaps"))
		return false;
	/* Its flags come last of what is said about a mapping. */
	while (fit && (s.start < end || s.inside) && (line = next_line(&lines)) != NULL) {
		fit = judge_line(&s, line);
		if (strncmp(line, "VmFlags:", 8) == 0)
			s.inside = false;
	}
	close(lines.fd);
	return fit && s.start >= end && !s.inside;
}

bool vb_share_is_pinned(void)
{
	struct lines lines;
	bool pinned = false;
	char *line;

	if (!open_lines(&lines, "/proc/thread-self/status"))
		return true;
	while ((line = next_line(&lines)) != NULL)
		if (strncmp(line, "VmPin:", 6) == 0 || strncmp(line, "VmLck:", 6) == 0)
			pinned |= strtoul(line + 6, NULL, 10) != 0;
	close(lines.fd);
	return pinned;
}

/* --- the arena's mappings ---------------------------------------------------------------- */

static int prot_of(const char *perms)
{
	return (perms[0] == 'r' ? PROT_READ : 0) | (perms[1] == 'w' ? PROT_WRITE : 0) |
	       (perms[2] == 'x' ? PROT_EXEC : 0);
}

int vb_share_pieces(const struct vb_share_arena *arena, uint64_t at, uint64_t bytes,
		    struct vb_share_piece *pieces, int max)
{
	struct lines lines;
	struct map_line map;
	int count = 0;
	char *line;

	if (!open_lines(&lines, "/proc/thread-self/maps"))
		return -errno;
	while ((line = next_line(&lines)) != NULL) {
		uint64_t first, last;

		if (!read_map_line(line, &map) || map.inode != arena->inode ||
		    map.device != arena->device)
			continue;
		first = VB_MAX(map.offset, at);
		last = VB_MIN(map.offset + (map.to - map.from), at + bytes);
		if (first >= last)
			continue;
		if (count < max)
			pieces[count] = (struct vb_share_piece){
				.addr = map.from + (first - map.offset),
				.bytes = last - first,
				.at = first,
				.prot = prot_of(map.perms),
			};
		count++;
	}
	close(lines.fd);
	return count;
}
