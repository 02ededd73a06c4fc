/* SPDX-License-Identifier: BSD-2-Clause */
/* mcast.c - see mcast.h. Groups are few: a list of groups, each with its list of attachments. */
#include "core/mcast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/nic.h"

struct group {
	struct vb_list link; /* nic->groups */
	struct in6_addr gid;
	struct vb_list members;
	unsigned int count;
};

struct member {
	struct vb_list link;
	struct vb_qp *qp;
};

bool vb_mcast_gid_is_valid(const struct in6_addr *gid)
{
	if (IN6_IS_ADDR_V4MAPPED(gid))
		return (gid->s6_addr[12] & 0xf0) == 0xe0;
	return IN6_IS_ADDR_MULTICAST(gid);
}

static struct group *find_group(const struct vb_nic *nic, const struct in6_addr *gid)
{
	for (struct vb_list *l = nic->groups.next; l != &nic->groups; l = l->next) {
		struct group *g = vb_list_entry(l, struct group, link);

		if (memcmp(&g->gid, gid, sizeof(*gid)) == 0)
			return g;
	}
	return NULL;
}

static struct member *find_member(const struct group *g, const struct vb_qp *qp)
{
	for (struct vb_list *l = g->members.next; l != &g->members; l = l->next) {
		struct member *m = vb_list_entry(l, struct member, link);

		if (m->qp == qp)
			return m;
	}
	return NULL;
}

static int make_group(struct vb_nic *nic, const struct in6_addr *gid, struct group **out)
{
	struct group *g;
	int rc = 0;

	if (nic->group_count == VB_MAX_MCAST_GROUPS)
		return -ENOMEM;
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->gid = *gid;
	vb_list_init(&g->members);
	if (nic->ops.join)
		rc = nic->ops.join(nic->env, gid);
	if (rc < 0) {
		free(g);
		return rc;
	}
	vb_list_append(&nic->groups, &g->link);
	nic->group_count++;
	*out = g;
	return 0;
}

static void drop_if_empty(struct vb_nic *nic, struct group *g)
{
	if (g->count > 0)
		return;
	if (nic->ops.leave)
		nic->ops.leave(nic->env, &g->gid);
	vb_list_remove(&g->link);
	nic->group_count--;
	free(g);
}

int vb_mcast_attach(struct vb_qp *qp, const struct in6_addr *gid)
{
	struct vb_nic *nic = qp->nic;
	struct group *g = find_group(nic, gid);
	struct member *m;
	int rc;

	if (qp->type != VB_QPT_UD || !vb_mcast_gid_is_valid(gid))
		return -EINVAL;
	if (g && find_member(g, qp))
		return 0;
	if (g && g->count == VB_MAX_MCAST_QPS)
		return -ENOMEM;
	m = malloc(sizeof(*m));
	if (!m)
		return -ENOMEM;
	if (!g) {
		rc = make_group(nic, gid, &g);
		if (rc < 0) {
			free(m);
			return rc;
		}
	}
	m->qp = qp;
	vb_list_append(&g->members, &m->link);
	g->count++;
	return 0;
}

static void remove_member(struct vb_nic *nic, struct group *g, struct member *m)
{
	vb_list_remove(&m->link);
	free(m);
	g->count--;
	drop_if_empty(nic, g);
}

int vb_mcast_detach(struct vb_qp *qp, const struct in6_addr *gid)
{
	struct group *g = find_group(qp->nic, gid);
	struct member *m = g ? find_member(g, qp) : NULL;

	if (!m)
		return -EINVAL;
	remove_member(qp->nic, g, m);
	return 0;
}

void vb_mcast_detach_all(struct vb_qp *qp)
{
	struct vb_nic *nic = qp->nic;
	struct vb_list *next;

	for (struct vb_list *l = nic->groups.next; l != &nic->groups; l = next) {
		struct group *g = vb_list_entry(l, struct group, link);
		struct member *m = find_member(g, qp);

		next = l->next;
		if (m)
			remove_member(nic, g, m);
	}
}

bool vb_mcast_is_attached(const struct vb_qp *qp)
{
	const struct vb_nic *nic = qp->nic;

	for (struct vb_list *l = nic->groups.next; l != &nic->groups; l = l->next)
		if (find_member(vb_list_entry(l, struct group, link), qp))
			return true;
	return false;
}

bool vb_mcast_each(const struct vb_nic *nic, const struct in6_addr *gid,
		   void (*visit)(struct vb_qp *qp, const void *env), const void *env)
{
	const struct group *g = find_group(nic, gid);

	if (!g)
		return false;
	for (struct vb_list *l = g->members.next; l != &g->members; l = l->next)
		visit(vb_list_entry(l, struct member, link)->qp, env);
	return true;
}
