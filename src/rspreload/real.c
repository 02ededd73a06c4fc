/* SPDX-License-Identifier: BSD-2-Clause */
/* real.c - the C library's own calls, looked up behind ours. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rspreload/rspreload.h"

static struct vb_real real;

static void look_up(void *slot, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found) {
		fprintf(stderr, "librspreload: the C library has no %s(); unset LD_PRELOAD\n",
			name);
		abort();
	}
	memcpy(slot, &found, sizeof(found));
}

#define LOOK_UP(name) look_up(&real.name, #name)

static void look_up_all(void)
{
	LOOK_UP(socket);
	LOOK_UP(bind);
	LOOK_UP(listen);
	LOOK_UP(accept4);
	LOOK_UP(connect);
	LOOK_UP(shutdown);
	LOOK_UP(close);
	LOOK_UP(recv);
	LOOK_UP(recvfrom);
	LOOK_UP(recvmsg);
	LOOK_UP(read);
	LOOK_UP(readv);
	LOOK_UP(send);
	LOOK_UP(sendto);
	LOOK_UP(sendmsg);
	LOOK_UP(write);
	LOOK_UP(writev);
	LOOK_UP(sendfile);
	LOOK_UP(poll);
	LOOK_UP(select);
	LOOK_UP(getpeername);
	LOOK_UP(getsockname);
	LOOK_UP(setsockopt);
	LOOK_UP(getsockopt);
	LOOK_UP(fcntl);
	LOOK_UP(ioctl);
	LOOK_UP(dup);
	LOOK_UP(dup2);
	LOOK_UP(dup3);
}

const struct vb_real *vb_real(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look_up_all);
	return &real;
}
