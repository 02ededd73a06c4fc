/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw.c - raw packets of a live NIC: a packet socket while there are queue pairs for them, looked
 * at with the UDP sockets, and watched by the thread.
 */
#include "host/raw.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "carrier/raw.h"

static void deliver(void *env, const struct vb_raw_rx *rx)
{
	struct vb_engine *engine = env;

	if (!engine->now_is_fresh)
		vb_engine_refresh(engine);
	vb_nic_raw_rx(engine->nic, rx->bytes, rx->size, rx->sent ? VB_RAW_SENT : VB_RAW_RECEIVED,
		      rx->l4_known, engine->nic->now_ns);
}

/* Where the refusal is known: a program shows no more than EPERM. */
static void say_why(const struct vb_engine *engine, int rc)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (rc == -EPERM && !atomic_flag_test_and_set(&said))
		fprintf(stderr,
			"verbena: raw packets on %s need CAP_NET_RAW: run the program as root, or "
			"under setpriv --inh-caps +net_raw --ambient-caps +net_raw (with setcap it "
			"would ignore LD_LIBRARY_PATH).\n",
			engine->device->ifname);
}

int vb_engine_raw_open(void *env, struct vb_raw_port *port)
{
	struct vb_engine *engine = env;
	struct epoll_event event = {.events = EPOLLIN};
	int rc = vb_raw_create(&engine->raw, engine->device->ifindex, port, deliver, engine);

	if (rc < 0) {
		engine->raw = NULL;
		say_why(engine, rc);
		return rc;
	}
	event.data.fd = vb_raw_fd(engine->raw);
	if (epoll_ctl(engine->thread.epoll_fd, EPOLL_CTL_ADD, event.data.fd, &event) < 0) {
		rc = -errno;
		vb_raw_destroy(engine->raw);
		engine->raw = NULL;
	}
	return rc;
}

void vb_engine_raw_close(void *env)
{
	struct vb_engine *engine = env;

	/* Closing alone would leave it in the set while a forked child has a copy. */
	epoll_ctl(engine->thread.epoll_fd, EPOLL_CTL_DEL, vb_raw_fd(engine->raw), NULL);
	vb_raw_destroy(engine->raw);
	engine->raw = NULL;
}

int vb_engine_raw_allowed(void *env)
{
	return vb_raw_allowed_now();
}

int vb_engine_raw_tx(void *env, const uint8_t *frame, uint32_t size)
{
	struct vb_engine *engine = env;

	vb_engine_shield(engine);
	return vb_raw_send(engine->raw, frame, size);
}

int vb_engine_raw_listen(void *env, const struct vb_raw_wanted *wanted)
{
	struct vb_engine *engine = env;

	return vb_raw_listen(engine->raw, wanted);
}
