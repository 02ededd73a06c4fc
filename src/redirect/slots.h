/* SPDX-License-Identifier: BSD-2-Clause */
/* slots.h - the words through which loaded modules call functions of others; see slots.c. */
#ifndef VB_REDIRECT_SLOTS_H
#define VB_REDIRECT_SLOTS_H

#include <stdbool.h>
#include <stddef.h>

struct vb_hook {
	const char *name; /* of the function that modules ask for */
	void *instead;
};

/* vb_slots_patch - makes every module that is loaded now, but for those that slots.c leaves alone,
 * call the hooks, which are sorted by name. Modules that are known to be done are passed over, and
 * while none came since the last call nothing is looked at; afresh: everything is. From any thread.
 */
void vb_slots_patch(const struct vb_hook *hooks, size_t count, bool afresh);

#endif
