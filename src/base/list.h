/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * list.h - an intrusive, circular, doubly linked list.
 *
 * A head and a link are the same struct. A link that is in no list points to itself, so that
 * vb_list_remove() may be called twice and vb_list_is_linked() can tell.
 */
#ifndef VB_BASE_LIST_H
#define VB_BASE_LIST_H

#include <stdbool.h>

#include "base/macros.h"

struct vb_list {
	struct vb_list *next, *prev;
};

static inline void vb_list_init(struct vb_list *l)
{
	l->next = l->prev = l;
}

static inline bool vb_list_is_empty(const struct vb_list *head)
{
	return head->next == head;
}

static inline bool vb_list_is_linked(const struct vb_list *link)
{
	return link->next != link;
}

static inline void vb_list_append(struct vb_list *head, struct vb_list *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

static inline void vb_list_remove(struct vb_list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	vb_list_init(link);
}

/* vb_list_pop - takes the first link off, or returns NULL when the list is empty. */
static inline struct vb_list *vb_list_pop(struct vb_list *head)
{
	struct vb_list *link = head->next;

	if (link == head)
		return NULL;
	vb_list_remove(link);
	return link;
}

#define vb_list_entry(link, type, member) vb_container_of(link, type, member)

/* vb_list_for_each - visits every link; the current one may be removed while visited. */
#define vb_list_for_each(link, tmp, head)                                                          \
	for ((link) = (head)->next, (tmp) = (link)->next; (link) != (head);                        \
	     (link) = (tmp), (tmp) = (link)->next)

#endif
