/* SPDX-License-Identifier: BSD-2-Clause */
/* test_join.c - slots are held by one process each, until it leaves or dies. */
#include "registry_helper.h"

#include <sched.h>

/* Joins, says {slot, instance}, then leaves when told 'l', or waits for its death. */
static void member(int fd, void *arg)
{
	const struct in6_addr *address = arg;
	struct vb_registry *r;
	uint64_t said[2];
	char what;

	if (vb_registry_join(&r, address))
		_exit(1);
	said[0] = r->slot;
	said[1] = r->instance;
	test_send(fd, said, sizeof(said));
	if (!test_receive(fd, &what, 1) || what != 'l')
		_exit(2);
	vb_registry_leave(r);
}

static uint64_t start_member(struct test_child *child, struct in6_addr *address, uint64_t *instance)
{
	uint64_t said[2];

	*child = test_fork(member, address);
	assert_true(test_receive(child->fd, said, sizeof(said)));
	if (instance)
		*instance = said[1];
	return said[0];
}

static void each_owner_has_its_own_slot(void **state)
{
	enum { MEMBERS = 24 };
	struct in6_addr address = test_address(0);
	struct test_child child[MEMBERS];
	bool seen[VB_REGISTRY_SLOTS] = {false};
	struct vb_registry *r;
	char dir[128];
	struct stat st;
	int i;

	assert_int_equal(vb_registry_join(&r, &address), 0);
	assert_in_range(r->slot, 1, 510);
	assert_true(r->instance != 0);
	seen[r->slot] = true;
	for (i = 0; i < MEMBERS; i++) {
		uint64_t slot = start_member(&child[i], &address, NULL);

		assert_in_range(slot, 1, 510);
		assert_false(seen[slot]);
		seen[slot] = true;
		assert_true(vb_registry_is_alive(r, (uint16_t)slot));
		assert_int_equal(vb_registry_pid(r, (uint16_t)slot), child[i].pid);
	}
	for (i = 1; i < (int)VB_REGISTRY_SLOTS; i++)
		assert_int_equal(vb_registry_is_alive(r, (uint16_t)i), seen[i]);
	assert_false(vb_registry_is_alive(r, 0));
	assert_false(vb_registry_is_alive(r, 511));
	assert_int_equal(vb_registry_pid(r, 511), 0);
	assert_int_equal(vb_registry_pid(r, r->slot), getpid());

	test_directory(&address, dir, sizeof(dir));
	assert_return_code(lstat(dir, &st), errno);
	assert_int_equal(st.st_mode & 07777, 0700);

	for (i = 0; i < MEMBERS; i++) {
		test_send(child[i].fd, "l", 1);
		assert_int_equal(test_join_child(&child[i]), 0);
	}
	vb_registry_leave(r);
	assert_int_equal(lstat(dir, &st), -1); /* the last one switched off the light */
}

static void a_killed_owner_frees_its_slot_and_the_next_cleans(void **state)
{
	struct in6_addr address = test_address(1);
	struct test_child child, next;
	uint64_t slot, instance, other;
	struct vb_registry *r;
	char name[32];

	assert_int_equal(vb_registry_join(&r, &address), 0);
	slot = start_member(&child, &address, &instance);
	snprintf(name, sizeof(name), "seg.%u", (unsigned int)slot);
	assert_true(test_exists(&address, name));
	test_kill(&child);
	assert_false(vb_registry_is_alive(r, (uint16_t)slot));
	assert_int_equal(vb_registry_pid(r, (uint16_t)slot), 0);
	assert_true(test_exists(&address, name)); /* nobody was there to remove it */
	other = start_member(&next, &address, NULL);
	if (other != slot)
		assert_false(test_exists(&address, name));
	test_send(next.fd, "l", 1);
	assert_int_equal(test_join_child(&next), 0);
	assert_false(test_exists(&address, name));
	vb_registry_leave(r);
}

/* Joins and leaves until it is killed, and counts its turns where all see that slots are exclusive.
 */
static void churn(int fd, void *arg)
{
	struct vb_registry *r;

	test_send(fd, "r", 1);
	for (;;) {
		uint64_t *word;

		if (vb_registry_join(&r, arg))
			_exit(1);
		/* The segment is ours alone: whoever wrote it since the join was a second owner. */
		word = (uint64_t *)((char *)vb_registry_segment(r) + VB_FILE_PAGE);
		if (vb_registry_reserve(r, VB_FILE_PAGE, 8) || *word)
			_exit(2);
		*word = r->instance;
		sched_yield();
		if (*word != r->instance || vb_registry_check(r))
			_exit(3);
		vb_registry_leave(r);
	}
}

/* Nobody comes to the host of the killed one any more; whoever comes to any other cleans up. */
static void a_killed_host_is_cleaned_by_any_other(void **state)
{
	struct in6_addr dead = test_address(11), living = test_address(12), ours = test_address(13);
	struct test_child killed, alive;
	struct vb_registry *r, *other;

	(void)start_member(&killed, &dead, NULL);
	(void)start_member(&alive, &living, NULL);
	assert_int_equal(vb_registry_join(&other, &ours), 0); /* our own one, from before */
	assert_true(test_exists(&dead, "reg"));
	test_kill(&killed);
	ours = test_address(14);
	assert_int_equal(vb_registry_join(&r, &ours), 0);
	/* one look is bounded: where others have left very many hosts it takes more */
	for (int i = 0; i < 64 && test_exists(&dead, "."); i++) {
		vb_registry_leave(r);
		assert_int_equal(vb_registry_join(&r, &ours), 0);
	}
	assert_false(test_exists(&dead, "."));
	assert_true(test_exists(&living, "reg"));
	assert_true(vb_registry_is_alive(r, r->slot));
	/* nobody lost anything: neither the other process nor ourselves */
	test_send(alive.fd, "l", 1);
	assert_int_equal(test_join_child(&alive), 0);
	assert_int_equal(vb_registry_check(other), 0);
	ours = test_address(13);
	(void)start_member(&alive, &ours, NULL);
	assert_true(test_exists(&ours, "reg"));
	test_send(alive.fd, "l", 1);
	assert_int_equal(test_join_child(&alive), 0);
	assert_true(test_exists(&ours, "reg")); /* it was not the last: we hold our slot */
	vb_registry_leave(r);
	vb_registry_leave(other);
	assert_false(test_exists(&ours, "."));
}

/* Of one that was killed between making the directory and making its first file, or whose first
 * file is lost. */
static void a_directory_without_a_table_goes_when_it_is_old(void **state)
{
	const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	struct in6_addr first = test_address(15), second = test_address(16);
	char old[128], young[128], file[160];
	struct vb_registry *r;

	assert_int_equal(vb_registry_join(&r, &first), 0);
	first = test_address(17);
	test_directory(&first, old, sizeof(old));
	first = test_address(18);
	test_directory(&first, young, sizeof(young));
	assert_return_code(mkdir(old, 0700), errno);
	snprintf(file, sizeof(file), "%s/seg.7", old);
	assert_return_code(close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), errno);
	assert_return_code(utimensat(AT_FDCWD, old, long_ago, 0), errno);
	assert_return_code(mkdir(young, 0700), errno);
	vb_registry_leave(r);
	assert_int_equal(vb_registry_join(&r, &second), 0);
	for (int i = 0; i < 64 && access(old, F_OK) == 0; i++) {
		vb_registry_leave(r);
		assert_int_equal(vb_registry_join(&r, &second), 0);
	}
	assert_int_equal(access(old, F_OK), -1);
	assert_int_equal(access(young, F_OK), 0);
	assert_return_code(rmdir(young), errno);
	vb_registry_leave(r);
}

/* Two hosts: those of one come and go, those of the other clean up what they think is dead. */
static void nobody_who_starts_loses_anything_to_those_who_clean(void **state)
{
	enum { WORKERS = 4, KILLS = 40 };
	struct in6_addr address[2] = {test_address(19), test_address(20)};
	struct test_child child[WORKERS];
	unsigned int seed = 21;
	char c;
	int i;

	for (i = 0; i < WORKERS; i++)
		child[i] = test_fork(churn, &address[i % 2]);
	for (i = 0; i < KILLS; i++) {
		int which = (int)(rand_r(&seed) % WORKERS), status;

		assert_true(test_receive(child[which].fd, &c, 1));
		usleep((useconds_t)(rand_r(&seed) % 4000)); /* wherever it is now */
		assert_int_equal(waitpid(child[which].pid, &status, WNOHANG), 0);
		test_kill(&child[which]);
		child[which] = test_fork(churn, &address[which % 2]);
	}
	for (i = 0; i < WORKERS; i++)
		test_kill(&child[i]);
}

static void all_slots_can_be_taken_and_no_more(void **state)
{
	struct in6_addr address = test_address(2);
	struct vb_registry *r;
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 510};
	char dir[128], path[160], made[64];
	struct test_child child;
	uint64_t slot;
	int fd, status;

	/* One process holds all but what the child asks for. */
	test_directory(&address, dir, sizeof(dir));
	assert_int_equal(vb_registry_join(&r, &address), 0);
	vb_registry_leave(r);
	snprintf(path, sizeof(path), "/dev/shm/verbena-%u", (unsigned int)geteuid());
	(void)mkdir(path, 0700);
	/* under another name first: a registry that nobody holds is anybody's to remove */
	snprintf(made, sizeof(made), "/dev/shm/verbena-%u/made-%d", (unsigned int)geteuid(),
		 getpid());
	assert_return_code(mkdir(made, 0700), errno);
	snprintf(path, sizeof(path), "%s/reg", made);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_return_code(fd, errno);
	assert_return_code(fcntl(fd, F_SETLK, &lock), errno);
	assert_return_code(rename(made, dir), errno);
	child = test_fork(member, &address);
	assert_int_equal(test_join_child(&child), 1); /* -ENOSPC */

	lock.l_type = F_UNLCK;
	lock.l_start = 377;
	lock.l_len = 1;
	assert_return_code(fcntl(fd, F_SETLK, &lock), errno);
	slot = start_member(&child, &address, NULL);
	assert_int_equal(slot, 377);
	test_send(child.fd, "l", 1);
	assert_int_equal(test_join_child(&child), 0);
	close(fd);
	/* That one was not the last; the next is. */
	(void)start_member(&child, &address, NULL);
	test_send(child.fd, "l", 1);
	status = test_join_child(&child);
	assert_int_equal(status, 0);
	assert_false(test_exists(&address, "reg"));
}

static void a_process_joins_an_address_once(void **state)
{
	struct in6_addr address = test_address(3), other = test_address(4);
	struct vb_registry *a, *b, *c;

	assert_int_equal(vb_registry_join(&a, &address), 0);
	assert_int_equal(vb_registry_join(&b, &address), 0);
	assert_int_equal(vb_registry_join(&c, &other), 0);
	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, c);
	vb_registry_leave(a);
	assert_true(test_exists(&address, "reg"));
	assert_int_equal(vb_registry_check(b), 0);
	vb_registry_leave(b);
	assert_false(test_exists(&address, "reg"));
	vb_registry_leave(c);
	vb_registry_leave(NULL);
}

static void a_directory_that_others_may_enter_is_refused(void **state)
{
	struct in6_addr address = test_address(5);
	struct vb_registry *r;
	char dir[128];

	assert_int_equal(vb_registry_join(&r, &address), 0);
	test_directory(&address, dir, sizeof(dir));
	vb_registry_leave(r);
	assert_int_equal(vb_registry_join(&r, &address), 0);
	vb_registry_leave(r);

	char parent[64];

	snprintf(parent, sizeof(parent), "/dev/shm/verbena-%u", (unsigned int)geteuid());
	(void)mkdir(parent, 0700);
	assert_return_code(mkdir(dir, 0700), errno);
	assert_return_code(chmod(dir, 0755), errno);
	assert_int_equal(vb_registry_join(&r, &address), -EACCES);
	assert_return_code(rmdir(dir), errno);
	assert_return_code(symlink("/tmp", dir), errno);
	assert_int_equal(vb_registry_join(&r, &address), -EACCES);
	assert_return_code(unlink(dir), errno);
	(void)rmdir(parent);
}

/* Forks a grandchild that lives on, says its pid, and waits to be killed. */
static void forker(int fd, void *arg)
{
	struct vb_registry *r;
	uint64_t said[2];
	pid_t pid;
	char c;

	if (vb_registry_join(&r, arg))
		_exit(1);
	pid = fork();
	if (pid == 0) {
		vb_registry_drop_in_child(r);
		(void)test_receive(fd, &c, 1); /* until the test closes its end */
		_exit(0);
	}
	said[0] = r->slot;
	said[1] = (uint64_t)pid;
	test_send(fd, said, sizeof(said));
	for (;;)
		pause();
}

static void a_forked_child_neither_keeps_nor_frees_the_slot(void **state)
{
	struct in6_addr address = test_address(6);
	struct vb_registry *r, *again;
	struct test_child child;
	uint64_t said[2];
	int status;
	pid_t pid;

	assert_int_equal(vb_registry_join(&r, &address), 0);
	child = test_fork(forker, &address);
	assert_true(test_receive(child.fd, said, sizeof(said)));
	assert_int_equal(vb_registry_pid(r, (uint16_t)said[0]), child.pid);
	assert_return_code(kill(child.pid, SIGKILL), errno);
	assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
	assert_return_code(kill((pid_t)said[1], 0), errno); /* the grandchild lives */
	assert_false(vb_registry_is_alive(r, (uint16_t)said[0]));
	close(child.fd);

	/* The child of a member joins for itself, and drops what it inherited: the parent keeps its
	 * slot. */
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (vb_registry_join(&again, &address) || again == r || again->slot == r->slot)
			_exit(1);
		vb_registry_drop_in_child(r);
		vb_registry_leave(again);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	pid = fork();
	if (pid == 0) {
		struct vb_registry *probe;

		if (vb_registry_join(&probe, &address))
			_exit(1);
		_exit(vb_registry_is_alive(probe, r->slot) ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(vb_registry_check(r), 0);
	vb_registry_leave(r);
}

static void lost_descriptors_and_files_are_noticed(void **state)
{
	struct in6_addr address = test_address(7);
	char dir[128], path[160];
	struct vb_registry *r;
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		int fd;

		if (vb_registry_join(&r, &address) || vb_registry_check(r))
			_exit(1);
		for (fd = 3; fd < 100; fd++)
			close(fd);
		if (vb_registry_check(r) != -EBADF)
			_exit(2);
		vb_registry_leave(r);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(vb_registry_join(&r, &address), 0);
	test_directory(&address, dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/reg", dir);
	assert_return_code(unlink(path), errno);
	assert_int_equal(vb_registry_check(r), -ESTALE);
	vb_registry_leave(r);
	(void)rmdir(dir);
}

/* Adds to a counter in the shared table, badly, so that only the lock makes it right. */
static void adder(int fd, void *arg)
{
	struct vb_registry *r;
	int i;

	if (vb_registry_join(&r, arg))
		_exit(1);
	test_send(fd, "r", 1);
	for (i = 0; i < 2000; i++) {
		volatile uint32_t *word = &r->shared->port[0].generation;
		uint32_t value;

		if (vb_registry_lock(r))
			_exit(2);
		value = *word;
		if (i % 64 == 0)
			sched_yield();
		*word = value + 1;
		vb_registry_unlock(r);
	}
	vb_registry_leave(r);
}

static void the_lock_holds_one_process_at_a_time(void **state)
{
	struct in6_addr address = test_address(8);
	struct test_child child[3];
	struct vb_registry *r;
	char c;
	int i;

	assert_int_equal(vb_registry_join(&r, &address), 0);
	for (i = 0; i < 3; i++)
		child[i] = test_fork(adder, &address);
	for (i = 0; i < 3; i++)
		assert_true(test_receive(child[i].fd, &c, 1));
	for (i = 0; i < 3; i++)
		assert_int_equal(test_join_child(&child[i]), 0);
	assert_int_equal(r->shared->port[0].generation, 6000);
	vb_registry_leave(r);
}

/* A process that dies with the lock held gives it back. */
static void lock_and_die(int fd, void *arg)
{
	struct vb_registry *r;

	if (vb_registry_join(&r, arg) || vb_registry_lock(r))
		_exit(1);
	test_send(fd, "r", 1);
	for (;;)
		pause();
}

static void a_dead_holder_of_the_lock_stops_nobody(void **state)
{
	struct in6_addr address = test_address(9);
	struct test_child child;
	struct vb_registry *r;
	char c;

	child = test_fork(lock_and_die, &address);
	assert_true(test_receive(child.fd, &c, 1));
	test_kill(&child);
	assert_int_equal(vb_registry_join(&r, &address), 0);
	assert_int_equal(vb_registry_lock(r), 0);
	vb_registry_unlock(r);
	vb_registry_leave(r);
}

static void a_storm_of_kills_leaves_a_clean_registry(void **state)
{
	enum { WORKERS = 6, KILLS = 80 };
	struct in6_addr address = test_address(10);
	struct test_child child[WORKERS];
	struct vb_registry *r;
	unsigned int seed = 20;
	char dir[128], c;
	struct stat st;
	int i;

	for (i = 0; i < WORKERS; i++)
		child[i] = test_fork(churn, &address);
	for (i = 0; i < KILLS; i++) {
		struct test_child *victim = &child[rand_r(&seed) % WORKERS];
		int status;

		assert_true(test_receive(victim->fd, &c, 1));
		usleep((useconds_t)(rand_r(&seed) % 4000)); /* wherever it is now */
		assert_int_equal(waitpid(victim->pid, &status, WNOHANG), 0); /* no complaint */
		test_kill(victim);
		*victim = test_fork(churn, &address);
	}
	for (i = 0; i < WORKERS; i++)
		test_kill(&child[i]);
	assert_int_equal(vb_registry_join(&r, &address), 0);
	vb_registry_leave(r);
	test_directory(&address, dir, sizeof(dir));
	assert_int_equal(lstat(dir, &st), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_owner_has_its_own_slot),
		cmocka_unit_test(a_killed_owner_frees_its_slot_and_the_next_cleans),
		cmocka_unit_test(a_killed_host_is_cleaned_by_any_other),
		cmocka_unit_test(a_directory_without_a_table_goes_when_it_is_old),
		cmocka_unit_test(nobody_who_starts_loses_anything_to_those_who_clean),
		cmocka_unit_test(all_slots_can_be_taken_and_no_more),
		cmocka_unit_test(a_process_joins_an_address_once),
		cmocka_unit_test(a_directory_that_others_may_enter_is_refused),
		cmocka_unit_test(a_forked_child_neither_keeps_nor_frees_the_slot),
		cmocka_unit_test(lost_descriptors_and_files_are_noticed),
		cmocka_unit_test(the_lock_holds_one_process_at_a_time),
		cmocka_unit_test(a_dead_holder_of_the_lock_stops_nobody),
		cmocka_unit_test(a_storm_of_kills_leaves_a_clean_registry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
