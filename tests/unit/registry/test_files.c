/* SPDX-License-Identifier: BSD-2-Clause */
/* test_files.c - files are checked before they are used, and swept when their owner is gone. */
#include "registry_helper.h"

#include <sys/mman.h>

enum { BYTES = 8192 };

/* A ring of ours to peer, published. Returns its descriptor. */
static int make_ring(struct vb_registry *r, uint16_t peer)
{
	uint32_t number;
	int fd = vb_registry_file_create(r, VB_FILE_RING, peer, BYTES, BYTES, &number);

	assert_return_code(fd, -fd);
	assert_int_equal(vb_registry_file_publish(r, VB_FILE_RING, peer, number), 0);
	return fd;
}

static int open_ring(struct vb_registry *r, uint16_t slot, uint16_t peer)
{
	struct vb_file_header header;
	int fd = vb_registry_file_open(r, VB_FILE_RING, slot, peer, BYTES, false, &header);

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static void a_file_is_found_under_its_name_and_checked(void **state)
{
	struct in6_addr address = test_address(20);
	struct vb_file_header header, bad;
	struct vb_registry *r;
	char path[200], dir[128];
	uint32_t number;
	int fd, raw;

	assert_int_equal(vb_registry_join(&r, &address), 0);
	test_directory(&address, dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/ring.%u.7", dir, r->slot);

	fd = vb_registry_file_create(r, VB_FILE_RING, 7, BYTES, BYTES, &number);
	assert_return_code(fd, -fd);
	assert_int_equal(open_ring(r, r->slot, 7), -ENOENT); /* not before it is complete */
	assert_int_equal(vb_registry_file_publish(r, VB_FILE_RING, 7, number), 0);
	close(fd);
	fd = vb_registry_file_open(r, VB_FILE_RING, r->slot, 7, BYTES, false, &header);
	assert_return_code(fd, -fd);
	assert_int_equal(header.instance, r->instance);
	assert_int_equal(header.pid, getpid());
	assert_int_equal(header.slot, r->slot);
	assert_int_equal(header.peer, 7);
	assert_int_equal(header.closed, 0);
	close(fd);
	assert_int_equal(open_ring(r, r->slot, 8), -ENOENT);

	raw = open(path, O_RDWR);
	assert_return_code(raw, errno);
#define REFUSED(field, value)                                                                      \
	do {                                                                                       \
		bad = header;                                                                      \
		bad.field = (value);                                                               \
		assert_int_equal(pwrite(raw, &bad, sizeof(bad), 0), (int)sizeof(bad));             \
		assert_int_equal(open_ring(r, r->slot, 7), -EBADMSG);                              \
	} while (0)
	REFUSED(magic, 0);
	REFUSED(version, 2);
	REFUSED(kind, VB_FILE_BELL);
	REFUSED(bytes, BYTES * 2);
	REFUSED(slot, (uint16_t)(r->slot ^ 1));
	REFUSED(peer, 8);
	assert_int_equal(pwrite(raw, &header, sizeof(header), 0), (int)sizeof(header));
	assert_int_equal(open_ring(r, r->slot, 7), 0);
	assert_return_code(ftruncate(raw, BYTES - 1), errno);
	assert_int_equal(open_ring(r, r->slot, 7), -EBADMSG);
	assert_return_code(ftruncate(raw, BYTES + 1), errno);
	assert_int_equal(open_ring(r, r->slot, 7), -EBADMSG);
	assert_return_code(ftruncate(raw, 0), errno);
	assert_int_equal(open_ring(r, r->slot, 7), -EBADMSG);
	close(raw);

	/* What is no regular file does not hang us either. */
	assert_return_code(unlink(path), errno);
	assert_return_code(mkfifo(path, 0600), errno);
	assert_true(open_ring(r, r->slot, 7) < 0);
	assert_return_code(unlink(path), errno);
	assert_return_code(symlink("reg", path), errno);
	assert_int_equal(open_ring(r, r->slot, 7), -ELOOP);
	assert_return_code(unlink(path), errno);
	vb_registry_leave(r);
}

static void a_file_that_shrank_is_not_mapped(void **state)
{
	struct in6_addr address = test_address(21);
	struct vb_registry *r;
	void *map;
	int fd;

	assert_int_equal(vb_registry_join(&r, &address), 0);
	fd = make_ring(r, 7);
	assert_int_equal(vb_file_map(fd, BYTES, false, &map), 0);
	munmap(map, BYTES);
	assert_return_code(ftruncate(fd, 4096), errno);
	assert_int_equal(vb_file_map(fd, BYTES, false, &map), -EBADMSG);
	close(fd);
	vb_registry_leave(r);
}

static void reserving_keeps_to_the_segment(void **state)
{
	struct in6_addr address = test_address(22);
	struct vb_registry *r;

	assert_int_equal(vb_registry_join(&r, &address), 0);
	assert_int_equal(vb_registry_reserve(r, VB_SEGMENT_BYTES - 4096, 4096), 0);
	assert_int_equal(vb_registry_reserve(r, VB_SEGMENT_BYTES - 4096, 4097), -EINVAL);
	assert_int_equal(vb_registry_reserve(r, SIZE_MAX, 2), -EINVAL);
	((char *)vb_registry_segment(r))[VB_SEGMENT_BYTES - 1] = 1;
	vb_registry_leave(r);
}

/* Makes rings to the slot it is told, and an unfinished file, and waits for its death. */
static void maker(int fd, void *arg)
{
	struct vb_registry *r;
	uint16_t peer[2];
	uint32_t number;

	if (vb_registry_join(&r, arg))
		_exit(1);
	test_send(fd, &r->slot, sizeof(r->slot));
	if (!test_receive(fd, peer, sizeof(peer)))
		_exit(2);
	(void)make_ring(r, peer[0]);
	(void)make_ring(r, peer[1]);
	if (vb_registry_file_create(r, VB_FILE_BELL, 0, BYTES, BYTES, &number) < 0)
		_exit(3);
	test_send(fd, &number, sizeof(number));
	for (;;)
		pause();
}

static void sweeps_spare_only_what_is_on_its_way_to_the_living(void **state)
{
	struct in6_addr address = test_address(23);
	struct vb_registry *r;
	struct vb_file_header header;
	char name[4][40], path[200], dir[128];
	struct test_child child;
	uint16_t slot, peer[2];
	uint32_t number;
	int fd, status;
	void *map;
	pid_t pid;

	assert_int_equal(vb_registry_join(&r, &address), 0);
	child = test_fork(maker, &address);
	assert_true(test_receive(child.fd, &slot, sizeof(slot)));
	peer[0] = r->slot;
	peer[1] = 509;
	while (peer[1] == slot || peer[1] == r->slot)
		peer[1]--;
	test_send(child.fd, peer, sizeof(peer));
	assert_true(test_receive(child.fd, &number, sizeof(number)));
	snprintf(name[0], sizeof(name[0]), "ring.%u.%u", slot, peer[0]);
	snprintf(name[1], sizeof(name[1]), "ring.%u.%u", slot, peer[1]);
	snprintf(name[2], sizeof(name[2]), "tmp.%u.%u", slot, number);
	snprintf(name[3], sizeof(name[3]), "seg.%u", slot);
	fd = vb_registry_file_open(r, VB_FILE_RING, slot, r->slot, BYTES, false, &header);
	assert_return_code(fd, -fd);
	assert_int_equal(vb_file_map(fd, BYTES, false, &map), 0);
	close(fd);
	test_kill(&child);

	/* Names that are none of ours stay. */
	test_directory(&address, dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/notes.%u", dir, slot);
	close(open(path, O_CREAT | O_WRONLY, 0600));

	pid = fork();
	if (pid == 0) {
		struct vb_registry *other;

		_exit(vb_registry_join(&other, &address) ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(test_exists(&address, name[0])); /* we live, and may not have read it */
	assert_false(test_exists(&address, name[1]));
	assert_false(test_exists(&address, name[2]));
	assert_false(test_exists(&address, name[3]));
	assert_int_equal(((struct vb_file_header *)map)->closed, 1); /* but we are told */
	munmap(map, BYTES);
	vb_registry_file_retire(r, slot, header.instance + 1);
	assert_true(test_exists(&address, name[0])); /* another owner's */
	vb_registry_file_retire(r, slot, header.instance);
	assert_false(test_exists(&address, name[0]));
	assert_return_code(unlink(path), errno);
	vb_registry_leave(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_found_under_its_name_and_checked),
		cmocka_unit_test(a_file_that_shrank_is_not_mapped),
		cmocka_unit_test(reserving_keeps_to_the_segment),
		cmocka_unit_test(sweeps_spare_only_what_is_on_its_way_to_the_living),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
