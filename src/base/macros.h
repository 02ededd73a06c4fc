/* SPDX-License-Identifier: BSD-2-Clause */
/* macros.h - the few macros that every part may use. */
#ifndef VB_BASE_MACROS_H
#define VB_BASE_MACROS_H

#include <stddef.h>
#include <stdint.h>

/* VB_ASSERT - our own bug, never the peer's or the program's. On in release builds too. */
#define VB_ASSERT(cond)                                                                            \
	do {                                                                                       \
		if (__builtin_expect(!(cond), 0))                                                  \
			vb_assert_failed(#cond, __FILE__, __LINE__);                               \
	} while (0)

/* vb_assert_failed - writes one line to standard error and aborts. */
_Noreturn void vb_assert_failed(const char *cond, const char *file, int line);

#define VB_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define vb_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define VB_MIN(a, b)                                                                               \
	({                                                                                         \
		__typeof__(a) _min_a = (a);                                                        \
		__typeof__(b) _min_b = (b);                                                        \
		_min_a < _min_b ? _min_a : _min_b;                                                 \
	})
#define VB_MAX(a, b)                                                                               \
	({                                                                                         \
		__typeof__(a) _max_a = (a);                                                        \
		__typeof__(b) _max_b = (b);                                                        \
		_max_a > _max_b ? _max_a : _max_b;                                                 \
	})

#define VB_MUST_USE __attribute__((warn_unused_result))

/* VB_SHARED - librdmacm.so.1 and libibumad.so.3 call it too: exported by libibverbs.so.1, at a node
 * of our own. The live NICs of a process are there, once, whichever library is used. */
#define VB_SHARED __attribute__((visibility("default")))

#endif
