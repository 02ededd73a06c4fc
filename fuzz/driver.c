/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * driver.c - runs a fuzz target over files and folders of inputs, without libFuzzer.
 *
 * This is how the corpora are tests in every build, and how an input that a fuzzer found is tried
 * again under a debugger. An empty or missing corpus is a failure: it would test nothing.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fuzz.h"

#define INPUT_MAX (1u << 20)

/* The input lies at the end of a block of its exact size, so that a read past it can be seen. */
static int run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *whole = malloc(INPUT_MAX);
	uint8_t *exact = NULL;
	size_t size = 0;

	if (f && whole) {
		size = fread(whole, 1, INPUT_MAX, f);
		exact = malloc(size ? size : 1);
	}
	if (f)
		fclose(f);
	if (!exact) {
		perror(path);
		free(whole);
		return -1;
	}
	for (size_t i = 0; i < size; i++)
		exact[i] = whole[i];
	free(whole);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	return 1;
}

/* Returns how many inputs were run, or -1. */
static int run(const char *path)
{
	struct dirent *entry;
	struct stat st;
	int count = 0;
	DIR *dir;

	if (stat(path, &st)) {
		perror(path);
		return -1;
	}
	if (!S_ISDIR(st.st_mode))
		return run_file(path);
	dir = opendir(path);
	if (!dir) {
		perror(path);
		return -1;
	}
	while (count >= 0 && (entry = readdir(dir))) {
		char file[PATH_MAX];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		count = run_file(file) < 0 ? -1 : count + 1;
	}
	closedir(dir);
	return count;
}

int main(int argc, char **argv)
{
	int total = 0;

	for (int i = 1; i < argc; i++) {
		int count = run(argv[i]);

		if (count < 0)
			return 1;
		total += count;
	}
	printf("%d inputs\n", total);
	return total ? 0 : 1;
}
