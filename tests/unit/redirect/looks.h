/* SPDX-License-Identifier: BSD-2-Clause */
/* looks.h - what the modules of the test export. */
#ifndef LOOKS_H
#define LOOKS_H

#include <stddef.h>

/* look - 0 with what was found in out, or an errno. */
int look(const char *how, const char *path, char *out, size_t size);
typedef int look_fn(const char *how, const char *path, char *out, size_t size);

/* load - loads a module and finds a name in it, as a program with plug-ins does. */
void *load(const char *file, const char *name);
typedef void *load_fn(const char *file, const char *name);

/* next_of_name - the `name_of_next` behind its own, by RTLD_NEXT. */
void *next_of_name(void);
int name_of_next(void);

/* end_by - the process ends with 7, by a function of that name; or returns. */
void end_by(const char *how);
typedef void end_fn(const char *how);

#endif
