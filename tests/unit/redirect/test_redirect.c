/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_redirect.c - the looks of modules go elsewhere: of those loaded before, of those loaded
 * later, however they were built; and nothing else changes.
 *
 * This program is the module that the hooks are in, so its own looks are never redirected.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/macros.h"
#include "looks.h"
#include "redirect/redirect.h"

#define SEEN "/sys/vb-test" /* what the modules look at; the kernel has nothing of that name */

static char tree[] = "/tmp/vb-redirect-XXXXXX";

/* --- what the owner answers -------------------------------------------------------------- */

static const char *where(const char *path, char buffer[PATH_MAX])
{
	errno = EXDEV; /* must not be seen by anybody */
	if (strncmp(path, SEEN, strlen(SEEN)) != 0)
		return NULL;
	if (!strcmp(path, SEEN "/device"))
		return "/dev/null";
	if (!strncmp(path, SEEN "/device/", strlen(SEEN "/device/")))
		snprintf(buffer, PATH_MAX, "/dev/null/%s", path + strlen(SEEN "/device/"));
	else
		snprintf(buffer, PATH_MAX, "%s%s", tree, path + strlen(SEEN));
	return buffer;
}

static void back(char *path)
{
	char text[PATH_MAX];

	if (strncmp(path, tree, strlen(tree)) != 0)
		return;
	snprintf(text, sizeof(text), SEEN "%s", path + strlen(tree));
	strcpy(path, text);
}

static int value(const char *to, bool cloexec)
{
	int fds[2];

	if (strncmp(to, tree, strlen(tree)) != 0 || strcmp(to + strlen(tree), "/moves") != 0 ||
	    pipe2(fds, cloexec ? O_CLOEXEC : 0) != 0)
		return -1;
	assert_int_equal(write(fds[1], "now", 3), 3);
	close(fds[1]);
	return fds[0];
}

static dev_t device(void)
{
	struct stat status;

	return stat(tree, &status) == 0 ? status.st_dev : 0;
}

static const char *const marks[] = {"nothing", "vb-test", NULL};

static int told; /* of the end, where it is more than 0 */

static void ending(void)
{
	if (told > 0)
		assert_int_equal(write(told, "!", 1), 1);
}

static const struct vb_redirect_ops ops = {marks, where, back, value, device, ending};

/* --- modules ----------------------------------------------------------------------------- */

static void *open_module(const char *name)
{
	char file[PATH_MAX];
	void *module;

	snprintf(file, sizeof(file), VB_MODULES "/%s.so", name);
	module = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
	if (!module)
		fail_msg("%s", dlerror());
	return module;
}

static look_fn *look_of(const char *name)
{
	look_fn *found = (look_fn *)dlsym(open_module(name), "look");

	assert_non_null(found);
	return found;
}

static const char *const built[] = {"lazy", "now", "norelro", "noplt", "fortified"};
static look_fn *looks[VB_ARRAY_SIZE(built)];

static const struct {
	const char *how, *path, *found;
} sights[] = {
	{"open", SEEN "/stays", "as it was"},
	{"open by table", SEEN "/stays", "as it was"},
	{"openat", SEEN "/stays", "as it was"},
	{"open", SEEN "/moves", "now"},
	{"fopen", SEEN "/stays", "as it was"},
	{"fopen", SEEN "/moves", "now"},
	{"stat", SEEN "/stays", "file"},
	{"stat", SEEN "/link", "file"},
	{"lstat", SEEN "/link", "link"},
	{"fstatat", SEEN "/folder", "directory"},
	{"openat from /", SEEN "/stays", "as it was"},
	{"openat from /", SEEN "/moves", "now"},
	{"fstatat from /", SEEN "/folder", "directory"},
	{"readlinkat from /", SEEN "/link", "stays"},
	{"statx", SEEN "/stays", ""},
	{"stat", SEEN "/device", "character device"},
	{"lstat", SEEN "/device", "character device"},
	{"open", SEEN "/device", ""},
	{"access", SEEN "/stays", ""},
	{"access by pointer", SEEN "/stays", ""},
	{"faccessat", SEEN "/stays", ""},
	{"opendir", SEEN "/folder", "inside"},
	{"scandir", SEEN, "away folder link moves stays "},
	{"glob", SEEN "/s*", SEEN "/stays "},
	{"readlink", SEEN "/link", "stays"},
	{"readlinkat", SEEN "/link", "stays"},
	{"realpath", SEEN "/link", SEEN "/stays"},
	{"realpath", SEEN "/folder/../folder", SEEN "/folder"},
	{"realpath", SEEN "/device", SEEN "/device"},
	{"realpath", SEEN "/folder/.././device", SEEN "/device"},
	{"freopen", SEEN "/stays", "as it was"},
	{"freopen", SEEN "/moves", "now"},
	{"scandirat", SEEN "/folder", "1"},
	{"statfs", SEEN "/stays", "/sys"},
	{"statfs", SEEN "/device", "/dev"},
	{"fstatfs", SEEN "/stays", "/sys"},
	{"statvfs", SEEN "/folder", "/sys"},
	{"fstatvfs", SEEN "/folder", "/sys"},
	{"listxattr", SEEN "/stays", ""},
	{"llistxattr", SEEN "/link", ""},
	{"watch", SEEN "/stays", ""},
	/* It follows links, and /dev, where "away" leads, changes while it is walked. */
	{"ftw", SEEN "/folder", SEEN "/folder/inside"},
	{"nftw", SEEN, SEEN "/folder/inside"},
	/* a directory's descriptor is of the tree, what is asked from it is not */
	{"open below", SEEN "/stays", "as it was"},
	{"open below", SEEN "/moves", "now"},
	{"stat below", SEEN "/folder", "directory"},
	{"open below /../moves", SEEN "/folder/../moves", "now"},
	{"open below /vb-test", SEEN "/moves", "now"},
	/* in, out, and through links */
	{"open", SEEN "//.//moves", "now"},
	{"open", SEEN "/folder/../moves", "now"},
	{"open", "/sys/kernel/../vb-test/moves", "now"},
	{"open", "/proc/../sys/vb-test/moves", "now"},
	{"open", "//sys/vb-test/../../sys/./vb-test/moves", "now"},
	{"open", SEEN "/away/../../../sys/vb-test/moves", "now"}, /* away: /dev */
};

static void expect_elsewhere(look_fn *look_by)
{
	char found[256];

	assert_non_null(look_by);
	for (size_t i = 0; i < VB_ARRAY_SIZE(sights); i++) {
		int error = look_by(sights[i].how, sights[i].path, found, sizeof(found));

		if (error)
			fail_msg("%s %s: %s", sights[i].how, sights[i].path, strerror(error));
		assert_string_equal(found, sights[i].found);
	}
}

static void expect_nothing(look_fn *look_by)
{
	char found[256];

	for (size_t i = 0; i < VB_ARRAY_SIZE(sights); i++)
		assert_int_equal(look_by(sights[i].how, sights[i].path, found, sizeof(found)),
				 ENOENT);
}

/* --- tests ------------------------------------------------------------------------------- */

static void test_modules_of_every_kind(void **state)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(built); i++)
		expect_elsewhere(looks[i]);
}

static void test_other_paths_are_left_alone(void **state)
{
	char found[256];

	for (size_t i = 0; i < VB_ARRAY_SIZE(built); i++) {
		assert_int_equal(looks[i]("open", "/proc/self/comm", found, sizeof(found)), 0);
		assert_string_equal(found, "unit_redirect_r\n");
		assert_int_equal(looks[i]("stat", "/dev/zero", found, sizeof(found)), 0);
		assert_string_equal(found, "character device");
		assert_int_equal(looks[i]("stat", "/sys", found, sizeof(found)), 0);
		assert_int_equal(looks[i]("stat", "/sys/none", found, sizeof(found)), ENOENT);
		assert_int_equal(looks[i]("stat", "", found, sizeof(found)), ENOENT);
		assert_int_equal(looks[i]("realpath", "/proc/self/cwd/.", found, sizeof(found)), 0);
	}
}

static void test_what_is_no_pointer_is_refused_by_the_kernel(void **state)
{
	char found[16];

	for (size_t i = 0; i < VB_ARRAY_SIZE(built); i++) {
		assert_int_equal(looks[i]("open", (char *)1, found, sizeof(found)), EFAULT);
		assert_int_equal(looks[i]("access", (char *)1, found, sizeof(found)), EFAULT);
	}
}

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* opendir and scandir look at the path themselves, before the kernel does; the sanitizers' own
 * functions in front of libc's do so in more of them. */
static const char *const by_pointer[] = {
	"open",	  "openat",  "open to write", "creat",	   "lstat",
	"stat",	  "fstatat", "access",	      "faccessat",
#ifndef SANITIZED
	"fopen",  "freopen", "statx",	      "readlink",  "readlinkat",
	"statfs", "statvfs", "listxattr",     "getxattr",  "watch",
#endif
};
static const char *const that_follow[] = {
	"open",	     "openat",	"fopen",   "freopen", "stat",	 "fstatat",   "statx",	  "access",
	"faccessat", "opendir", "scandir", "statfs",  "statvfs", "listxattr", "getxattr", "watch",
};

/* A page with what is written at its end, and nothing behind it. */
static char *at_the_end(const char *text, size_t size)
{
	size_t page = (size_t)getpagesize();
	char *two =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(two, MAP_FAILED);
	assert_int_equal(munmap(two + page, page), 0);
	return memcpy(two + page - size, text, size);
}

/* What is not mapped, wherever its end lies; what is, to its last byte. */
static void test_memory_that_is_not_there(void **state)
{
	static const char name[] = SEEN "/stays";
	char found[64], *gone = at_the_end("", 1), *open_end = at_the_end(name, strlen(name));
	char *whole = at_the_end(name, sizeof(name));
	size_t page = (size_t)getpagesize();

	for (size_t i = 0; i < VB_ARRAY_SIZE(by_pointer); i++) {
		for (size_t built_as = 0; built_as < VB_ARRAY_SIZE(built); built_as++) {
			look_fn *by = looks[built_as];

			assert_int_equal(by(by_pointer[i], gone + 1, found, 64), EFAULT);
			assert_int_equal(by(by_pointer[i], gone + 7, found, 64), EFAULT);
			assert_int_equal(by(by_pointer[i], open_end, found, 64), EFAULT);
			assert_int_equal(by(by_pointer[i], (char *)-8, found, 64), EFAULT);
		}
	}
	assert_int_equal(looks[0]("open", whole, found, 64), 0);
	assert_string_equal(found, "as it was");
	/* across the border of two pages */
	whole = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	strcpy(whole + page - 5, name);
	assert_int_equal(looks[0]("open", whole + page - 5, found, 64), 0);
	assert_string_equal(found, "as it was");
	munmap(whole, 2 * page);
}

/* path_resolution(7), and what open(2) says. */
static void test_what_leads_nowhere(void **state)
{
	char found[64], longest[PATH_MAX + 8];

	for (size_t i = 0; i < VB_ARRAY_SIZE(that_follow); i++) {
		const char *how = that_follow[i];

		assert_int_equal(looks[0](how, SEEN "/stays/", found, 64), ENOTDIR);
		assert_int_equal(looks[0](how, SEEN "/stays/.", found, 64), ENOTDIR);
		assert_int_equal(looks[0](how, SEEN "/moves/", found, 64), ENOTDIR);
		assert_int_equal(looks[0](how, SEEN "/link/", found, 64), ENOTDIR);
		assert_int_equal(looks[0](how, SEEN "/device/", found, 64), ENOTDIR);
		assert_int_equal(looks[0](how, SEEN "/stays/../folder", found, 64), ENOTDIR);
		assert_int_equal(looks[0](how, SEEN "/none/../folder", found, 64), ENOENT);
		assert_int_equal(looks[0](how, SEEN "/../vb-none/stays", found, 64), ENOENT);
	}
	assert_int_equal(looks[0]("realpath", SEEN "/stays/", found, 64), ENOTDIR);
	assert_int_equal(looks[0]("open below", SEEN "/stays/", found, 64), ENOTDIR);
	memset(longest, '/', sizeof(longest));
	strcpy(longest + PATH_MAX - 6, "stays");
	memcpy(longest, SEEN, strlen(SEEN));
	assert_int_equal(strlen(longest), PATH_MAX - 1);
	assert_int_equal(looks[0]("open", longest, found, 64), 0);
	assert_string_equal(found, "as it was");
	memcpy(longest + PATH_MAX - 6, "/stays", sizeof("/stays"));
	assert_int_equal(looks[0]("open", longest, found, 64), ENAMETOOLONG);
}

/* What lies beside ours is the system's. */
static void test_ways_out(void **state)
{
	char found[64];

	assert_int_equal(looks[0]("stat", SEEN "/../kernel", found, 64), 0);
	assert_string_equal(found, "directory");
	assert_int_equal(looks[0]("open", SEEN "/folder/../../../proc/self/comm", found, 64), 0);
	assert_string_equal(found, "unit_redirect_r\n");
	assert_int_equal(looks[0]("fopen", SEEN "/../../proc/self/comm", found, 64), 0);
	assert_string_equal(found, "unit_redirect_r\n");
	assert_int_equal(looks[0]("stat", SEEN "/away/zero", found, 64), 0);
	assert_string_equal(found, "character device");
	assert_int_equal(looks[0]("realpath", SEEN "/../kernel/.", found, 64), 0);
	assert_string_equal(found, "/sys/kernel");
	assert_int_equal(
		looks[0]("stat below /../../kernel", SEEN "/folder/../../kernel", found, 64), 0);
	assert_string_equal(found, "directory");
	/* and may be written, where it lets itself be written */
	assert_int_equal(looks[0]("open to write", SEEN "/../../dev/null", found, 64), EBADF);
}

/* As the kernel's own files: nobody may write them, root included. */
static void test_nobody_writes_there(void **state)
{
	static const char *const there[] = {SEEN "/device", SEEN "/stays", SEEN "/folder",
					    SEEN "/link"};
	char found[16];

	/* a character device is another matter: what fails is the reading afterwards */
	assert_int_equal(looks[0]("open to write", SEEN "/device", found, 16), EBADF);
	assert_int_equal(looks[0]("open to write", SEEN "/stays", found, 16), EACCES);
	assert_int_equal(looks[0]("open to write", SEEN "/moves", found, 16), EACCES);
	assert_int_equal(looks[0]("open to write", SEEN "/none", found, 16), ENOENT);
	assert_int_equal(looks[0]("open to write", SEEN "/folder", found, 16), EISDIR);
	assert_int_equal(looks[0]("open to write", SEEN "/device/", found, 16), ENOTDIR);
	assert_int_equal(looks[0]("open to write", SEEN "/device/none", found, 16), ENOTDIR);
	assert_int_equal(looks[0]("open to write", SEEN "/stays/", found, 16), ENOTDIR);
	assert_int_equal(looks[0]("open to make", SEEN "/none", found, 16), EACCES);
	assert_int_equal(looks[0]("open to make", SEEN "/stays", found, 16), EACCES);
	assert_int_equal(looks[0]("open to make", SEEN "/device", found, 16), 0);
	assert_int_equal(looks[0]("open to make", SEEN "/device/", found, 16), EISDIR);
	/* what is there cannot be made */
	for (size_t i = 0; i < VB_ARRAY_SIZE(there); i++) {
		assert_int_equal(looks[0]("open to make alone", there[i], found, 16), EEXIST);
		assert_int_equal(looks[0]("fopen to make alone", there[i], found, 16), EEXIST);
	}
	assert_int_equal(looks[0]("open to make alone", SEEN "/none", found, 16), EACCES);
	assert_int_equal(looks[0]("fopen to make alone", SEEN "/none", found, 16), EACCES);
	assert_int_equal(looks[0]("fopen to write", SEEN "/stays", found, 16), EACCES);
	assert_int_equal(looks[0]("fopen to make", SEEN "/none", found, 16), EACCES);
	assert_int_equal(looks[0]("open", SEEN "/none", found, 16), ENOENT);
	assert_int_equal(looks[0]("fopen", SEEN "/none", found, 16), ENOENT);
	assert_int_equal(looks[0]("open", SEEN "/stays", found, 16), 0);
	assert_string_equal(found, "as it was");
}

/* The same path from another directory is another. */
static void test_relative_paths_count_from_the_root_alone(void **state)
{
	char found[16];

	assert_int_equal(looks[0]("openat from .", SEEN "/stays", found, 16), ENOENT);
	assert_int_equal(looks[0]("openat from no descriptor", SEEN "/stays", found, 16), EBADF);
}

/* This program's own looks are the owner's. */
static void test_the_owner_sees_the_system(void **state)
{
	assert_int_equal(access(SEEN "/stays", F_OK), -1);
	assert_int_equal(errno, ENOENT);
}

static void test_modules_that_others_load_later(void **state)
{
	load_fn *load_by = (load_fn *)dlsym(open_module("loader"), "load");

	assert_non_null(load_by);
	vb_redirect_update(false); /* as when a program asks for devices */
	expect_elsewhere((look_fn *)load_by(VB_MODULES "/plugin.so", "look"));
}

static void test_modules_that_came_since(void **state)
{
	look_fn *later = look_of("later");

	expect_nothing(later);
	vb_redirect_update(false);
	expect_elsewhere(later);
}

/* dlsym finds out who asks: with a hook in between it must still be the module, behind which lies
 * one that says 2; behind this program lies the module itself, which says 1. */
static void test_next_is_next_of_the_module(void **state)
{
	void *loader = dlopen(VB_MODULES "/loader.so", RTLD_LAZY | RTLD_GLOBAL);
	void *(*next)(void) = (void *(*)(void))dlsym(loader, "next_of_name");
	int (*found)(void);

	assert_non_null(next);
	vb_redirect_update(false);
	found = (int (*)(void))next();
	assert_non_null(found);
	assert_int_equal(found(), 2);
}

/* The owner hears of it, once, and the function has all of its arguments. */
static void test_the_owner_hears_of_the_end(void **state)
{
	static const char *const ways[] = {"_exit",  "_Exit",	"quick_exit", "execl",
					   "execle", "execlp",	"execv",      "execve",
					   "execvp", "execvpe", "fexecve",    "execveat"};
	end_fn *end = (end_fn *)dlsym(open_module("loader"), "end_by");
	char heard[4];
	int pipes[2], status;
	pid_t child;

	assert_non_null(end);
	vb_redirect_update(false);
	for (size_t i = 0; i < VB_ARRAY_SIZE(ways); i++) {
		assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
		child = fork();
		if (child == 0) {
			told = pipes[1];
			end(ways[i]);
			abort();
		}
		close(pipes[1]);
		assert_int_equal(waitpid(child, &status, 0), child);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
			fail_msg("%s: status 0x%x", ways[i], status);
		assert_int_equal(read(pipes[0], heard, sizeof(heard)), 1);
		close(pipes[0]);
	}
}

/* Whether any page of the module's RELRO segment is writable. */
static bool relro_is_writable(const char *name)
{
	char line[512], rights[8];
	struct link_map *map = open_module(name);
	uintptr_t begin, end, from = 0, to = 0;
	const ElfW(Ehdr) *head = (void *)map->l_addr;
	const ElfW(Phdr) *p = (void *)(map->l_addr + head->e_phoff);
	FILE *maps = fopen("/proc/self/maps", "re");
	bool writable = false;

	for (int i = 0; i < head->e_phnum; i++) {
		if (p[i].p_type != PT_GNU_RELRO)
			continue;
		from = map->l_addr + p[i].p_vaddr;
		to = (from + p[i].p_memsz) & ~(uintptr_t)(getpagesize() - 1);
	}
	assert_true(from < to);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) == 3 && begin < to &&
		    end > from && rights[1] == 'w')
			writable = true;
	fclose(maps);
	return writable;
}

static void test_what_was_read_only_stays_so(void **state)
{
	assert_false(relro_is_writable("now"));
	assert_false(relro_is_writable("noplt"));
	assert_false(relro_is_writable("lazy"));
}

/* Without a descriptor left, /proc/self/mem cannot be opened. */
static void test_without_the_kernel_s_help(void **state)
{
	struct rlimit old, none;
	look_fn *helpless = look_of("helpless");

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	vb_redirect_update(false);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	expect_elsewhere(helpless);
	assert_false(relro_is_writable("helpless"));
}

/* Each has a module of its own: one that is loaded twice is loaded once. */
static void *load_and_unload(void *name)
{
	char file[PATH_MAX], found[16];
	intptr_t failures = 0;

	snprintf(file, sizeof(file), VB_MODULES "/%s.so", (const char *)name);
	for (int i = 0; i < 100; i++) {
		void *module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
		look_fn *look_by = module ? (look_fn *)dlsym(module, "look") : NULL;

		vb_redirect_update(false);
		failures += !look_by || look_by("open", "/dev/null", found, 16) != 0;
		if (module)
			dlclose(module);
	}
	return (void *)failures;
}

static void test_while_others_load_and_unload(void **state)
{
	static char names[][8] = {"coming", "going"};
	pthread_t threads[2];
	void *failures;

	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, load_and_unload, names[i]), 0);
	for (int i = 0; i < 50; i++) {
		vb_redirect_update(true);
		expect_elsewhere(looks[(size_t)i % VB_ARRAY_SIZE(built)]);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &failures);
		assert_null(failures);
	}
}

/* --- set-up ------------------------------------------------------------------------------ */

static void write_file(const char *name, const char *text)
{
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", tree, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int set_up(void **state)
{
	char path[PATH_MAX];

	assert_non_null(mkdtemp(tree));
	write_file("stays", "as it was");
	write_file("moves", "long ago");
	snprintf(path, sizeof(path), "%s/folder", tree);
	assert_int_equal(mkdir(path, 0700), 0);
	write_file("folder/inside", "");
	snprintf(path, sizeof(path), "%s/link", tree);
	assert_int_equal(symlink("stays", path), 0);
	snprintf(path, sizeof(path), "%s/away", tree);
	assert_int_equal(symlink("/dev", path), 0);
	for (size_t i = 0; i < VB_ARRAY_SIZE(built); i++) {
		looks[i] = look_of(built[i]);
		expect_nothing(looks[i]);
	}
	vb_redirect_update(false); /* nothing yet */
	expect_nothing(looks[0]);
	vb_redirect_start(&ops);
	return 0;
}

static int tear_down(void **state)
{
	static const char *const names[] = {"stays", "moves", "link", "away", "folder/inside"};
	char path[PATH_MAX];

	for (size_t i = 0; i < VB_ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", tree, names[i]);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/folder", tree);
	rmdir(path);
	return rmdir(tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modules_of_every_kind),
		cmocka_unit_test(test_other_paths_are_left_alone),
		cmocka_unit_test(test_what_is_no_pointer_is_refused_by_the_kernel),
		cmocka_unit_test(test_memory_that_is_not_there),
		cmocka_unit_test(test_what_leads_nowhere),
		cmocka_unit_test(test_ways_out),
		cmocka_unit_test(test_nobody_writes_there),
		cmocka_unit_test(test_relative_paths_count_from_the_root_alone),
		cmocka_unit_test(test_the_owner_sees_the_system),
		cmocka_unit_test(test_modules_that_others_load_later),
		cmocka_unit_test(test_modules_that_came_since),
		cmocka_unit_test(test_next_is_next_of_the_module),
		cmocka_unit_test(test_the_owner_hears_of_the_end),
		cmocka_unit_test(test_what_was_read_only_stays_so),
		cmocka_unit_test(test_without_the_kernel_s_help),
		cmocka_unit_test(test_while_others_load_and_unload),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
