/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * later.c - dlsym and dlvsym find out who called them (RTLD_NEXT), so the hook must leave no trace:
 * it looks for new modules and jumps.
 */
#include "redirect/later.h"

#include "redirect/redirect.h"

void vb_hook_look(void);

__attribute__((used, visibility("hidden"))) void vb_hook_look(void)
{
	vb_redirect_update(false);
}

#if defined(__x86_64__)
#define TRAMPOLINE(name)                                                                           \
	__asm__(".text\n.globl vb_hook_" #name "\n.hidden vb_hook_" #name "\n.type vb_hook_" #name \
		", @function\nvb_hook_" #name ":\n"                                                \
		".cfi_startproc\nendbr64\n"                                                        \
		"push %rdi\n.cfi_adjust_cfa_offset 8\npush %rsi\n.cfi_adjust_cfa_offset 8\n"       \
		"push %rdx\n.cfi_adjust_cfa_offset 8\n"                                            \
		"call vb_hook_look\n"                                                              \
		"pop %rdx\n.cfi_adjust_cfa_offset -8\npop %rsi\n.cfi_adjust_cfa_offset -8\n"       \
		"pop %rdi\n.cfi_adjust_cfa_offset -8\n"                                            \
		"jmp " #name "@PLT\n.cfi_endproc\n.size vb_hook_" #name ", .-vb_hook_" #name       \
		"\n.previous\n")
TRAMPOLINE(dlsym);
TRAMPOLINE(dlvsym);
#elif defined(__aarch64__)
#define TRAMPOLINE(name)                                                                           \
	__asm__(".text\n.globl vb_hook_" #name "\n.hidden vb_hook_" #name "\n.type vb_hook_" #name \
		", %function\nvb_hook_" #name ":\n"                                                \
		".cfi_startproc\nhint #34\n"                                                       \
		"stp x29, x30, [sp, #-48]!\n.cfi_def_cfa_offset 48\n"                              \
		".cfi_offset 29, -48\n.cfi_offset 30, -40\nmov x29, sp\n"                          \
		"stp x0, x1, [sp, #16]\nstr x2, [sp, #32]\n"                                       \
		"bl vb_hook_look\n"                                                                \
		"ldr x2, [sp, #32]\nldp x0, x1, [sp, #16]\nldp x29, x30, [sp], #48\n"              \
		".cfi_def_cfa_offset 0\n.cfi_restore 29\n.cfi_restore 30\n"                        \
		"b " #name "\n.cfi_endproc\n.size vb_hook_" #name ", .-vb_hook_" #name             \
		"\n.previous\n")
TRAMPOLINE(dlsym);
TRAMPOLINE(dlvsym);
#endif
