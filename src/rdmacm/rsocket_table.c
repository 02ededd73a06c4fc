/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket_table.c - from descriptors to rsockets: an array that grows with the highest one.
 *
 * An entry has a reference of its own. A call takes one more while it runs, so that rclose() by
 * another thread frees nothing under it; the descriptor is closed with the last reference, and not
 * given to anybody else before.
 */
#include "rdmacm/rsocket.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_rs **table;
static int table_size;

int vb_rs_insert(struct vb_rs *rs)
{
	int result = 0;

	pthread_mutex_lock(&table_lock);
	if (rs->fd >= table_size) {
		int size = (rs->fd + 64) & ~63;
		struct vb_rs **bigger = realloc(table, (size_t)size * sizeof(*table));

		if (bigger) {
			memset(bigger + table_size, 0,
			       (size_t)(size - table_size) * sizeof(*table));
			table = bigger;
			table_size = size;
		} else {
			result = -ENOMEM;
		}
	}
	if (!result)
		table[rs->fd] = rs;
	pthread_mutex_unlock(&table_lock);
	return result;
}

struct vb_rs *vb_rs_find(int fd)
{
	struct vb_rs *rs = NULL;

	pthread_mutex_lock(&table_lock);
	if (fd >= 0 && fd < table_size)
		rs = table[fd];
	if (rs)
		atomic_fetch_add(&rs->references, 1);
	pthread_mutex_unlock(&table_lock);
	return rs;
}

struct vb_rs *vb_rs_remove(int fd)
{
	struct vb_rs *rs = NULL;

	pthread_mutex_lock(&table_lock);
	if (fd >= 0 && fd < table_size) {
		rs = table[fd];
		table[fd] = NULL;
	}
	pthread_mutex_unlock(&table_lock);
	return rs;
}

void vb_rs_put(struct vb_rs *rs)
{
	if (atomic_fetch_sub(&rs->references, 1) == 1)
		vb_rs_destroy(rs);
}

struct vb_rs *vb_rs_enter(int fd)
{
	struct vb_rs *rs = vb_rs_find(fd);

	if (rs)
		pthread_mutex_lock(&rs->lock);
	else
		errno = EBADF;
	return rs;
}

long vb_rs_leave(struct vb_rs *rs, long result)
{
	pthread_mutex_unlock(&rs->lock);
	vb_rs_put(rs);
	return vb_rs_result(result);
}
