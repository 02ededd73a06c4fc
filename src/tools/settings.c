/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * settings.c - verbena settings: every VERBENA_... setting, what it does, what this environment
 * says.
 *
 * The table is the host's own (host/settings.h), so that what is shown is what is done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "host/settings.h"
#include "tools/tools.h"

#define INDENT 12
#define DEFAULT_WIDTH 80u
#define WIDEST 100u

static unsigned int terminal_width(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2 * INDENT)
		return DEFAULT_WIDTH;
	return size.ws_col < WIDEST ? size.ws_col : WIDEST;
}

/* print_wrapped - label, then the text beside it, broken between words. */
static void print_wrapped(const char *label, const char *text)
{
	unsigned int width = terminal_width(), column = INDENT;

	printf("  %-*s", INDENT - 2, label);
	while (*text) {
		unsigned int word = (unsigned int)strcspn(text, " ");

		if (column > INDENT && column + 1 + word > width) {
			printf("\n%*s", INDENT, "");
			column = INDENT;
		}
		column +=
			(unsigned int)printf("%s%.*s", column > INDENT ? " " : "", (int)word, text);
		text += word;
		text += *text == ' ';
	}
	putchar('\n');
}

/* print_setting - false when its value in the environment would be refused. */
static bool print_setting(const struct vb_setting *setting)
{
	struct vb_settings scratch = {0};
	const char *value = getenv(setting->name);
	char why[160] = "", text[512];
	bool good = true;

	puts(setting->name);
	print_wrapped("", setting->meaning);
	print_wrapped("default", setting->fallback);
	print_wrapped("allowed", setting->allowed);
	if (!value || !*value) {
		print_wrapped("current", "not set, so the default");
	} else {
		good = setting->parse(&scratch, value, why, sizeof(why));
		snprintf(text, sizeof(text), "%.200s%s%s%s", value, good ? "" : " (refused",
			 *why ? ": " : "", why);
		if (!good)
			strncat(text, ")", sizeof(text) - strlen(text) - 1);
		print_wrapped("current", text);
	}
	return good;
}

static int settings_main(int argc, char **argv)
{
	size_t count;
	const struct vb_setting *table = vb_settings_table(&count);
	bool good = true;

	if (argc > 1) {
		vb_complain("settings takes no argument \"%s\"", argv[1]);
		return VB_EXIT_USAGE;
	}
	for (size_t i = 0; i < count; i++) {
		if (i)
			putchar('\n');
		good = print_setting(&table[i]) && good;
	}
	return good ? 0 : VB_EXIT_FAILED;
}

const struct vb_command vb_command_settings = {
	.name = "settings",
	.summary = "every setting: what it does, its default, its value now",
	.help = "verbena settings\n\n"
		"Prints every setting that Verbena reads from the environment: what it does, its\n"
		"default, what is allowed, and its value in this environment. A value that is not\n"
		"allowed makes programs refuse to open a device, with a sentence that says what "
		"is.\n\n"
		"Exit status: 0; 1 when a value of this environment would be refused.\n",
	.main = settings_main,
};
