/* SPDX-License-Identifier: BSD-2-Clause */
/* test_port.c - what rtnetlink's notices say about an interface. The layouts are rtnetlink(7)'s. */
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "host/engine.h"

#define MINE 7u

struct notice {
	struct nlmsghdr head;
	struct ifinfomsg info;
	uint8_t attributes[12];
};

static struct notice notice(uint16_t type, uint8_t family, uint32_t ifindex, unsigned int flags)
{
	return (struct notice){
		.head = {.nlmsg_len = sizeof(struct notice), .nlmsg_type = type},
		.info = {.ifi_family = family, .ifi_index = (int)ifindex, .ifi_flags = flags},
	};
}

static enum vb_port_state after(enum vb_port_state before, const void *bytes, size_t length)
{
	uint8_t exact[256]; /* of exactly this length, so that a checker sees what is read beyond */
	uint8_t *at = exact + sizeof(exact) - length;

	memcpy(at, bytes, length);
	vb_port_read(at, length, MINE, &before);
	return before;
}

static enum vb_port_state after_link(enum vb_port_state before, uint16_t type, uint8_t family,
				     uint32_t ifindex, unsigned int flags)
{
	struct notice one = notice(type, family, ifindex, flags);

	return after(before, &one, sizeof(one));
}

static void flags_make_the_state(void **state)
{
	assert_int_equal(after_link(VB_PORT_DISABLED, RTM_NEWLINK, AF_UNSPEC, MINE,
				    IFF_UP | IFF_RUNNING | IFF_BROADCAST),
			 VB_PORT_UP);
	assert_int_equal(after_link(VB_PORT_UP, RTM_NEWLINK, AF_UNSPEC, MINE, IFF_UP),
			 VB_PORT_POLLING);
	assert_int_equal(after_link(VB_PORT_UP, RTM_NEWLINK, AF_UNSPEC, MINE, IFF_RUNNING),
			 VB_PORT_DISABLED);
	assert_int_equal(after_link(VB_PORT_UP, RTM_DELLINK, AF_UNSPEC, MINE, IFF_UP | IFF_RUNNING),
			 VB_PORT_DISABLED);
}

static void what_does_not_concern_it(void **state)
{
	assert_int_equal(after_link(VB_PORT_UP, RTM_NEWLINK, AF_UNSPEC, MINE + 1, 0), VB_PORT_UP);
	assert_int_equal(after_link(VB_PORT_UP, RTM_DELLINK, AF_UNSPEC, MINE + 1, 0), VB_PORT_UP);
	assert_int_equal(after_link(VB_PORT_UP, RTM_NEWADDR, AF_UNSPEC, MINE, 0), VB_PORT_UP);
	/* a port leaves its bridge */
	assert_int_equal(after_link(VB_PORT_UP, RTM_DELLINK, AF_BRIDGE, MINE, 0), VB_PORT_UP);
}

static void the_last_of_several_counts(void **state)
{
	struct notice three[] = {
		notice(RTM_NEWLINK, AF_UNSPEC, MINE, IFF_UP | IFF_RUNNING),
		notice(RTM_NEWLINK, AF_UNSPEC, MINE, 0),
		notice(RTM_NEWLINK, AF_UNSPEC, MINE + 1, IFF_UP | IFF_RUNNING),
	};

	assert_int_equal(after(VB_PORT_POLLING, three, sizeof(three)), VB_PORT_DISABLED);
}

static enum vb_port_state after_error(int error)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr body;
	} refusal = {
		.head = {.nlmsg_len = sizeof(refusal), .nlmsg_type = NLMSG_ERROR},
		.body = {.error = error},
	};

	return after(VB_PORT_UP, &refusal, sizeof(refusal));
}

static void an_interface_that_is_gone(void **state)
{
	assert_int_equal(after_error(-ENODEV), VB_PORT_DISABLED);
	/* a sandbox that answers nothing does not take the port down */
	assert_int_equal(after_error(-EOPNOTSUPP), VB_PORT_UP);
	assert_int_equal(after_error(0), VB_PORT_UP);
}

static void cut_and_wrong_lengths(void **state)
{
	struct notice down = notice(RTM_NEWLINK, AF_UNSPEC, MINE, 0);
	size_t needed = offsetof(struct notice, attributes);

	for (size_t length = 0; length <= sizeof(down); length++)
		assert_int_equal(after(VB_PORT_UP, &down, length),
				 length < needed ? VB_PORT_UP : VB_PORT_DISABLED);
	for (uint32_t said = 0; said < needed; said++) {
		down.head.nlmsg_len = said;
		assert_int_equal(after(VB_PORT_UP, &down, sizeof(down)), VB_PORT_UP);
	}
	down.head.nlmsg_len = UINT32_MAX;
	assert_int_equal(after(VB_PORT_UP, &down, sizeof(down)), VB_PORT_DISABLED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags_make_the_state),
		cmocka_unit_test(what_does_not_concern_it),
		cmocka_unit_test(the_last_of_several_counts),
		cmocka_unit_test(an_interface_that_is_gone),
		cmocka_unit_test(cut_and_wrong_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
