/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mpi_check.c - a small MPI program whose results can be told beforehand: point to point,
 * one-sided, bcast, allreduce and alltoall, from a few bytes to more than any MPI sends eagerly.
 *
 * Built with the compiler wrapper of each MPI. Every rank checks all that it gets; the first says
 * how many checks were made.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST (1 << 18) /* elements: 1 MiB of int32_t */

static int rank, ranks;
static long checks;

static void check(int32_t is, int32_t should_be, const char *what, int count, int i)
{
	if (is != should_be) {
		fprintf(stderr, "rank %d: %s of %d: element %d is %d, not %d\n", rank, what, count,
			i, is, should_be);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	checks++;
}

/* What rank `from` sends to rank `to` as element i. */
static int32_t value(int from, int to, int i)
{
	return (int32_t)(((uint32_t)from * 1000003u) ^ ((uint32_t)to * 65537u) ^ (uint32_t)i);
}

static int32_t *vector(int count)
{
	int32_t *v = calloc((size_t)count, sizeof(*v));

	if (!v)
		MPI_Abort(MPI_COMM_WORLD, 2);
	return v;
}

/* Everybody to everybody, all at once; the messages of one pair in two sizes, which must not
 * overtake. */
static void point_to_point(int count)
{
	int32_t *out = vector(count * ranks), *in = vector(count * ranks);
	MPI_Request *requests = calloc((size_t)ranks * 2, sizeof(*requests));
	MPI_Status *statuses = calloc((size_t)ranks * 2, sizeof(*statuses));

	if (!requests || !statuses)
		MPI_Abort(MPI_COMM_WORLD, 2);

	for (int peer = 0; peer < ranks; peer++) {
		for (int i = 0; i < count; i++)
			out[peer * count + i] = value(rank, peer, i);
		MPI_Irecv(in + peer * count, count, MPI_INT32_T, peer, count, MPI_COMM_WORLD,
			  &requests[peer]);
	}
	for (int peer = 0; peer < ranks; peer++)
		MPI_Isend(out + peer * count, count, MPI_INT32_T, peer, count, MPI_COMM_WORLD,
			  &requests[ranks + peer]);
	MPI_Waitall(2 * ranks, requests, statuses);
	for (int peer = 0; peer < ranks; peer++)
		for (int i = 0; i < count; i++)
			check(in[peer * count + i], value(peer, rank, i), "sendrecv", count, i);
	free(statuses);
	free(requests);
	free(in);
	free(out);
}

static void bcast(int count)
{
	int32_t *v = vector(count);

	for (int root = 0; root < ranks; root++) {
		for (int i = 0; i < count; i++)
			v[i] = rank == root ? value(root, 77, i) : -1;
		MPI_Bcast(v, count, MPI_INT32_T, root, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			check(v[i], value(root, 77, i), "bcast", count, i);
	}
	free(v);
}

static void allreduce(int count)
{
	int32_t *in = vector(count), *out = vector(count);

	for (int i = 0; i < count; i++)
		in[i] = i + rank;
	MPI_Allreduce(in, out, count, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		check(out[i], ranks * i + ranks * (ranks - 1) / 2, "allreduce", count, i);
	free(out);
	free(in);
}

static void alltoall(int count)
{
	int32_t *in = vector(count * ranks), *out = vector(count * ranks);

	for (int peer = 0; peer < ranks; peer++)
		for (int i = 0; i < count; i++)
			in[peer * count + i] = value(rank, peer, i);
	MPI_Alltoall(in, count, MPI_INT32_T, out, count, MPI_INT32_T, MPI_COMM_WORLD);
	for (int peer = 0; peer < ranks; peer++)
		for (int i = 0; i < count; i++)
			check(out[peer * count + i], value(peer, rank, i), "alltoall", count, i);
	free(out);
	free(in);
}

/* Each puts into the next one's window, and all add to a counter of the first. */
static void one_sided(int count)
{
	int32_t *memory = vector(count + 1), *v = vector(count), one = 1;
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	MPI_Win window;

	MPI_Win_create(memory, (MPI_Aint)(sizeof(*memory) * (size_t)(count + 1)), sizeof(*memory),
		       MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	for (int i = 0; i < count; i++)
		v[i] = value(rank, next, i);
	MPI_Win_fence(0, window);
	MPI_Put(v, count, MPI_INT32_T, next, 0, count, MPI_INT32_T, window);
	for (int i = 0; i < 10; i++)
		MPI_Accumulate(&one, 1, MPI_INT32_T, 0, count, 1, MPI_INT32_T, MPI_SUM, window);
	MPI_Win_fence(0, window);
	for (int i = 0; i < count; i++)
		check(memory[i], value(before, rank, i), "put", count, i);
	check(memory[count], rank == 0 ? 10 * ranks : 0, "accumulate", count, count);
	MPI_Win_free(&window);
	free(memory);
	free(v);
}

int main(int argc, char **argv)
{
	long total;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int count = 1; count <= LARGEST; count *= 64) {
		point_to_point(count);
		bcast(count);
		allreduce(count);
		alltoall(count);
		one_sided(count);
	}
	MPI_Reduce(&checks, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks, %ld checks\n", ranks, total);
	MPI_Finalize();
	return 0;
}
