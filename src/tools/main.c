/* SPDX-License-Identifier: BSD-2-Clause */
/* main.c - the verbena command: which of its commands is meant, help, version. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "tools/tools.h"

static const struct vb_command *const commands[] = {
	&vb_command_run,
	&vb_command_demo,
	&vb_command_settings,
};

void vb_complain(const char *format, ...)
{
	va_list arguments;

	fflush(stdout);
	fputs("verbena: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

bool vb_wants_help(int argc, char **argv)
{
	return argc > 1 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0);
}

static const struct vb_command *find_command(const char *name)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

static void print_help(void)
{
	printf("verbena - RDMA without the NIC: runs unmodified RDMA programs in user space\n\n");
	for (size_t i = 0; i < VB_ARRAY_SIZE(commands); i++)
		printf("  verbena %-10s %s\n", commands[i]->name, commands[i]->summary);
	printf("  verbena %-10s %s\n", "version", "print the version");
	printf("  verbena %-10s %s\n", "help", "print this, or with a command's name what it does");
	printf("\nTwo hosts on this machine, in two terminals:\n\n"
	       "  VERBENA_ADDR=127.0.0.2 verbena run -- ib_write_bw\n"
	       "  VERBENA_ADDR=127.0.0.3 verbena run -- ib_write_bw 127.0.0.2\n\n"
	       "verbena COMMAND -h says more about each; verbena(1) is the whole page.\n");
}

static int help(int argc, char **argv)
{
	const struct vb_command *command;

	if (argc < 2) {
		print_help();
		return 0;
	}
	command = find_command(argv[1]);
	if (!command) {
		vb_complain("there is no command \"%s\"; verbena help lists them", argv[1]);
		return VB_EXIT_USAGE;
	}
	fputs(command->help, stdout);
	return 0;
}

int main(int argc, char **argv)
{
	const struct vb_command *command;
	const char *name;

	if (argc < 2) {
		print_help();
		return VB_EXIT_USAGE;
	}
	name = argv[1];
	if (strcmp(name, "help") == 0)
		return help(argc - 1, argv + 1);
	if (vb_wants_help(argc, argv))
		return help(1, argv);
	if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
		puts("verbena " VB_VERSION);
		return 0;
	}
	command = find_command(name);
	if (!command) {
		vb_complain("there is no command \"%s\"; verbena help lists them", name);
		return VB_EXIT_USAGE;
	}
	if (vb_wants_help(argc - 1, argv + 1)) {
		fputs(command->help, stdout);
		return 0;
	}
	return command->main(argc - 1, argv + 1);
}
