/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * later.c - hooks that leave no trace: they do what is to be done first and jump to the function.
 * dlsym and dlvsym find out who called them (RTLD_NEXT), and the arguments of execl have no end
 * that is known here.
 */
#include "redirect/later.h"

#include "redirect/redirect.h"

void vb_hook_look(void);

__attribute__((used, visibility("hidden"))) void vb_hook_look(void)
{
	vb_redirect_update(false);
}

/* All that a caller may have put arguments into, but for vectors, is what it was behind it. */
#if defined(__x86_64__)
#define VB_PUSH(reg) "push %" reg "\n.cfi_adjust_cfa_offset 8\n"
#define VB_POP(reg) "pop %" reg "\n.cfi_adjust_cfa_offset -8\n"
#define TRAMPOLINE(name, before)                                                                   \
	__asm__(".text\n.globl vb_hook_" #name "\n.hidden vb_hook_" #name "\n.type vb_hook_" #name \
		", @function\nvb_hook_" #name ":\n"                                                \
		".cfi_startproc\nendbr64\n" VB_PUSH("rdi") VB_PUSH("rsi") VB_PUSH("rdx")           \
			VB_PUSH("rcx") VB_PUSH("r8") VB_PUSH("r9") VB_PUSH(                        \
				"rax") "call " before "\n" VB_POP("rax") VB_POP("r9") VB_POP("r8") \
				VB_POP("rcx") VB_POP("rdx") VB_POP("rsi")                          \
					VB_POP("rdi") "jmp " #name                                 \
						      "@PLT\n.cfi_endproc\n.size vb_hook_" #name   \
						      ", .-vb_hook_" #name "\n.previous\n")
#elif defined(__aarch64__)
#define TRAMPOLINE(name, before)                                                                   \
	__asm__(".text\n.globl vb_hook_" #name "\n.hidden vb_hook_" #name "\n.type vb_hook_" #name \
		", %function\nvb_hook_" #name ":\n"                                                \
		".cfi_startproc\nhint #34\n"                                                       \
		"stp x29, x30, [sp, #-80]!\n.cfi_def_cfa_offset 80\n"                              \
		".cfi_offset 29, -80\n.cfi_offset 30, -72\nmov x29, sp\n"                          \
		"stp x0, x1, [sp, #16]\nstp x2, x3, [sp, #32]\n"                                   \
		"stp x4, x5, [sp, #48]\nstp x6, x7, [sp, #64]\n"                                   \
		"bl " before "\n"                                                                  \
		"ldp x6, x7, [sp, #64]\nldp x4, x5, [sp, #48]\n"                                   \
		"ldp x2, x3, [sp, #32]\nldp x0, x1, [sp, #16]\nldp x29, x30, [sp], #80\n"          \
		".cfi_def_cfa_offset 0\n.cfi_restore 29\n.cfi_restore 30\n"                        \
		"b " #name "\n.cfi_endproc\n.size vb_hook_" #name ", .-vb_hook_" #name             \
		"\n.previous\n")
#endif

#if defined(__x86_64__) || defined(__aarch64__)
TRAMPOLINE(dlsym, "vb_hook_look");
TRAMPOLINE(dlvsym, "vb_hook_look");
TRAMPOLINE(_Exit, "vb_hook_ending");
TRAMPOLINE(_exit, "vb_hook_ending");
TRAMPOLINE(execl, "vb_hook_ending");
TRAMPOLINE(execle, "vb_hook_ending");
TRAMPOLINE(execlp, "vb_hook_ending");
TRAMPOLINE(execv, "vb_hook_ending");
TRAMPOLINE(execve, "vb_hook_ending");
TRAMPOLINE(execveat, "vb_hook_ending");
TRAMPOLINE(execvp, "vb_hook_ending");
TRAMPOLINE(execvpe, "vb_hook_ending");
TRAMPOLINE(fexecve, "vb_hook_ending");
TRAMPOLINE(quick_exit, "vb_hook_ending");
#endif
