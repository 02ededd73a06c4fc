/* SPDX-License-Identifier: BSD-2-Clause */
/* assert.c - what happens when an invariant of ours does not hold. */
#include "base/macros.h"

#include <stdio.h>
#include <stdlib.h>

void vb_assert_failed(const char *cond, const char *file, int line)
{
	fprintf(stderr, "verbena: internal error: %s (%s:%d)\n", cond, file, line);
	abort();
}
