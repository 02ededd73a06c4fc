/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run.c - verbena run: any RDMA program, unmodified, on Verbena.
 *
 * It sets LD_LIBRARY_PATH and becomes the program: same process, same descriptors, same signals, no
 * wrapper that stays. Nothing else is done that the program could notice.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

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

static int run_main(int argc, char **argv)
{
	int first = 1;

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
	execvp(argv[first], argv + first);
	return vb_say_exec_failed(argv[first], errno);
}

const struct vb_command vb_command_run = {
	.name = "run",
	.summary = "run any RDMA program, unmodified, on Verbena",
	.help = "verbena run [--] PROGRAM [ARGUMENTS]\n\n"
		"Runs PROGRAM with Verbena's libibverbs, librdmacm and libibumad in place of the\n"
		"system's. It puts their folder first in LD_LIBRARY_PATH and becomes the program;\n"
		"nothing else changes. Programs that are set-user-ID ignore LD_LIBRARY_PATH.\n\n"
		"Which host the program is on, and everything else that can be set, comes from "
		"the\n"
		"environment (verbena settings lists it):\n\n"
		"  verbena run -- ibv_devinfo\n"
		"  VERBENA_ADDR=127.0.0.2 verbena run -- ib_write_bw\n"
		"  VERBENA_ADDR=127.0.0.3 verbena run -- ib_write_bw 127.0.0.2\n\n"
		"Exit status: the program's; 125 when Verbena's libraries are not found or the\n"
		"command line makes no sense, 126 when PROGRAM cannot be executed, 127 when there\n"
		"is none.\n",
	.main = run_main,
};
