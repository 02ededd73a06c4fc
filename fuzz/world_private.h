/* SPDX-License-Identifier: BSD-2-Clause */
/* world_private.h - between world.c and requests.c. */
#ifndef VB_FUZZ_WORLD_PRIVATE_H
#define VB_FUZZ_WORLD_PRIVATE_H

#include "world.h"

/* fuzz_check_all_completed - all queue pairs are in ERR and everything was polled: nothing is
 * missing. */
void fuzz_check_all_completed(const struct fuzz_side *side);

#endif
