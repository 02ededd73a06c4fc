/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tools.h - what the files of the verbena command share.
 *
 *      main.c       which command is meant, help, version
 *      libraries.c  where Verbena's libraries lie, and LD_LIBRARY_PATH
 *      run.c        verbena run
 *      namespace.c  verbena run --namespace: mounts in which everybody finds our devices
 *      watch.c      the process that stays beside a program there
 *      child.c      a program started, listened to and ended by us
 *      demo.c       verbena demo: what runs, what is shown
 *      results.c    numbers out of what the programs print
 *      settings.c   verbena settings
 *
 * Exit statuses: 0 done, 1 something that was tried failed, 2 a command line that makes no sense.
 * `verbena run` has those of env(1): 125 we ourselves failed, 126 not executable, 127 not found.
 */
#ifndef VB_TOOLS_TOOLS_H
#define VB_TOOLS_TOOLS_H

#include <stdbool.h>
#include <stddef.h>

#define VB_EXIT_FAILED 1
#define VB_EXIT_USAGE 2
#define VB_EXIT_RUN_FAILED 125
#define VB_EXIT_NOT_EXECUTABLE 126
#define VB_EXIT_NOT_FOUND 127

struct vb_command {
	const char *name;
	const char *summary; /* for the list of commands */
	const char *help;    /* what -h prints */
	/* main - argv[0] is the command's name. Returns the exit status. */
	int (*main)(int argc, char **argv);
};

extern const struct vb_command vb_command_run, vb_command_demo, vb_command_settings;

/* vb_complain - "verbena: " and the sentence, on standard error. */
void vb_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* vb_wants_help - whether argv[1] is -h or --help. */
bool vb_wants_help(int argc, char **argv);

/* vb_use_libraries - puts Verbena's libraries first in this process's LD_LIBRARY_PATH, for the
 * programs that it runs. False after a sentence: they are not where they belong. */
bool vb_use_libraries(void);

struct vb_device;
/* vb_namespace_enter - puts this process into a mount namespace of its own, where the kernel's
 * files are those of these devices. A descriptor of "/" there, or -errno after a sentence. */
int vb_namespace_enter(struct vb_device *const *list, int count);
/* vb_run_and_watch - runs argv, and keeps the files below root_fd fresh until it ends. The exit
 * status. */
int vb_run_and_watch(char **argv, int root_fd, struct vb_device *const *list, int count);

/* vb_say_exec_failed - the sentence for an exec that failed with error, and its exit status. */
int vb_say_exec_failed(const char *program, int error);

#endif
