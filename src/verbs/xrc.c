/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xrc.c - XRC domains (ibv_open_xrcd(3)), and the receive queue pairs that several handles share.
 *
 *      vb_face_xrcd   a program's handle      \
 *      vb_face_xrcd   another, same inode     -- vb_domain -- vb_xrcd, the core's
 *
 * A domain that was opened with a descriptor is known by the inode behind it, to all contexts of
 * the device in this process. Another process that opens the same inode gets a domain of its own: a
 * receive queue pair and the queues that it delivers to live in one process, and ibv_open_qp() does
 * not find those of another.
 *
 * The list of domains is guarded by the engines' own locks and by one of its own inside them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/xrc.h"
#include "verbs/face.h"

struct vb_domain {
	struct vb_list link;
	struct vb_engine *engine;
	bool named;
	dev_t dev; /* with ino: what it is known by */
	ino_t ino;
	uint32_t handles;
	struct vb_xrcd *core;
};

static pthread_mutex_t domains_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list domains = {&domains, &domains};

/* --- domains: called inside the engine, domains_lock held ------------------------------- */

static struct vb_domain *find_domain(const struct vb_engine *engine, const struct stat *file)
{
	struct vb_list *link, *next;

	vb_list_for_each(link, next, &domains)
	{
		struct vb_domain *domain = vb_list_entry(link, struct vb_domain, link);

		if (domain->engine == engine && domain->named && domain->dev == file->st_dev &&
		    domain->ino == file->st_ino)
			return domain;
	}
	return NULL;
}

static struct vb_domain *make_domain(struct vb_engine *engine, const struct stat *file)
{
	struct vb_domain *domain = calloc(1, sizeof(*domain));

	if (!domain)
		return NULL;
	domain->core = vb_xrcd_create(vb_engine_nic(engine));
	if (!domain->core) {
		free(domain);
		return NULL;
	}
	domain->engine = engine;
	domain->named = file;
	if (file) {
		domain->dev = file->st_dev;
		domain->ino = file->st_ino;
	}
	vb_list_append(&domains, &domain->link);
	return domain;
}

/* The errnos are the kernel's. NULL with errno. */
static struct vb_domain *get_domain(struct vb_engine *engine, const struct stat *file, int oflags)
{
	struct vb_domain *domain = file ? find_domain(engine, file) : NULL;

	if (file && !domain && !(oflags & O_CREAT)) {
		errno = EAGAIN;
		return NULL;
	}
	if (domain && oflags & O_EXCL) {
		errno = EINVAL;
		return NULL;
	}
	if (!domain)
		domain = make_domain(engine, file);
	if (domain)
		domain->handles++;
	return domain;
}

static void put_domain(struct vb_domain *domain)
{
	if (--domain->handles)
		return;
	/* Not busy: each SRQ and QP in it holds a handle. */
	vb_xrcd_destroy(domain->core);
	vb_list_remove(&domain->link);
	free(domain);
}

/* --- handles ----------------------------------------------------------------------------- */

static int check_open(const struct ibv_xrcd_init_attr *attr, struct stat *file)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;

	if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
		return EOPNOTSUPP;
	if ((attr->comp_mask & needed) != needed || attr->oflags & ~(O_CREAT | O_EXCL))
		return EINVAL;
	if (attr->fd != -1 && fstat(attr->fd, file) < 0)
		return EBADF;
	return 0;
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	struct vb_engine *engine = vb_face_context(context)->engine;
	struct vb_face_xrcd *xrcd;
	struct stat file;
	int error = check_open(attr, &file);

	if (error) {
		errno = error;
		return NULL;
	}
	xrcd = calloc(1, sizeof(*xrcd));
	if (!xrcd) {
		errno = ENOMEM;
		return NULL;
	}
	if (!vb_face_enter(engine)) {
		free(xrcd);
		errno = EIO;
		return NULL;
	}
	pthread_mutex_lock(&domains_lock);
	xrcd->domain = get_domain(engine, attr->fd == -1 ? NULL : &file, attr->oflags);
	error = errno;
	pthread_mutex_unlock(&domains_lock);
	vb_engine_leave(engine);
	if (!xrcd->domain) {
		free(xrcd);
		errno = error;
		return NULL;
	}
	xrcd->core = xrcd->domain->core;
	xrcd->engine = engine;
	xrcd->ibv.context = context;
	vb_face_add(context, &xrcd->object, VB_FACE_XRCD);
	return &xrcd->ibv;
}

/* Inside the engine. */
void vb_face_xrcd_close(struct vb_face_xrcd *xrcd)
{
	pthread_mutex_lock(&domains_lock);
	if (xrcd->domain)
		put_domain(xrcd->domain);
	xrcd->domain = NULL;
	pthread_mutex_unlock(&domains_lock);
	xrcd->core = NULL;
	xrcd->engine = NULL;
}

static int close_xrcd(struct ibv_xrcd *ibv)
{
	struct vb_face_xrcd *xrcd = vb_face_xrcd(ibv);

	if (__atomic_load_n(&xrcd->users, __ATOMIC_ACQUIRE))
		return EBUSY;
	if (vb_face_enter(xrcd->engine)) {
		struct vb_engine *engine = xrcd->engine;

		vb_face_xrcd_close(xrcd);
		vb_engine_leave(engine);
	}
	vb_face_remove(&xrcd->object);
	free(xrcd);
	return 0;
}

void vb_face_xrcd_use(struct ibv_xrcd *ibv, int by)
{
	if (ibv)
		__atomic_add_fetch(&vb_face_xrcd(ibv)->users, (uint32_t)by, __ATOMIC_ACQ_REL);
}

/* --- opening a queue pair ---------------------------------------------------------------- */

static int check_open_qp(struct ibv_context *context, const struct ibv_qp_open_attr *attr)
{
	const uint32_t needed =
		IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;

	if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
		return EOPNOTSUPP;
	if ((attr->comp_mask & needed) != needed || !attr->xrcd || attr->xrcd->context != context ||
	    attr->qp_type != IBV_QPT_XRC_RECV)
		return EINVAL;
	return 0;
}

/* Inside the engine: the receive queue pair of that number, when it is in the domain. */
static struct vb_qp *find_qp(const struct vb_face_xrcd *xrcd, uint32_t qpn)
{
	struct vb_qp *qp = vb_nic_find_qp(vb_engine_nic(xrcd->engine), qpn);

	return qp && qp->xrcd == xrcd->core ? qp : NULL;
}

static struct ibv_qp *open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	int error = check_open_qp(context, attr);
	struct vb_face_xrcd *xrcd;
	struct vb_face_qp *qp;

	if (error) {
		errno = error;
		return NULL;
	}
	xrcd = vb_face_xrcd(attr->xrcd);
	qp = vb_face_qp_shell(context, NULL, attr->xrcd,
			      &(struct ibv_qp_init_attr){
				      .qp_context = attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT
							    ? attr->qp_context
							    : NULL,
				      .qp_type = IBV_QPT_XRC_RECV,
			      });
	if (!qp)
		return NULL;
	error = EIO;
	if (vb_face_enter(xrcd->engine)) {
		qp->core = find_qp(xrcd, attr->qp_num);
		error = qp->core ? 0 : EINVAL;
		if (qp->core) {
			struct vb_face_qp *first = qp->core->user;

			vb_list_append(&first->shared, &qp->shared);
			qp->ex.qp_base.qp_num = qp->core->qpn;
			qp->ex.qp_base.state = (enum ibv_qp_state)qp->core->state;
			qp->engine = xrcd->engine;
		}
		vb_engine_leave(xrcd->engine);
	}
	if (error) {
		vb_face_qp_shell_free(qp);
		errno = error;
		return NULL;
	}
	vb_face_add(context, &qp->object, VB_FACE_QP);
	return &qp->ex.qp_base;
}

void vb_face_xrc_tables(struct verbs_context *verbs)
{
	verbs->open_xrcd = open_xrcd;
	verbs->close_xrcd = close_xrcd;
	verbs->open_qp = open_qp;
}
