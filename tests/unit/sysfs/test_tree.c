/* SPDX-License-Identifier: BSD-2-Clause */
/* test_tree.c - the files that are written, what moves in them, and the tree that processes share.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/engine.h"
#include "sysfs/sysfs.h"

static struct vb_device *const *list;
static int count;

/* --- reading ----------------------------------------------------------------------------- */

static void read_file(int root, const char *path, char text[VB_SYSFS_TEXT_MAX])
{
	int fd = openat(root, path, O_RDONLY);
	ssize_t size;

	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	size = read(fd, text, VB_SYSFS_TEXT_MAX - 1);
	assert_true(size >= 0);
	text[size] = '\0';
	close(fd);
}

static ino_t inode_of(int root, const char *path)
{
	struct stat status;

	assert_int_equal(fstatat(root, path, &status, 0), 0);
	return status.st_ino;
}

static int make_root(char folder[64])
{
	int root;

	strcpy(folder, "/tmp/vb-sysfs-XXXXXX");
	assert_non_null(mkdtemp(folder));
	root = open(folder, O_RDONLY | O_DIRECTORY);
	assert_true(root >= 0);
	return root;
}

static void remove_root(int root, const char *folder)
{
	int above = open("/tmp", O_RDONLY | O_DIRECTORY);

	close(root);
	vb_sysfs_remove(above, strrchr(folder, '/') + 1);
	close(above);
	assert_int_equal(access(folder, F_OK), -1);
}

/* --- tests ------------------------------------------------------------------------------- */

struct comparing {
	struct vb_sysfs_sink sink;
	int root;
	unsigned int files, moving, links;
};

static int compare_file(struct vb_sysfs_sink *sink, const char *path, const char *text, bool moves)
{
	struct comparing *c = vb_container_of(sink, struct comparing, sink);
	char found[VB_SYSFS_TEXT_MAX];
	struct stat status;

	read_file(c->root, path, found);
	assert_string_equal(found, text);
	assert_int_equal(fstatat(c->root, path, &status, 0), 0);
	assert_int_equal(status.st_mode & 0777, 0444);
	c->files++;
	c->moving += moves;
	return 0;
}

static int compare_link(struct vb_sysfs_sink *sink, const char *path, const char *target)
{
	struct comparing *c = vb_container_of(sink, struct comparing, sink);
	char found[PATH_MAX];
	ssize_t size = readlinkat(c->root, path, found, sizeof(found) - 1);

	assert_true(size > 0);
	found[size] = '\0';
	assert_string_equal(found, target);
	assert_int_equal(faccessat(c->root, path, F_OK, 0), 0); /* it leads somewhere */
	c->links++;
	return 0;
}

static void test_what_is_described_is_written(void **state)
{
	struct comparing c = {.sink = {compare_file, compare_link}};
	char folder[64];
	mode_t usual;

	c.root = make_root(folder);
	usual = umask(0777); /* which takes all rights away */
	assert_int_equal(vb_sysfs_write(c.root, list, count), 0);
	umask(usual);
	assert_int_equal(vb_sysfs_describe(list, count, &c.sink), 0);
	/* of each device: what a port must have (state, phys_state, 21 counters and ours), 16 times
	 * gid, type and interface */
	assert_true(c.files > 2 * (16 * 3 + 23 + 10));
	assert_true(c.moving >= 2 * (2 + 21 + 10));
	assert_int_equal(c.links, 2 * (3 + 2 + 3 + 3 + 3) + 1);
	remove_root(c.root, folder);
}

static void test_values_by_any_way(void **state)
{
	static const char *const ways[] = {
		"/sys/class/infiniband/verbena1/ports/1/",
		"/sys/devices/verbena/verbena1:00.0/infiniband/verbena1/ports/1/",
		"/sys/class/infiniband_verbs/uverbs1/device/infiniband/verbena1/ports/1/",
	};
	char path[PATH_MAX], text[VB_SYSFS_TEXT_MAX];

	for (size_t i = 0; i < VB_ARRAY_SIZE(ways); i++) {
		snprintf(path, sizeof(path), "%s%s", ways[i], "state");
		assert_true(vb_sysfs_is_moving(path));
		assert_int_equal(vb_sysfs_value(list, count, path, text), 10);
		assert_string_equal(text, "4: ACTIVE\n");
		snprintf(path, sizeof(path), "%s%s", ways[i], "counters/none");
		assert_int_equal(vb_sysfs_value(list, count, path, text), -ENOENT);
		snprintf(path, sizeof(path), "%s%s", ways[i], "gids/1");
		assert_false(vb_sysfs_is_moving(path));
		snprintf(path, sizeof(path), "%s%s", ways[i], "gid_attrs/types/1");
		assert_false(vb_sysfs_is_refused(list, count, path));
		snprintf(path, sizeof(path), "%s%s", ways[i], "gid_attrs/types/2");
		assert_true(vb_sysfs_is_refused(list, count, path));
		snprintf(path, sizeof(path), "%s%s", ways[i], "gid_attrs/types/16");
		assert_false(vb_sysfs_is_refused(list, count, path)); /* there is none */
		snprintf(path, sizeof(path), "%s%s", ways[i], "gid_attrs/other/2");
		assert_false(vb_sysfs_is_refused(list, count, path));
	}
	assert_int_equal(
		vb_sysfs_value(list, count, "/sys/class/infiniband/verbena2/ports/1/state", text),
		-ENOENT);
	assert_int_equal(vb_sysfs_value(list, count, "/sys/class/infiniband/verbena1", text),
			 -ENOENT);
	assert_int_equal(vb_sysfs_value(list, count, "/ports/1/state", text), -ENOENT);
}

#define PORT(n) "sys/class/infiniband/verbena" n "/ports/1/"

static void test_refreshing_writes_what_moved(void **state)
{
	static const char *const counted[] = {PORT("0") "counters/port_xmit_packets",
					      PORT("0") "hw_counters/sent_pkts"};
	static const char *const still[] = {PORT("0") "counters/port_rcv_packets",
					    PORT("0") "state",
					    PORT("1") "counters/port_xmit_packets"};
	struct vb_sysfs_seen *seen = vb_sysfs_seen_create(count);
	char folder[64], text[VB_SYSFS_TEXT_MAX];
	int root = make_root(folder);
	struct vb_engine *engine;
	ino_t before[3];

	assert_int_equal(vb_engine_get(list[0], &engine), 0);
	assert_int_equal(vb_sysfs_write(root, list, count), 0);
	assert_int_equal(vb_sysfs_refresh(root, list, count, seen), 0);
	for (size_t i = 0; i < VB_ARRAY_SIZE(still); i++)
		before[i] = inode_of(root, still[i]);
	assert_true(vb_engine_enter(engine));
	engine->traffic.counted[VB_TRAFFIC_TX_PACKETS] += 12345;
	vb_engine_leave(engine);
	assert_int_equal(vb_sysfs_refresh(root, list, count, seen), 0);
	for (size_t i = 0; i < VB_ARRAY_SIZE(counted); i++) {
		read_file(root, counted[i], text);
		assert_string_equal(text, "12345\n");
	}
	for (size_t i = 0; i < VB_ARRAY_SIZE(still); i++)
		assert_int_equal(inode_of(root, still[i]), before[i]);
	vb_engine_put(engine);
	/* the last process of a host takes what was counted with it */
	assert_int_equal(vb_sysfs_refresh(root, list, count, seen), 0);
	read_file(root, counted[0], text);
	assert_string_equal(text, "0\n");
	vb_sysfs_seen_destroy(seen);
	remove_root(root, folder);
}

/* --- sharing ----------------------------------------------------------------------------- */

/* What a child does: it looks, again and again, and is told apart by its exit status. */
static _Noreturn void look_often(void)
{
	char path[PATH_MAX];

	for (int i = 0; i < 50; i++) {
		const char *tree = vb_sysfs_shared();

		if (!tree)
			_exit(1);
		snprintf(path, sizeof(path), "%s/%s", tree, PORT("1") "rate");
		if (access(path, R_OK) != 0)
			_exit(2);
	}
	exit(0); /* which lets go of the tree */
}

static pid_t start_child(void)
{
	pid_t pid = fork();

	if (pid == 0)
		look_often();
	assert_true(pid > 0);
	return pid;
}

/* Whoever comes, goes or is killed: each process that looks finds a whole tree. */
static void test_processes_come_and_go(void **state)
{
	char path[PATH_MAX];
	int ended = 0, killed = 0;

	for (int round = 0; round < 20; round++) {
		pid_t children[3];

		for (int i = 0; i < 3; i++)
			children[i] = start_child();
		usleep((useconds_t)(round * 97 % 40) * 100); /* killed at different moments */
		kill(children[0], SIGKILL);
		for (int i = 0; i < 3; i++) {
			int status;

			assert_int_equal(waitpid(children[i], &status, 0), children[i]);
			killed += WIFSIGNALED(status);
			ended += WIFEXITED(status);
			if (WIFEXITED(status))
				assert_int_equal(WEXITSTATUS(status), 0);
		}
	}
	assert_true(ended >= 40 && ended + killed == 60);
	/* and the last look takes away what they left */
	assert_non_null(vb_sysfs_shared());
	snprintf(path, sizeof(path), "%s", vb_sysfs_shared());
	assert_int_equal(access(path, R_OK), 0);
}

/* A program may close all descriptors behind our back; another process may then take the tree away.
 */
static void test_a_descriptor_that_was_closed(void **state)
{
	const char *tree = vb_sysfs_shared();
	char before[PATH_MAX];
	struct stat status;
	bool closed = false;

	assert_non_null(tree);
	assert_int_equal(stat(tree, &status), 0);
	for (int fd = 3; fd < 64; fd++) {
		struct stat of_fd;

		if (fstat(fd, &of_fd) == 0 && of_fd.st_ino == status.st_ino &&
		    of_fd.st_dev == status.st_dev)
			closed = close(fd) == 0;
	}
	assert_true(closed);
	strcpy(before, tree);
	assert_int_equal(system("true"), 0);
	tree = vb_sysfs_shared();
	assert_string_equal(tree, before); /* what they say is the same */
	assert_int_equal(access(tree, R_OK), 0);
}

static int set_up(void **state)
{
	char hosts[64];
	unsigned int high = 64 + (unsigned int)getpid() / 256 % 64,
		     low = (unsigned int)getpid() % 256;

	snprintf(hosts, sizeof(hosts), "127.%u.%u.14,127.%u.%u.15", high, low, high, low);
	setenv("VERBENA_ADDR", hosts, 1);
	count = vb_host_devices(&list);
	return count == 2 ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_described_is_written),
		cmocka_unit_test(test_values_by_any_way),
		cmocka_unit_test(test_refreshing_writes_what_moved),
		cmocka_unit_test(test_processes_come_and_go),
		cmocka_unit_test(test_a_descriptor_that_was_closed),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
