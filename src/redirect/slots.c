/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * slots.c - the words through which loaded modules call functions of others (ELF gABI, chapter 5).
 *
 *      call open@PLT  -->  jmp *slot      JUMP_SLOT, bound when first called or at start (BIND_NOW)
 *      call *slot                         GLOB_DAT, of code built without a PLT
 *      &open                              GLOB_DAT, or a word of data with the 64-bit type
 *
 * Each is named by a relocation of its module: a place, a type, a symbol. Where the symbol is one
 * of the hooks' and defined elsewhere, the word gets the hook. What the hook itself calls is what
 * this library's own slots say, so that functions which others put in front of libc's stay in
 * front.
 *
 * Left alone: this module, or the hooks would call themselves; Verbena's other libraries; libc and
 * the loader, whose own words are their business; the sanitizers, which lie between.
 *
 * Most of these words are read-only by now (RELRO). They are written through /proc/self/mem, which
 * asks for no writable page: another thread may be in the middle of loading that very module, and
 * changing the protection of its pages would take them from under the loader. Where that is
 * forbidden the page is made writable for the moment.
 *
 * A module that is just being loaded is on the list before the loader has filled its words, and
 * fills them over ours. So a module counts as done when a look finds nothing to change: until then
 * each call looks again. dl_iterate_phdr(3) lets one thread in at a time and keeps modules from
 * going; it is the lock of everything here.
 */
#define _GNU_SOURCE
#include "redirect/slots.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"

#if defined(__x86_64__)
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOB_DAT = R_X86_64_GLOB_DAT, WORD = R_X86_64_64 };
#elif defined(__aarch64__)
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOB_DAT = R_AARCH64_GLOB_DAT, WORD = R_AARCH64_ABS64 };
#else /* types that no relocation has: nothing is redirected there */
enum { JUMP_SLOT = 0x7ffffff0, GLOB_DAT, WORD };
#endif

#define DONE_MAX 4096u /* modules that we remember; more are looked at each time */

struct module {
	uintptr_t base;
	const ElfW(Phdr) * phdr;
	size_t phdr_count;
	const ElfW(Sym) * symbols;
	const char *strings;
	const ElfW(Rela) * rela, *plt_rela;
	size_t rela_count, plt_count;
};

struct search {
	const struct vb_hook *hooks;
	size_t count;
	int mem_fd; /* /proc/self/mem, -1: not opened yet, -2: not to be had */
};

/* --- which modules ----------------------------------------------------------------------- */

static bool is_our_own(const struct dl_phdr_info *info)
{
	uintptr_t here = (uintptr_t)&is_our_own - info->dlpi_addr;

	for (unsigned int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && here >= p->p_vaddr && here - p->p_vaddr < p->p_memsz)
			return true;
	}
	return false;
}

static bool is_left_alone(const struct dl_phdr_info *info)
{
	static const char *const names[] = {
		"libc.so",	"ld-linux",   "ld.so",	  "ld-musl",	  "linux-vdso",
		"libpthread.",	"libdl.so",   "librt.so", "librdmacm.so", "libibumad.so",
		"librspreload", "libasan.so", "libtsan.", "libubsan.",	  "liblsan.",
	};
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;

	for (size_t i = 0; i < VB_ARRAY_SIZE(names); i++)
		if (strncmp(name, names[i], strlen(names[i])) == 0)
			return true;
	return is_our_own(info);
}

/* The loader has put addresses in place of offsets in most dynamic sections, not in all. */
static const void *address_of(const struct module *m, ElfW(Addr) value)
{
	return (const void *)(value < m->base ? m->base + value : value);
}

static bool read_module(const struct dl_phdr_info *info, struct module *m)
{
	const ElfW(Dyn) *dynamic = NULL;
	bool plt_is_rela = false;

	*m = (struct module){
		.base = info->dlpi_addr, .phdr = info->dlpi_phdr, .phdr_count = info->dlpi_phnum};
	for (size_t i = 0; i < m->phdr_count; i++)
		if (m->phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const void *)(m->base + m->phdr[i].p_vaddr);
	if (!dynamic)
		return false;
	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		switch (dynamic->d_tag) {
		case DT_SYMTAB:
			m->symbols = address_of(m, dynamic->d_un.d_ptr);
			break;
		case DT_STRTAB:
			m->strings = address_of(m, dynamic->d_un.d_ptr);
			break;
		case DT_RELA:
			m->rela = address_of(m, dynamic->d_un.d_ptr);
			break;
		case DT_RELASZ:
			m->rela_count = dynamic->d_un.d_val / sizeof(ElfW(Rela));
			break;
		case DT_JMPREL:
			m->plt_rela = address_of(m, dynamic->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			m->plt_count = dynamic->d_un.d_val / sizeof(ElfW(Rela));
			break;
		case DT_PLTREL:
			plt_is_rela = dynamic->d_un.d_val == DT_RELA;
			break;
		}
	}
	if (!m->plt_rela || !plt_is_rela)
		m->plt_count = 0;
	if (!m->rela)
		m->rela_count = 0;
	return m->symbols && m->strings;
}

/* --- writing ----------------------------------------------------------------------------- */

static bool write_by_kernel(struct search *search, void *const *place, void *value)
{
	if (search->mem_fd == -1) {
		search->mem_fd = open("/proc/thread-self/mem", O_RDWR | O_CLOEXEC);
		if (search->mem_fd < 0)
			search->mem_fd = -2;
	}
	return search->mem_fd >= 0 && pwrite(search->mem_fd, &value, sizeof(value),
					     (off_t)(uintptr_t)place) == (ssize_t)sizeof(value);
}

/* Whether the loader has taken the right to write away behind its own relocations: from whole pages
 * only, the rest of the last one stays writable. */
static bool is_relro(const struct module *m, uintptr_t place, uintptr_t page_size)
{
	for (size_t i = 0; i < m->phdr_count; i++) {
		uintptr_t begin = m->base + m->phdr[i].p_vaddr;
		uintptr_t end = (begin + m->phdr[i].p_memsz) & ~(page_size - 1);

		if (m->phdr[i].p_type == PT_GNU_RELRO && place >= begin && place < end)
			return true;
	}
	return false;
}

static bool is_writable(const struct module *m, uintptr_t place)
{
	for (size_t i = 0; i < m->phdr_count; i++)
		if (m->phdr[i].p_type == PT_LOAD && m->phdr[i].p_flags & PF_W &&
		    place - m->base - m->phdr[i].p_vaddr < m->phdr[i].p_memsz)
			return true;
	return false;
}

static void write_word(struct search *search, const struct module *m, void **place, void *value)
{
	uintptr_t page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *page = (void *)((uintptr_t)place & ~(page_size - 1));

	if (!is_writable(m,
			 (uintptr_t)place)) /* a relocation of text: such modules are left alone */
		return;
	if (!is_relro(m, (uintptr_t)place, page_size)) {
		__atomic_store_n(place, value, __ATOMIC_RELEASE);
		return;
	}
	if (write_by_kernel(search, place, value))
		return;
	if (mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0)
		return;
	__atomic_store_n(place, value, __ATOMIC_RELEASE);
	(void)mprotect(page, page_size, PROT_READ);
}

/* --- finding ----------------------------------------------------------------------------- */

static const struct vb_hook *find_hook(const struct search *search, const char *name)
{
	size_t low = 0, high = search->count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = strcmp(name, search->hooks[middle].name);

		if (order == 0)
			return &search->hooks[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

/* True when something was changed. */
static bool patch_table(struct search *search, const struct module *m, const ElfW(Rela) * rela,
			size_t count)
{
	bool changed = false;

	for (size_t i = 0; i < count; i++) {
		uint32_t type = (uint32_t)ELF64_R_TYPE(rela[i].r_info);
		const ElfW(Sym) *symbol = &m->symbols[ELF64_R_SYM(rela[i].r_info)];
		void **place = (void **)(m->base + rela[i].r_offset);
		const struct vb_hook *hook;

		if (type != JUMP_SLOT && type != GLOB_DAT && (type != WORD || rela[i].r_addend))
			continue;
		if (symbol->st_shndx != SHN_UNDEF)
			continue;
		hook = find_hook(search, m->strings + symbol->st_name);
		if (!hook || __atomic_load_n(place, __ATOMIC_RELAXED) == hook->instead)
			continue;
		write_word(search, m, place, hook->instead);
		changed = true;
	}
	return changed;
}

/* --- what is done ------------------------------------------------------------------------ */

/* All under the loader's lock, but for the two that say whether there is anything to do. */
static const void *done[DONE_MAX]; /* by hash of where their program headers lie */
static unsigned int done_count;
static unsigned long long modules_gone;
static _Atomic unsigned long long modules_seen = ULLONG_MAX; /* loads when all were done */

static const void **place_of(const void *phdr)
{
	size_t at = ((uintptr_t)phdr >> 4) * 2654435761u % DONE_MAX;

	while (done[at] && done[at] != phdr)
		at = (at + 1) % DONE_MAX;
	return &done[at];
}

struct round {
	struct search search;
	bool afresh;
	unsigned long long adds;
	bool all_done;
};

static int patch_module(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct round *round = arg;
	const void **place;
	struct module m;
	bool changed;

	/* where a module lay that is gone, another may lie now */
	if (info->dlpi_subs != modules_gone || round->afresh) {
		memset(done, 0, sizeof(done));
		done_count = 0;
		modules_gone = info->dlpi_subs;
		round->afresh = false;
	}
	round->adds = info->dlpi_adds;
	place = place_of(info->dlpi_phdr);
	if (*place)
		return 0;
	changed = false;
	if (!is_left_alone(info) && read_module(info, &m)) {
		changed = patch_table(&round->search, &m, m.plt_rela, m.plt_count);
		changed |= patch_table(&round->search, &m, m.rela, m.rela_count);
	}
	if (!changed && done_count < DONE_MAX / 2) {
		*place = info->dlpi_phdr;
		done_count++;
	} else if (changed) {
		round->all_done = false;
	}
	return 0;
}

static int read_adds(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1; /* the first says it for all */
}

void vb_slots_patch(const struct vb_hook *hooks, size_t count, bool afresh)
{
	struct round round = {.search = {hooks, count, -1}, .afresh = afresh, .all_done = true};
	unsigned long long adds = 0;
	int error = errno;

	dl_iterate_phdr(read_adds, &adds);
	if (afresh || adds != atomic_load(&modules_seen)) {
		dl_iterate_phdr(patch_module, &round);
		if (round.search.mem_fd >= 0)
			close(round.search.mem_fd);
		if (round.all_done)
			atomic_store(&modules_seen, round.adds);
	}
	errno = error;
}
