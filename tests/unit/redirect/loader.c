/* SPDX-License-Identifier: BSD-2-Clause */
/* loader.c - a module that loads others; and one that asks for what lies behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "looks.h"

void *load(const char *file, const char *name)
{
	void *module = dlopen(file, RTLD_LAZY | RTLD_LOCAL);

	return module ? dlsym(module, name) : NULL;
}

int name_of_next(void)
{
	return 1;
}

void *next_of_name(void)
{
	void *volatile found =
		dlsym(RTLD_NEXT, "name_of_next"); /* no tail call: it must come back here */

	return found;
}
