/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * privileged.c - a program that runs with more rights than its user, once it is made set-user-ID:
 * it says so, and whether it finds a device beside the library. It names the library by its whole
 * path, since the loader takes no folder from such a program's environment.
 */
#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <infiniband/verbs.h>

int main(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);

	printf("privileged %d, devices %d, beside %d\n", getauxval(AT_SECURE) != 0, count,
	       access("/dev/infiniband/uverbs0", F_OK) == 0 ||
		       access("/sys/class/infiniband/verbena0", F_OK) == 0);
	ibv_free_device_list(list);
	return 0;
}
