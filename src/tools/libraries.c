/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libraries.c - where Verbena's libraries lie, and LD_LIBRARY_PATH.
 *
 * They are found from where this executable is, so that a build tree, an installed one and a copy
 * of either work without being told:
 *
 *      <here>/verbena      <here>/../lib/verbena      installed
 *      <here>/verbena      <here>/../lib              a build tree
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "tools/tools.h"

static bool holds_libraries(const char *folder)
{
	char file[PATH_MAX + 64];

	snprintf(file, sizeof(file), "%s/libibverbs.so.1", folder);
	return access(file, R_OK) == 0;
}

/* find_libraries - the folder, absolute, into out (PATH_MAX bytes). */
static bool find_libraries(char *out)
{
	static const char *const places[] = {"../lib/verbena", "../lib"};
	char here[PATH_MAX], folder[PATH_MAX + 32];
	ssize_t length = readlink("/proc/self/exe", here, sizeof(here) - 1);
	char *slash;

	if (length < 0) {
		vb_complain("cannot tell where this program is (/proc/self/exe: %s)",
			    strerror(errno));
		return false;
	}
	here[length] = '\0';
	slash = strrchr(here, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < VB_ARRAY_SIZE(places); i++) {
		snprintf(folder, sizeof(folder), "%s/%s", here, places[i]);
		if (holds_libraries(folder) && realpath(folder, out))
			return true;
	}
	vb_complain("the libraries are neither in %s/../lib/verbena nor in %s/../lib; "
		    "build them with make, or install them with make install",
		    here, here);
	return false;
}

bool vb_use_libraries(void)
{
	const char *before = getenv("LD_LIBRARY_PATH");
	char folder[PATH_MAX];
	char *value;
	int failed;

	if (!find_libraries(folder))
		return false;
	if (strpbrk(folder, ":;")) {
		vb_complain("the libraries are in %s, and a folder with \":\" or \";\" in its name "
			    "cannot stand in LD_LIBRARY_PATH; move them",
			    folder);
		return false;
	}
	/* An empty element would mean the working directory. */
	if (before && *before) {
		if (asprintf(&value, "%s:%s", folder, before) < 0)
			value = NULL;
	} else {
		value = strdup(folder);
	}
	failed = !value || setenv("LD_LIBRARY_PATH", value, 1) != 0;
	free(value);
	if (failed)
		vb_complain("out of memory");
	return !failed;
}
