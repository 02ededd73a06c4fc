/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run.c - verbena run: any RDMA program, unmodified, on Verbena.
 *
 * It sets LD_LIBRARY_PATH and becomes the program: same process, same descriptors, same signals, no
 * wrapper that stays. Nothing else is done that the program could notice, unless it is asked for a
 * namespace (namespace.c).
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "host/host.h"
#include "tools/tools.h"

int vb_say_exec_failed(const char *program, int error)
{
	if (error == ENOENT) {
		vb_complain("there is no program \"%s\"%s", program,
			    strchr(program, '/') ? "" : " in PATH");
		return VB_EXIT_NOT_FOUND;
	}
	vb_complain("\"%s\" cannot be executed: %s", program, strerror(error));
	return VB_EXIT_NOT_EXECUTABLE;
}

/* The program sees its devices' files as everybody else in its namespace does. */
static int run_in_namespace(char **argv)
{
	struct vb_device *const *list;
	int count = vb_host_devices(&list), root_fd;

	if (count < 0)
		return VB_EXIT_RUN_FAILED; /* why was said */
	root_fd = vb_namespace_enter(list, count);
	return root_fd < 0 ? VB_EXIT_RUN_FAILED : vb_run_and_watch(argv, root_fd, list, count);
}

static int run_main(int argc, char **argv)
{
	bool namespace = false;
	int first = 1;

	if (first < argc && strcmp(argv[first], "--namespace") == 0) {
		namespace = true;
		first++;
	}
	if (first < argc && strcmp(argv[first], "--") == 0)
		first++;
	else if (first < argc && argv[first][0] == '-') {
		vb_complain("run has no option \"%s\"; options of the program come after its name",
			    argv[first]);
		return VB_EXIT_RUN_FAILED;
	}
	if (first >= argc) {
		vb_complain("run needs a program, for example: verbena run -- ibv_devices");
		return VB_EXIT_RUN_FAILED;
	}
	if (!vb_use_libraries())
		return VB_EXIT_RUN_FAILED;
	if (namespace)
		return run_in_namespace(argv + first);
	execvp(argv[first], argv + first);
	return vb_say_exec_failed(argv[first], errno);
}

const struct vb_command vb_command_run = {
	.name = "run",
	.summary = "run any RDMA program, unmodified, on Verbena",
	.help = "verbena run [--namespace] [--] PROGRAM [ARGUMENTS]\n\n"
		"Runs PROGRAM with Verbena's libibverbs, librdmacm and libibumad in place of the\n"
		"system's. It puts their folder first in LD_LIBRARY_PATH and becomes the program;\n"
		"nothing else changes. Programs that are set-user-ID ignore LD_LIBRARY_PATH.\n\n"
		"Which host the program is on, and everything else that can be set, comes from "
		"the\n"
		"environment (verbena settings lists it):\n\n"
		"  verbena run -- ibv_devinfo\n"
		"  VERBENA_ADDR=127.0.0.2 verbena run -- ib_write_bw\n"
		"  VERBENA_ADDR=127.0.0.3 verbena run -- ib_write_bw 127.0.0.2\n\n"
		"With --namespace it runs in a mount namespace of its own, where scripts and "
		"every\n"
		"other program find the devices in /sys/class/infiniband and /dev/infiniband, as\n"
		"programs that use libibverbs do anyway (unless VERBENA_REDIRECT=0). It needs "
		"root,\n"
		"or user namespaces.\n\n"
		"  verbena run --namespace -- ibstatus\n\n"
		"Exit status: the program's; 125 when Verbena's libraries are not found, the\n"
		"command line makes no sense or namespaces are forbidden, 126 when PROGRAM cannot\n"
		"be executed, 127 when there is none.\n",
	.main = run_main,
};
