/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rpma_check.c - a server and a client over librpma: the client writes into the server's memory,
 * writes one word atomically, flushes, reads all back, and sends; the server looks at what came,
 * and answers.
 *
 *      rpma_check server|client ADDRESS PORT
 */
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (256u << 10) /* what is written; the atomic word stands behind */
#define WORD UINT64_C(0x0123456789abcdef)
#define IMM 77u
#define MESSAGE 64u

enum { RECEIVE = 1, WRITE, FLUSH, READ, SEND }; /* contexts of the operations */

struct end {
	struct rpma_peer *peer;
	struct rpma_conn *conn;
	struct rpma_mr_local *memory_mr, *message_mr;
	unsigned char *memory; /* BYTES, a word, and at the client BYTES more that are read back */
	unsigned char *message;
};

static void check(int rc, const char *what)
{
	if (rc) {
		fprintf(stderr, "%s: %s\n", what, rpma_err_2str(rc));
		exit(1);
	}
}

static void expect(uint64_t is, uint64_t should_be, const char *what)
{
	if (is != should_be) {
		fprintf(stderr, "%s: %" PRIu64 ", not %" PRIu64 "\n", what, is, should_be);
		exit(1);
	}
}

static unsigned char pattern(size_t i)
{
	return (unsigned char)(i * 7 + (i >> 8));
}

static void expect_pattern(const unsigned char *bytes, const char *what)
{
	for (size_t i = 0; i < BYTES; i++)
		expect(bytes[i], pattern(i), what);
}

static void prepare(struct end *end, const char *address, enum rpma_util_ibv_context_type type)
{
	const size_t size = BYTES * 2 + 4096;
	struct ibv_context *context;

	check(rpma_utils_get_ibv_context(address, type, &context), "get_ibv_context");
	check(rpma_peer_new(context, &end->peer), "peer_new");
	end->memory = aligned_alloc(4096, size);
	end->message = calloc(1, MESSAGE);
	if (!end->memory || !end->message)
		exit(1);
	memset(end->memory, 0, size);
	check(rpma_mr_reg(end->peer, end->memory, size,
			  RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST |
				  RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST |
				  RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
			  &end->memory_mr),
	      "mr_reg");
	check(rpma_mr_reg(end->peer, end->message, MESSAGE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV,
			  &end->message_mr),
	      "mr_reg of the message");
}

static void await_event(struct end *end, enum rpma_conn_event wanted)
{
	enum rpma_conn_event event;

	check(rpma_conn_next_event(end->conn, &event), "conn_next_event");
	expect((uint64_t)event, (uint64_t)wanted, "connection event");
}

static struct ibv_wc await(struct end *end, uint64_t context)
{
	struct rpma_cq *cq;
	struct ibv_wc wc;
	int rc;

	check(rpma_conn_get_cq(end->conn, &cq), "conn_get_cq");
	while ((rc = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
		check(rpma_cq_wait(cq), "cq_wait");
	check(rc, "cq_get_wc");
	expect(wc.status, IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
	expect(wc.wr_id, context, "completion of");
	return wc;
}

static void clean_up(struct end *end)
{
	check(rpma_conn_delete(&end->conn), "conn_delete");
	check(rpma_mr_dereg(&end->memory_mr), "mr_dereg");
	check(rpma_mr_dereg(&end->message_mr), "mr_dereg of the message");
	check(rpma_peer_delete(&end->peer), "peer_delete");
	free(end->memory);
	free(end->message);
}

static void serve(const char *address, const char *port)
{
	struct rpma_conn_private_data data;
	struct rpma_conn_req *request;
	struct rpma_ep *endpoint;
	unsigned char descriptor[64];
	size_t size;
	struct end end;
	struct ibv_wc wc;
	uint64_t word;

	prepare(&end, address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	check(rpma_mr_get_descriptor_size(end.memory_mr, &size), "get_descriptor_size");
	if (size > sizeof(descriptor))
		exit(1);
	check(rpma_mr_get_descriptor(end.memory_mr, descriptor), "get_descriptor");
	data = (struct rpma_conn_private_data){descriptor, (uint8_t)size};
	check(rpma_ep_listen(end.peer, address, port, &endpoint), "ep_listen");
	check(rpma_ep_next_conn_req(endpoint, NULL, &request), "ep_next_conn_req");
	check(rpma_conn_req_recv(request, end.message_mr, 0, MESSAGE, (void *)RECEIVE), "recv");
	check(rpma_conn_req_connect(&request, &data, &end.conn), "conn_req_connect");
	await_event(&end, RPMA_CONN_ESTABLISHED);

	wc = await(&end, RECEIVE);
	expect(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM, "immediate data");
	expect(be32toh(wc.imm_data), IMM, "immediate data");
	expect(memcmp(end.message, "written", 8), 0, "message");
	expect_pattern(end.memory, "what the client wrote");
	memcpy(&word, end.memory + BYTES, sizeof(word));
	expect(word, WORD, "the atomic word");
	memcpy(end.message, "seen", 5);
	check(rpma_send(end.conn, end.message_mr, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS,
			(void *)SEND),
	      "send");
	await(&end, SEND);
	await_event(&end, RPMA_CONN_CLOSED);
	check(rpma_conn_disconnect(end.conn), "conn_disconnect");
	check(rpma_ep_shutdown(&endpoint), "ep_shutdown");
	clean_up(&end);
}

static void write_and_read(struct end *end, struct rpma_mr_remote *remote)
{
	const uint64_t word = WORD;

	for (size_t i = 0; i < BYTES; i++)
		end->memory[i] = pattern(i);
	check(rpma_write(end->conn, remote, 0, end->memory_mr, 0, BYTES, RPMA_F_COMPLETION_ON_ERROR,
			 (void *)WRITE),
	      "write");
	check(rpma_atomic_write(end->conn, remote, BYTES, (const char *)&word,
				RPMA_F_COMPLETION_ON_ERROR, (void *)WRITE),
	      "atomic_write");
	check(rpma_flush(end->conn, remote, 0, BYTES, RPMA_FLUSH_TYPE_VISIBILITY,
			 RPMA_F_COMPLETION_ALWAYS, (void *)FLUSH),
	      "flush");
	await(end, FLUSH);
	check(rpma_read(end->conn, end->memory_mr, BYTES, remote, 0, BYTES,
			RPMA_F_COMPLETION_ALWAYS, (void *)READ),
	      "read");
	await(end, READ);
	expect_pattern(end->memory + BYTES, "what is read back");
}

static void connect_and_check(const char *address, const char *port)
{
	struct rpma_conn_private_data data;
	struct rpma_conn_req *request;
	struct rpma_mr_remote *remote;
	struct rpma_mr_local *out;
	unsigned char text[MESSAGE] = "written";
	struct end end;

	prepare(&end, address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	check(rpma_mr_reg(end.peer, text, MESSAGE, RPMA_MR_USAGE_SEND, &out), "mr_reg of the text");
	check(rpma_conn_req_new(end.peer, address, port, NULL, &request), "conn_req_new");
	check(rpma_conn_req_recv(request, end.message_mr, 0, MESSAGE, (void *)RECEIVE), "recv");
	check(rpma_conn_req_connect(&request, NULL, &end.conn), "conn_req_connect");
	await_event(&end, RPMA_CONN_ESTABLISHED);
	check(rpma_conn_get_private_data(end.conn, &data), "get_private_data");
	check(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote), "from_descriptor");

	write_and_read(&end, remote);
	check(rpma_send_with_imm(end.conn, out, 0, MESSAGE, RPMA_F_COMPLETION_ON_ERROR, IMM,
				 (void *)SEND),
	      "send_with_imm");
	await(&end, RECEIVE);
	expect(memcmp(end.message, "seen", 5), 0, "the server's message");
	check(rpma_conn_disconnect(end.conn), "conn_disconnect");
	await_event(&end, RPMA_CONN_CLOSED);
	check(rpma_mr_remote_delete(&remote), "mr_remote_delete");
	check(rpma_mr_dereg(&out), "mr_dereg of the text");
	clean_up(&end);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	if (strcmp(argv[1], "server") == 0)
		serve(argv[2], argv[3]);
	else
		connect_and_check(argv[2], argv[3]);
	puts("all checked");
	return 0;
}
