/* SPDX-License-Identifier: BSD-2-Clause */
/* own_network.h - a network namespace of the test's own: as an ordinary user, with a user namespace
 * around it. */
#ifndef VB_TESTS_OWN_NETWORK_H
#define VB_TESTS_OWN_NETWORK_H

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* keep_capabilities - for the programs that we run: our user in the namespace is not its root. */
static inline bool keep_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	data[0].inheritable = data[0].permitted;
	data[1].inheritable = data[1].permitted;
	return syscall(SYS_capset, &header, data) == 0 &&
	       prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0) == 0;
}

static inline bool enter_namespace(void)
{
	unsigned int uid = geteuid(), gid = getegid();
	char map[64];

	if (uid == 0 && unshare(CLONE_NEWNET) == 0)
		return true;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return false;
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	if (!write_file("/proc/self/setgroups", "deny") || !write_file("/proc/self/uid_map", map))
		return false;
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	return write_file("/proc/self/gid_map", map) && keep_capabilities();
}

/* run - an ip(8) command. */
static inline bool run(const char *arguments)
{
	char line[256];

	snprintf(line, sizeof(line), "PATH=$PATH:/usr/sbin:/sbin ip %s", arguments);
	return system(line) == 0;
}

#endif
