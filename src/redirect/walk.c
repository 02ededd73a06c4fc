/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * walk.c - the way that a path takes (path_resolution(7)), where some directories are elsewhere.
 *
 *      /sys//class/./infiniband/x       /sys/class/infiniband/x      "//" and "." say nothing
 *      /sys/class/infiniband/x/         /sys/class/infiniband/x/     x must be a directory
 *      /sys/class/infiniband/../net     /sys/class/net               leads out of the owner's
 *      /sys/class/net/../infiniband     /sys/class/infiniband        and into it
 *      .../infiniband/x/../y            depends on where the link x leads
 *
 * ".." goes up from where the links before it have led, which neither the owner nor the kernel can
 * say alone: so a path with ".." is gone component by component, each asked for where it really
 * is. The last component is left to the kernel, and so is everything behind one that is missing or
 * no directory: the kernel says then what is wrong. Without ".." there is nothing to look at.
 */
#define _GNU_SOURCE
#include "redirect/walk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as the kernel's */

static bool is_part(const char *at, size_t length, const char *name)
{
	return length == strlen(name) && memcmp(at, name, length) == 0;
}

static bool goes_up(const char *path)
{
	size_t part;

	for (; *path; path += part) {
		path += strspn(path, "/");
		part = strcspn(path, "/");
		if (is_part(path, part, ".."))
			return true;
	}
	return false;
}

static void pop(char *out)
{
	char *slash = strrchr(out, '/');

	if (slash)
		*slash = '\0';
}

static bool push(char out[PATH_MAX], const char *part, size_t part_length)
{
	size_t length = strlen(out);

	if (length + part_length + 2 > PATH_MAX)
		return false;
	out[length] = '/';
	memcpy(out + length + 1, part, part_length);
	out[length + 1 + part_length] = '\0';
	return true;
}

enum step { DIRECTORY, LINK, NO_WAY };

/* What is there, in the middle of a path; of a link, where it leads. */
static enum step look(const struct vb_redirect_ops *ops, const char *at, char target[PATH_MAX],
		      bool *met)
{
	char buffer[PATH_MAX];
	const char *to = ops->where(at, buffer);
	struct stat status;
	ssize_t length;

	if (to)
		*met = true;
	else
		to = at;
	length = readlink(to, target, PATH_MAX - 1);
	if (length >= 0) {
		target[length] = '\0';
		return LINK;
	}
	return errno == EINVAL && stat(to, &status) == 0 && S_ISDIR(status.st_mode) ? DIRECTORY
										    : NO_WAY;
}

/* Behind a link: its target, and then the rest. False: too long. */
static bool go_on_from(char out[PATH_MAX], char rest[PATH_MAX], const char *behind,
		       const char *target)
{
	char whole[PATH_MAX];

	if (snprintf(whole, sizeof(whole), "%s%s", target, behind) >= PATH_MAX)
		return false;
	strcpy(rest, whole);
	if (target[0] == '/')
		out[0] = '\0';
	else
		pop(out);
	return true;
}

/* With ".." in it. */
static bool walk_up(const struct vb_redirect_ops *ops, const char *path, char out[PATH_MAX],
		    bool *met)
{
	char rest[PATH_MAX], target[PATH_MAX];
	const char *at = strcpy(rest, path);
	bool directory = false;
	size_t part;
	int links = 0;

	for (at += strspn(at, "/"); (part = strcspn(at, "/")) != 0; at += strspn(at, "/")) {
		const char *name = at;
		enum step step;

		at += part;
		directory = *at || is_part(name, part, ".") || is_part(name, part, "..");
		if (is_part(name, part, ".."))
			pop(out);
		if (is_part(name, part, ".") || is_part(name, part, ".."))
			continue;
		if (!push(out, name, part))
			return false;
		if (!*at)
			break;
		step = look(ops, out, target, met);
		if (step == LINK && ++links <= LINKS_MAX) {
			if (!go_on_from(out, rest, at, target))
				return false;
			at = rest;
		} else if (step != DIRECTORY) {
			return push(out, at + 1, strlen(at + 1));
		}
	}
	return !(directory || !*out) || push(out, "", 0);
}

static bool tidy(const char *path, char out[PATH_MAX])
{
	bool directory = false;
	size_t part;

	for (path += strspn(path, "/"); (part = strcspn(path, "/")) != 0;
	     path += strspn(path, "/")) {
		directory = path[part] || is_part(path, part, ".");
		if (!is_part(path, part, ".") && !push(out, path, part))
			return false;
		path += part;
	}
	return !(directory || !*out) || push(out, "", 0);
}

bool vb_walk(const struct vb_redirect_ops *ops, const char *path, char out[PATH_MAX], bool *met)
{
	*out = '\0';
	*met = false;
	return goes_up(path) ? walk_up(ops, path, out, met) : tidy(path, out);
}
