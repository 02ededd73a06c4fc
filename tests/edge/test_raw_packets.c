/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_raw_packets.c - raw packet queue pairs, rules and work queues, in a network namespace of the
 * test's own:
 *
 *      va 10.7.0.1 ---veth--- vb 10.7.1.2        lo 127.9.9.9
 *
 * wire: a sends on va, b receives on vb. local: both are on va, and what a sends comes to b as
 * through an adapter's internal switch. Expected values are those of the man pages, the RFCs, and
 * of what Linux answers.
 */
#define _GNU_SOURCE
#include "edge.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROOM 4096u /* of one receive */
#define RECEIVES 64u

static struct ibv_device **devices;
static bool wire;

/* --- the namespace ----------------------------------------------------------------------- */

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

/* Who is not root keeps no capabilities over exec, but for ambient ones: ip(8) needs it. */
static void lend_net_admin(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) != 0)
		return;
	data[0].inheritable |= 1u << CAP_NET_ADMIN;
	if (syscall(SYS_capset, &header, data) == 0)
		prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0);
}

static void enter_namespace(void)
{
	const uid_t uid = getuid();
	const gid_t gid = getgid();
	char map[64];

	if (unshare(CLONE_NEWNET | (uid ? CLONE_NEWUSER : 0)) != 0) {
		/* Raw packets need CAP_NET_RAW, which one has in a namespace of one's own; some
		 * containers forbid these to everybody. */
		perror("skipped: neither root nor unprivileged user namespaces: unshare");
		exit(77);
	}
	if (uid) {
		write_file("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "%u %u 1", uid, uid);
		write_file("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "%u %u 1", gid, gid);
		write_file("/proc/self/gid_map", map);
		lend_net_admin();
	}
	/* Else the kernel would say things on the wire by itself. */
	write_file("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
	write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
	if (system("ip link set lo up && ip link add va type veth peer name vb && "
		   "ip link set va arp off && ip link set vb arp off && "
		   "ip addr add 10.7.0.1/24 dev va && ip addr add 10.7.1.2/24 dev vb && "
		   "ip link set va up && ip link set vb up") != 0)
		exit(1);
	setenv("VERBENA_ADDR", "10.7.0.1,10.7.1.2,127.9.9.9", 1);
}

static void read_mac(const char *interface, uint8_t mac[6])
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	strcpy(request.ifr_name, interface);
	assert_int_equal(ioctl(fd, SIOCGIFHWADDR, &request), 0);
	memcpy(mac, request.ifr_hwaddr.sa_data, 6);
	close(fd);
}

/* --- ends -------------------------------------------------------------------------------- */

/* A queue pair in RTS with RECEIVES receives posted, each ROOM bytes from the buffer's start on. */
struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffer;
	size_t bytes;
};

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

static int post_recv(struct end *e, uint64_t wr_id, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)e->buffer + wr_id * ROOM, length, e->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return ibv_post_recv(e->qp, &wr, &bad);
}

static void open_base(struct end *e, struct ibv_device *device)
{
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 512,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_CVLAN,
	};

	*e = (struct end){.bytes = (size_t)(RECEIVES + 16) * ROOM};
	e->context = ibv_open_device(device);
	assert_non_null(e->context);
	e->pd = ibv_alloc_pd(e->context);
	e->cq = ibv_create_cq_ex(e->context, &cq);
	assert_non_null(e->cq);
	e->buffer =
		mmap(NULL, e->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(e->buffer != MAP_FAILED);
	e->mr = ibv_reg_mr(e->pd, e->buffer, e->bytes, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(e->mr);
}

static struct ibv_qp_init_attr_ex init_of(const struct end *e)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = ibv_cq_ex_to_cq(e->cq),
		.recv_cq = ibv_cq_ex_to_cq(e->cq),
		.cap = {64, RECEIVES, 4, 2, 128},
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = e->pd,
		.max_tso_header = 64,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO,
	};
}

static void open_with(struct end *e, struct ibv_device *device, uint32_t create_flags)
{
	struct ibv_qp_init_attr_ex init;

	open_base(e, device);
	init = init_of(e);
	init.create_flags = create_flags;
	init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	e->qp = ibv_create_qp_ex(e->context, &init);
	assert_non_null(e->qp);
	to_rts(e->qp);
	for (uint32_t i = 0; i < RECEIVES; i++)
		assert_int_equal(post_recv(e, i, ROOM), 0);
}

static struct ibv_device *device_of_b(void)
{
	return devices[wire ? 1 : 0];
}

static void open_end(struct end *e, struct ibv_device *device)
{
	open_with(e, device, 0);
}

static void close_end(struct end *e)
{
	if (e->qp)
		assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(e->cq)), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->context), 0);
	munmap(e->buffer, e->bytes);
}

struct seen {
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint64_t wr_id;
	uint32_t bytes, tag, qpn;
	unsigned int flags;
	uint16_t cvlan;
};

static bool poll_once(struct end *e, struct seen *seen)
{
	struct ibv_poll_cq_attr attr = {0};
	int rc = ibv_start_poll(e->cq, &attr);

	if (rc == ENOENT)
		return false;
	assert_int_equal(rc, 0);
	*seen = (struct seen){
		.status = e->cq->status,
		.opcode = ibv_wc_read_opcode(e->cq),
		.wr_id = e->cq->wr_id,
		.bytes = ibv_wc_read_byte_len(e->cq),
		.tag = ibv_wc_read_flow_tag(e->cq),
		.qpn = ibv_wc_read_qp_num(e->cq),
		.flags = ibv_wc_read_wc_flags(e->cq),
		.cvlan = ibv_wc_read_cvlan(e->cq),
	};
	ibv_end_poll(e->cq);
	return true;
}

static struct seen next(struct end *e)
{
	const double until = edge_seconds() + 20;
	struct seen seen;

	while (!poll_once(e, &seen))
		assert_true(edge_seconds() < until);
	return seen;
}

/* The next receive; where it lies is its wr_id * ROOM. */
static struct seen receive(struct end *e)
{
	struct seen seen = next(e);

	assert_int_equal(seen.status, IBV_WC_SUCCESS);
	assert_int_equal(seen.opcode, IBV_WC_RECV);
	return seen;
}

static void expect_nothing(struct end *e)
{
	const double until = edge_seconds() + 0.02;
	struct seen seen;

	while (edge_seconds() < until)
		assert_false(poll_once(e, &seen));
}

static const uint8_t *frame_at(const struct end *e, const struct seen *seen)
{
	return e->buffer + seen->wr_id * ROOM;
}

/* --- frames ------------------------------------------------------------------------------ */

static const uint8_t group[6] = {0x01, 0x50, 0x56, 0x19, 0x20, 0xa7};
static const uint8_t source[6] = {0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8};

static void put16(uint8_t *at, unsigned int value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static unsigned int get16(const uint8_t *at)
{
	return (unsigned int)at[0] << 8 | at[1];
}

static uint32_t get32(const uint8_t *at)
{
	return get16(at) << 16 | get16(at + 2);
}

/* Ethernet, IPv4 1.1.1.1 to 2.2.2.2, UDP 1234 to the port, a payload; no checksums. */
static uint32_t make_udp(uint8_t *at, const uint8_t dst[6], unsigned int port, uint32_t payload)
{
	memset(at, 0, 42);
	memcpy(at, dst, 6);
	memcpy(at + 6, source, 6);
	put16(at + 12, 0x0800);
	at[14] = 0x45;
	put16(at + 16, 28 + payload);
	put16(at + 20, 0x4000);
	at[22] = 64;
	at[23] = 17;
	memset(at + 26, 1, 4);
	memset(at + 30, 2, 4);
	put16(at + 34, 1234);
	put16(at + 36, port);
	put16(at + 38, 8 + payload);
	for (uint32_t i = 0; i < payload; i++)
		at[42 + i] = (uint8_t)(i * 3 + 1);
	return 42 + payload;
}

/* Where a puts what it sends: behind its receives. */
static uint8_t *scratch(const struct end *e)
{
	return e->buffer + RECEIVES * ROOM;
}

static int post_frame(struct end *e, uint32_t bytes, unsigned int flags)
{
	struct ibv_sge sge = {(uintptr_t)scratch(e), bytes, e->mr->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = 999,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED | flags,
				 };

	return ibv_post_send(e->qp, &wr, &bad);
}

/* Sends what lies in the scratch, and waits for its completion, which comes before what the same
 * frame may bring back. */
static void send_frame(struct end *e, uint32_t bytes, unsigned int flags)
{
	struct seen seen;

	assert_int_equal(post_frame(e, bytes, flags), 0);
	seen = next(e);
	assert_int_equal(seen.status, IBV_WC_SUCCESS);
	assert_int_equal(seen.opcode, IBV_WC_SEND);
	assert_int_equal(seen.wr_id, 999);
}

static void send_udp(struct end *e, const uint8_t dst[6], unsigned int port)
{
	send_frame(e, make_udp(scratch(e), dst, port, 100), 0);
}

/* --- rules ------------------------------------------------------------------------------- */

struct rule {
	struct ibv_flow_attr attr;
	uint8_t specs[512];
	size_t used;
};

static struct rule rule_of(enum ibv_flow_attr_type type)
{
	return (struct rule){.attr = {.type = type, .port = 1}};
}

static void add_spec(struct rule *r, const void *spec, size_t bytes)
{
	memcpy(r->specs + r->used, spec, bytes);
	r->used += bytes;
	r->attr.num_of_specs++;
}

static void add_eth(struct rule *r, const uint8_t dst[6], unsigned int vlan)
{
	struct ibv_flow_spec_eth spec = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(spec)};

	memcpy(spec.val.dst_mac, dst, 6);
	memset(spec.mask.dst_mac, 0xff, 6);
	if (vlan) {
		spec.val.vlan_tag = htons((uint16_t)vlan);
		spec.mask.vlan_tag = htons(0xfff);
	}
	add_spec(r, &spec, sizeof(spec));
}

static void add_port(struct rule *r, enum ibv_flow_spec_type type, unsigned int port)
{
	struct ibv_flow_spec_tcp_udp spec = {.type = type, .size = sizeof(spec)};

	spec.val.dst_port = htons((uint16_t)port);
	spec.mask.dst_port = 0xffff;
	add_spec(r, &spec, sizeof(spec));
}

static void add_tag(struct rule *r, uint32_t tag)
{
	struct ibv_flow_spec_action_tag spec = {IBV_FLOW_SPEC_ACTION_TAG, sizeof(spec), tag};

	add_spec(r, &spec, sizeof(spec));
}

static struct ibv_flow *create(struct ibv_qp *qp, struct rule *r)
{
	/* The specifications follow the attributes without a gap. */
	_Static_assert(offsetof(struct rule, specs) == sizeof(struct ibv_flow_attr), "packed");
	r->attr.size = (uint16_t)(sizeof(r->attr) + r->used);
	errno = 0;
	return ibv_create_flow(qp, &r->attr);
}

static struct ibv_flow *want_group(struct end *e)
{
	struct rule r = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_flow *flow;

	add_eth(&r, group, 0);
	flow = create(e->qp, &r);
	assert_non_null(flow);
	return flow;
}

static struct ibv_flow *want_port(struct end *e, unsigned int port, uint16_t priority,
				  uint32_t flags, uint32_t tag)
{
	struct rule r = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_flow *flow;

	r.attr.priority = priority;
	r.attr.flags = flags;
	add_port(&r, IBV_FLOW_SPEC_UDP, port);
	add_tag(&r, tag);
	flow = create(e->qp, &r);
	assert_non_null(flow);
	return flow;
}

static void drop(struct ibv_flow *flow)
{
	assert_int_equal(ibv_destroy_flow(flow), 0);
}

/* --- frames go and come ------------------------------------------------------------------ */

static void a_frame_arrives_whole(void **state)
{
	struct ibv_flow *flow;
	struct end a, b;
	struct seen seen;
	uint32_t bytes;

	open_end(&a, devices[0]);
	open_end(&b, device_of_b());
	send_udp(&a, group, 1); /* nobody wants it */
	flow = want_group(&b);
	bytes = make_udp(scratch(&a), group, 5678, 700);
	send_frame(&a, bytes, 0);
	seen = receive(&b);
	assert_int_equal(seen.bytes, bytes);
	assert_int_equal(seen.qpn, b.qp->qp_num);
	assert_memory_equal(frame_at(&b, &seen), scratch(&a), bytes);
	assert_int_equal(seen.flags & IBV_WC_IP_CSUM_OK, 0); /* the header's is zero */
	expect_nothing(&b);
	drop(flow);
	send_udp(&a, group, 1);
	expect_nothing(&b);
	close_end(&a);
	close_end(&b);
}

static unsigned int fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static uint32_t sum16(const uint8_t *at, uint32_t bytes)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < bytes; i += 2)
		sum += (uint32_t)at[i] << 8 | (i + 1 < bytes ? at[i + 1] : 0);
	return sum;
}

/* RFC 1071: over the header, and over the pseudo header and what follows, the sum is all ones. */
static void assert_checksums(const uint8_t *frame)
{
	const uint32_t l4 = get16(frame + 16) - 20;

	assert_int_equal(fold(sum16(frame + 14, 20)), 0xffff);
	assert_int_equal(fold(sum16(frame + 26, 8) + frame[23] + l4 + sum16(frame + 34, l4)),
			 0xffff);
}

static void checksums_are_filled_in_and_looked_at(void **state)
{
	struct ibv_flow *flow;
	struct end a, b;
	struct seen seen;
	uint32_t bytes;

	open_end(&a, devices[0]);
	open_end(&b, device_of_b());
	flow = want_group(&b);
	bytes = make_udp(scratch(&a), group, 5678, 701);
	send_frame(&a, bytes, IBV_SEND_IP_CSUM);
	seen = receive(&b);
	assert_checksums(frame_at(&b, &seen));
	assert_int_equal(seen.flags & IBV_WC_IP_CSUM_OK, IBV_WC_IP_CSUM_OK);
	/* The same with one byte wrong. */
	memcpy(scratch(&a), frame_at(&b, &seen), bytes);
	scratch(&a)[60] ^= 1;
	send_frame(&a, bytes, 0);
	seen = receive(&b);
	assert_int_equal(seen.flags & IBV_WC_IP_CSUM_OK, 0);
	drop(flow);
	close_end(&a);
	close_end(&b);
}

/* A header for TCP over IPv4, 54 bytes, PSH and FIN and CWR. */
static void make_tcp_header(uint8_t *at)
{
	make_udp(at, group, 80, 0);
	at[23] = 6;
	memset(at + 38, 0, 16);
	put16(at + 18, 0xfffe); /* identification */
	put16(at + 38, 0xffff); /* sequence number: 0xffffff00 */
	put16(at + 40, 0xff00);
	at[46] = 5 << 4;
	at[47] = 0x80 | 0x10 | 0x08 | 0x01;
	put16(at + 48, 1000);
}

static void check_segments(struct end *b, const uint8_t *payload, uint32_t bytes, uint32_t mss)
{
	for (uint32_t offset = 0, i = 0; offset < bytes; offset += mss, i++) {
		const uint32_t length = bytes - offset < mss ? bytes - offset : mss;
		const bool last = offset + length == bytes;
		struct seen seen = receive(b);
		const uint8_t *frame = frame_at(b, &seen);

		assert_int_equal(seen.bytes, 54 + length);
		assert_int_equal(get16(frame + 16), 40 + length);
		assert_int_equal(get16(frame + 18), (0xfffe + i) & 0xffff);
		assert_int_equal(get32(frame + 38), 0xffffff00u + offset);
		assert_int_equal(frame[47], 0x10 | (i == 0 ? 0x80 : 0) | (last ? 0x08 | 0x01 : 0));
		assert_checksums(frame);
		assert_int_equal(seen.flags & IBV_WC_IP_CSUM_OK, IBV_WC_IP_CSUM_OK);
		assert_memory_equal(frame + 54, payload + offset, length);
	}
}

static void long_data_is_cut_into_segments(void **state)
{
	const uint32_t bytes = 5001, mss = 1000;
	struct ibv_send_wr *bad, wr;
	struct ibv_flow *flow;
	struct ibv_qp_ex *ex;
	struct ibv_sge sge;
	uint8_t header[64];
	struct end a, b;

	open_end(&a, devices[0]);
	open_end(&b, device_of_b());
	flow = want_group(&b);
	make_tcp_header(header);
	for (uint32_t i = 0; i < bytes; i++)
		scratch(&a)[i] = (uint8_t)(i * 5 + 3);
	sge = (struct ibv_sge){(uintptr_t)scratch(&a), bytes, a.mr->lkey};
	wr = (struct ibv_send_wr){
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_TSO,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM,
		.tso = {.hdr = header, .hdr_sz = 54, .mss = mss},
	};
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	memset(header, 0, sizeof(header)); /* it is ours again */
	assert_int_equal(next(&a).opcode, IBV_WC_TSO);
	check_segments(&b, scratch(&a), bytes, mss);

	make_tcp_header(header);
	ex = ibv_qp_to_qp_ex(a.qp);
	ibv_wr_start(ex);
	ex->wr_id = 8;
	ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM;
	ibv_wr_send_tso(ex, header, 54, mss);
	ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)scratch(&a), bytes);
	memset(header, 0, sizeof(header));
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(next(&a).wr_id, 8);
	check_segments(&b, scratch(&a), bytes, mss);

	/* What makes no sense is refused, or fails alone. */
	make_tcp_header(header);
	wr.tso.mss = 0;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	wr.tso.mss = (uint16_t)mss;
	wr.tso.hdr_sz = 65; /* over max_tso_header */
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	wr.tso.hdr_sz = 53;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	assert_int_equal(next(&a).status, IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(edge_state(a.qp), IBV_QPS_SQE);
	drop(flow);
	close_end(&a);
	close_end(&b);
}

/* Shorter than an Ethernet header, longer than the interface takes: the send queue stops, and goes
 * on from SQE. */
static void lengths_have_their_limits(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_flow *flow;
	struct end a, b;

	open_end(&a, devices[0]);
	open_end(&b, device_of_b());
	flow = want_group(&b);
	make_udp(scratch(&a), group, 1, 1486 - 28);
	assert_int_equal(post_frame(&a, 13, 0), 0);
	assert_int_equal(next(&a).status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(edge_state(a.qp), IBV_QPS_SQE);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
	send_frame(&a, 1514, 0); /* an MTU of 1500 */
	assert_int_equal(receive(&b).bytes, 1514);
	assert_int_equal(post_frame(&a, 1515, 0), 0);
	assert_int_equal(next(&a).status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
	/* With a VLAN tag four bytes more. */
	put16(scratch(&a) + 12, 0x8100);
	send_frame(&a, 1518, 0);
	assert_int_equal(receive(&b).bytes, 1518);
	drop(flow);
	close_end(&a);
	close_end(&b);
}

static void too_short_a_buffer_is_an_error(void **state)
{
	struct ibv_async_event event;
	struct ibv_flow *flow;
	struct end a, b;
	struct seen seen;
	uint32_t bytes;

	open_end(&a, devices[0]);
	open_base(&b, device_of_b());
	{
		struct ibv_qp_init_attr_ex init = init_of(&b);

		b.qp = ibv_create_qp_ex(b.context, &init);
		assert_non_null(b.qp);
	}
	to_rts(b.qp);
	flow = want_group(&b);
	bytes = make_udp(scratch(&a), group, 1, 100);
	send_frame(&a, bytes, 0); /* without a receive it is dropped */
	assert_int_equal(post_recv(&b, 0, bytes - 1), 0);
	assert_int_equal(post_recv(&b, 1, bytes), 0);
	send_frame(&a, bytes, 0);
	seen = next(&b);
	assert_int_equal(seen.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(seen.wr_id, 0);
	seen = next(&b);
	assert_int_equal(seen.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_get_async_event(b.context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_FATAL);
	ibv_ack_async_event(&event);
	assert_int_equal(edge_state(b.qp), IBV_QPS_ERR);
	drop(flow);
	close_end(&a);
	close_end(&b);
}

static void a_tag_can_be_matched_and_stripped(void **state)
{
	struct ibv_flow *flow, *plain;
	struct rule r = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct end a, b, c;
	struct seen seen;
	uint32_t bytes;

	open_end(&a, devices[0]);
	open_end(&b, device_of_b());
	open_with(&c, device_of_b(), IBV_QP_CREATE_CVLAN_STRIPPING);
	add_eth(&r, group, 0x123);
	flow = create(b.qp, &r);
	assert_non_null(flow);
	plain = create(c.qp, &r);
	assert_non_null(plain);
	bytes = make_udp(scratch(&a), group, 1, 60);
	send_frame(&a, bytes, 0); /* it has no tag */
	memmove(scratch(&a) + 16, scratch(&a) + 12, bytes - 12);
	put16(scratch(&a) + 12, 0x8100);
	put16(scratch(&a) + 14, 5u << 13 | 0x124);
	send_frame(&a, bytes + 4, 0); /* another VLAN */
	put16(scratch(&a) + 14, 5u << 13 | 0x123);
	send_frame(&a, bytes + 4, 0);
	/* Rules that say the same have it both. */
	seen = receive(&b);
	assert_int_equal(seen.bytes, bytes + 4);
	assert_memory_equal(frame_at(&b, &seen), scratch(&a), bytes + 4);
	seen = receive(&c);
	assert_int_equal(seen.bytes, bytes);
	assert_int_equal(seen.cvlan, 5u << 13 | 0x123);
	assert_memory_equal(frame_at(&c, &seen), scratch(&a), 12);
	assert_memory_equal(frame_at(&c, &seen) + 12, scratch(&a) + 16, bytes - 12);
	drop(flow);
	drop(plain);
	close_end(&a);
	close_end(&b);
	close_end(&c);
}

/* --- who gets it ------------------------------------------------------------------------- */

static void the_first_rule_has_the_frame(void **state)
{
	struct ibv_flow *low, *high, *peek;
	struct end a, b, c;

	open_end(&a, devices[0]);
	open_end(&b, device_of_b());
	open_end(&c, device_of_b());
	low = want_port(&b, 7, 9, 0, 100);
	high = want_port(&c, 7, 3, 0, 0xffffff);
	send_udp(&a, group, 7);
	assert_int_equal(receive(&c).tag, 0xffffff);
	drop(high);
	send_udp(&a, group, 7);
	assert_int_equal(receive(&b).tag, 100);
	peek = want_port(&c, 7, 3, IBV_FLOW_ATTR_FLAGS_DONT_TRAP, 5);
	send_udp(&a, group, 7);
	assert_int_equal(receive(&c).tag, 5);
	assert_int_equal(receive(&b).tag, 100);
	send_udp(&a, group, 8); /* another port */
	expect_nothing(&b);
	expect_nothing(&c);
	drop(low);
	drop(peek);
	close_end(&a);
	close_end(&b);
	close_end(&c);
}

static struct ibv_flow *create_type(struct end *e, enum ibv_flow_attr_type type)
{
	struct rule r = rule_of(type);
	struct ibv_flow *flow = create(e->qp, &r);

	assert_non_null(flow);
	return flow;
}

static void default_rules_have_the_rest(void **state)
{
	struct ibv_flow *all, *groups, *sniff, *one;
	struct end a, b, c, d;
	uint8_t mac[6];

	open_end(&a, devices[0]);
	open_end(&b, device_of_b());
	open_end(&c, device_of_b());
	open_end(&d, device_of_b());
	read_mac(wire ? "vb" : "va", mac); /* b's own address */
	all = create_type(&b, IBV_FLOW_ATTR_ALL_DEFAULT);
	groups = create_type(&c, IBV_FLOW_ATTR_MC_DEFAULT);
	sniff = create_type(&d, IBV_FLOW_ATTR_SNIFFER);
	send_udp(&a, mac, 1);
	receive(&b);
	receive(&d);
	send_udp(&a, group, 1);
	receive(&b);
	receive(&c);
	receive(&d);
	one = want_port(&c, 2, 0, 0, 77);
	send_udp(&a, mac, 2);
	assert_int_equal(receive(&c).tag, 77);
	receive(&d);
	send_udp(&a, group, 4791); /* RoCE's own: nobody's but the sniffer's */
	receive(&d);
	expect_nothing(&b);
	expect_nothing(&c);
	drop(all);
	drop(groups);
	drop(sniff);
	drop(one);
	close_end(&a);
	close_end(&b);
	close_end(&c);
	close_end(&d);
}

/* To somebody else: on the wire it may be anybody's, in the switch it is not b's. */
static void the_switch_keeps_what_is_for_others(void **state)
{
	const uint8_t stranger[6] = {0x02, 1, 2, 3, 4, 5};
	struct ibv_flow *flow, *sniff;
	struct end a, b, c;

	open_end(&a, devices[0]);
	open_end(&b, device_of_b());
	open_end(&c, device_of_b());
	flow = want_port(&b, 7, 0, 0, 1);
	sniff = create_type(&c, IBV_FLOW_ATTR_SNIFFER);
	send_udp(&a, stranger, 7);
	receive(&c);
	if (wire)
		receive(&b);
	expect_nothing(&b);
	expect_nothing(&c);
	drop(flow);
	drop(sniff);
	close_end(&a);
	close_end(&b);
	close_end(&c);
}

/* The queue pair that sends may have the rule as well. */
static void one_hears_oneself(void **state)
{
	struct ibv_flow *flow;
	struct end a;

	open_end(&a, devices[0]);
	flow = want_group(&a);
	send_udp(&a, group, 7);
	receive(&a);
	expect_nothing(&a);
	drop(flow);
	close_end(&a);
}

/* A loopback interface brings everything back by itself: once, and not twice. */
static void loopback_brings_it_once(void **state)
{
	struct ibv_flow *flow, *own;
	struct end a, b;

	open_end(&a, devices[2]);
	open_end(&b, devices[2]);
	flow = want_group(&b);
	own = want_group(&a);
	send_udp(&a, group, 7);
	receive(&a);
	receive(&b);
	expect_nothing(&a);
	expect_nothing(&b);
	drop(flow);
	drop(own);
	close_end(&a);
	close_end(&b);
}

/* What the kernel sends is heard at the other end, with the checksum that it left to the adapter.
 */
static void the_kernel_is_a_peer(void **state)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7777)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ibv_flow *flow;
	struct seen seen;
	struct end b;

	open_end(&b, devices[1]);
	flow = want_port(&b, 7777, 0, 0, 3);
	inet_pton(AF_INET, "10.7.0.77", &to.sin_addr);
	assert_int_equal(sendto(fd, "hello", 5, 0, (struct sockaddr *)&to, sizeof(to)), 5);
	seen = receive(&b);
	assert_int_equal(seen.bytes, 42 + 5);
	assert_int_equal(seen.flags & IBV_WC_IP_CSUM_OK, IBV_WC_IP_CSUM_OK);
	assert_memory_equal(frame_at(&b, &seen) + 42, "hello", 5);
	drop(flow);
	close(fd);
	close_end(&b);
}

/* --- dropping and counting --------------------------------------------------------------- */

static void attach(struct ibv_counters *counters, enum ibv_counter_description what, uint32_t index,
		   int expected)
{
	struct ibv_counter_attach_attr attr = {.counter_desc = what, .index = index};

	assert_int_equal(ibv_attach_counters_point_flow(counters, &attr, NULL), expected);
}

static void rules_drop_and_count(void **state)
{
	struct ibv_counters_init_attr init = {0};
	struct rule r = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_flow_spec_action_drop away = {IBV_FLOW_SPEC_ACTION_DROP, sizeof(away)};
	struct ibv_flow_spec_counter_action count = {.type = IBV_FLOW_SPEC_ACTION_COUNT,
						     .size = sizeof(count)};
	struct ibv_counter_attach_attr attr = {.counter_desc = IBV_COUNTER_BYTES, .index = 1};
	struct ibv_flow *flow, *later;
	uint64_t values[4] = {9, 9, 9, 9};
	struct end a, b;

	open_end(&a, devices[0]);
	open_end(&b, device_of_b());
	count.counters = ibv_create_counters(b.context, &init);
	assert_non_null(count.counters);
	assert_int_equal(ibv_read_counters(count.counters, values, 4, 0), EINVAL);
	attach(count.counters, IBV_COUNTER_PACKETS, 3, 0);
	attach(count.counters, IBV_COUNTER_BYTES, 1, 0);
	attach(count.counters, (enum ibv_counter_description)2, 1, ENOTSUP);
	add_eth(&r, group, 0);
	add_port(&r, IBV_FLOW_SPEC_UDP, 7);
	add_spec(&r, &away, sizeof(away));
	add_spec(&r, &count, sizeof(count));
	flow = create(b.qp, &r);
	assert_non_null(flow);
	attach(count.counters, IBV_COUNTER_PACKETS, 0, EBUSY);
	assert_int_equal(ibv_attach_counters_point_flow(count.counters, &attr, flow), ENOTSUP);
	assert_int_equal(ibv_destroy_counters(count.counters), EBUSY);
	later = want_port(&b, 8, 1, 0, 0);
	send_udp(&a, group, 7);
	send_udp(&a, group, 7);
	send_udp(&a, group, 8);
	receive(&b); /* the third: so the others have come before */
	assert_int_equal(ibv_read_counters(count.counters, values, 4, 0), 0);
	assert_int_equal(values[0], 0);
	assert_int_equal(values[1], 2 * 142);
	assert_int_equal(values[3], 2);
	assert_int_equal(ibv_read_counters(count.counters, values, 3, 0), EINVAL);
	assert_int_equal(ibv_read_counters(count.counters, values, 4, 2), EINVAL);
	drop(flow);
	drop(later);
	assert_int_equal(ibv_destroy_counters(count.counters), 0);
	close_end(&a);
	close_end(&b);
}

/* --- work queues and RSS ----------------------------------------------------------------- */

#define WQS 4u

struct spread {
	struct end base; /* without a queue pair */
	struct ibv_wq *wqs[WQS];
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
};

static struct ibv_wq *make_wq(struct end *e, uint32_t flags)
{
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ,
		.max_wr = 16,
		.max_sge = 1,
		.pd = e->pd,
		.cq = ibv_cq_ex_to_cq(e->cq),
		.comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
		.create_flags = flags,
	};

	errno = 0;
	return ibv_create_wq(e->context, &attr);
}

static int move_wq(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr attr = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state};

	return ibv_modify_wq(wq, &attr);
}

static int post_wq(struct end *e, struct ibv_wq *wq, uint64_t wr_id, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)e->buffer + wr_id * ROOM, length, e->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};

	return ibv_post_wq_recv(wq, &wr, &bad);
}

static uint8_t rss_key[40] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
	0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
	0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

static struct ibv_qp_init_attr_ex rss_of(struct spread *s)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = s->base.pd,
		.rwq_ind_tbl = s->table,
		.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(rss_key), rss_key,
				 IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 |
					 IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP},
	};
}

static void open_spread(struct spread *s)
{
	struct ibv_rwq_ind_table_init_attr table = {.log_ind_tbl_size = 2, .ind_tbl = s->wqs};
	struct ibv_qp_init_attr_ex init;

	open_base(&s->base, device_of_b());
	for (uint32_t i = 0; i < WQS; i++) {
		s->wqs[i] = make_wq(&s->base, 0);
		assert_non_null(s->wqs[i]);
		assert_int_equal(move_wq(s->wqs[i], IBV_WQS_RDY), 0);
		for (uint32_t k = 0; k < 16; k++)
			assert_int_equal(post_wq(&s->base, s->wqs[i], i * 16 + k, ROOM), 0);
	}
	s->table = ibv_create_rwq_ind_table(s->base.context, &table);
	assert_non_null(s->table);
	init = rss_of(s);
	s->qp = ibv_create_qp_ex(s->base.context, &init);
	assert_non_null(s->qp);
}

static void close_spread(struct spread *s)
{
	assert_int_equal(ibv_destroy_qp(s->qp), 0);
	assert_int_equal(ibv_destroy_rwq_ind_table(s->table), 0);
	for (uint32_t i = 0; i < WQS; i++)
		assert_int_equal(ibv_destroy_wq(s->wqs[i]), 0);
	close_end(&s->base);
}

/* The verification suite of Microsoft's RSS: IPv4 with ports. */
static const struct {
	const char *src, *dst;
	uint16_t src_port, dst_port;
	uint32_t hash;
} vectors[] = {
	{"66.9.149.187", "161.142.100.80", 2794, 1766, 0x51ccc178},
	{"199.92.111.2", "65.69.140.83", 14230, 4739, 0xc626b0ea},
	{"24.19.198.95", "12.22.207.184", 12898, 38024, 0x5c2b394a},
	{"38.27.205.30", "209.142.163.6", 48228, 2217, 0xafc7327f},
	{"153.39.163.191", "202.188.127.2", 44251, 1303, 0x10e828a2},
};

static void a_hash_chooses_the_queue(void **state)
{
	struct rule r = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_flow *flow;
	struct spread s;
	struct end a;

	open_end(&a, devices[0]);
	open_spread(&s);
	add_eth(&r, group, 0);
	flow = create(s.qp, &r);
	assert_non_null(flow);
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		uint32_t bytes = make_udp(scratch(&a), group, vectors[i].dst_port, 50);
		struct seen seen;

		put16(scratch(&a) + 34, vectors[i].src_port);
		inet_pton(AF_INET, vectors[i].src, scratch(&a) + 26);
		inet_pton(AF_INET, vectors[i].dst, scratch(&a) + 30);
		send_frame(&a, bytes, IBV_SEND_IP_CSUM);
		seen = receive(&s.base);
		assert_int_equal(seen.qpn, s.wqs[vectors[i].hash % WQS]->wq_num);
		assert_int_equal(seen.wr_id / 16, vectors[i].hash % WQS);
		assert_int_equal(seen.flags & IBV_WC_IP_CSUM_OK, IBV_WC_IP_CSUM_OK);
		assert_memory_equal(frame_at(&s.base, &seen) + 42, scratch(&a) + 42, 50);
	}
	assert_int_equal(ibv_destroy_qp(s.qp), EBUSY);
	assert_int_equal(ibv_destroy_rwq_ind_table(s.table), EBUSY);
	assert_int_equal(ibv_destroy_wq(s.wqs[0]), EBUSY);
	drop(flow);
	close_spread(&s);
	close_end(&a);
}

static void a_queue_that_fails_stops_alone(void **state)
{
	struct rule r = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_async_event event;
	struct ibv_flow *flow;
	struct seen seen;
	struct spread s;
	struct end a;
	uint32_t bytes, at;

	open_end(&a, devices[0]);
	open_spread(&s);
	add_eth(&r, group, 0);
	flow = create(s.qp, &r);
	assert_non_null(flow);
	bytes = make_udp(scratch(&a), group, 1, 200);
	send_frame(&a, bytes, 0);
	at = (uint32_t)receive(&s.base).wr_id / 16;
	/* Anew, with one receive that is too short and one behind it. */
	assert_int_equal(move_wq(s.wqs[at], IBV_WQS_RESET), 0);
	assert_int_equal(post_wq(&s.base, s.wqs[at], 0, ROOM), EINVAL);
	assert_int_equal(move_wq(s.wqs[at], IBV_WQS_RDY), 0);
	assert_int_equal(post_wq(&s.base, s.wqs[at], 70, bytes - 1), 0);
	assert_int_equal(post_wq(&s.base, s.wqs[at], 71, ROOM), 0);
	send_frame(&a, bytes, 0);
	seen = next(&s.base);
	assert_int_equal(seen.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(seen.wr_id, 70);
	seen = next(&s.base);
	assert_int_equal(seen.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(seen.wr_id, 71);
	assert_int_equal(ibv_get_async_event(s.base.context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_WQ_FATAL);
	assert_ptr_equal(event.element.wq, s.wqs[at]);
	ibv_ack_async_event(&event);
	/* In ERR what is posted is flushed; the other queues go on. */
	assert_int_equal(post_wq(&s.base, s.wqs[at], 72, ROOM), 0);
	assert_int_equal(next(&s.base).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(move_wq(s.wqs[at], IBV_WQS_RDY), EINVAL);
	drop(flow);
	close_spread(&s);
	close_end(&a);
}

/* --- what is refused --------------------------------------------------------------------- */

static void set_net_raw(bool on)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	assert_int_equal(syscall(SYS_capget, &header, data), 0);
	if (on)
		data[0].effective |= 1u << CAP_NET_RAW;
	else
		data[0].effective &= ~(1u << CAP_NET_RAW);
	assert_int_equal(syscall(SYS_capset, &header, data), 0);
}

static void without_the_capability_it_is_refused(void **state)
{
	struct rule r = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_qp_init_attr_ex init;
	struct end a;

	open_base(&a, devices[0]);
	init = init_of(&a);
	set_net_raw(false);
	errno = 0;
	assert_null(ibv_create_qp_ex(a.context, &init));
	assert_int_equal(errno, EPERM);
	set_net_raw(true);
	a.qp = ibv_create_qp_ex(a.context, &init);
	assert_non_null(a.qp);
	/* Given away since: what there is goes on, and nothing is added. */
	set_net_raw(false);
	assert_null(ibv_create_qp_ex(a.context, &init));
	assert_int_equal(errno, EPERM);
	add_eth(&r, group, 0);
	assert_null(create(a.qp, &r));
	assert_int_equal(errno, EPERM);
	set_net_raw(true);
	close_end(&a);
}

static void expect_refusal(struct ibv_qp *qp, struct rule r, int error)
{
	assert_null(create(qp, &r));
	assert_int_equal(errno, error);
}

static void rules_check_their_arguments(void **state)
{
	struct ibv_flow_spec_esp esp = {.type = IBV_FLOW_SPEC_ESP, .size = sizeof(esp)};
	struct ibv_flow_spec_ipv4 ipv4 = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof(ipv4)};
	struct ibv_flow_spec_ipv6 ipv6 = {.type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ipv6)};
	struct ibv_flow_spec_eth eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth)};
	struct rule r, good = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_qp_init_attr rc;
	struct ibv_qp *other;
	struct end a;

	open_end(&a, devices[0]);
	add_eth(&good, group, 0);
	r = good;
	r.attr.comp_mask = 1;
	expect_refusal(a.qp, r, EINVAL);
	r = good;
	r.attr.port = 2;
	expect_refusal(a.qp, r, EINVAL);
	r = good;
	r.attr.type = IBV_FLOW_ATTR_SNIFFER + 1;
	expect_refusal(a.qp, r, EINVAL);
	r = good;
	r.attr.flags = 1;
	expect_refusal(a.qp, r, EINVAL);
	r = good;
	r.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	expect_refusal(a.qp, r, EOPNOTSUPP);
	r = rule_of(IBV_FLOW_ATTR_ALL_DEFAULT);
	r.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	expect_refusal(a.qp, r, EINVAL);
	r = good;
	add_spec(&r, &eth, sizeof(eth)); /* a layer twice */
	expect_refusal(a.qp, r, EINVAL);
	r = rule_of(IBV_FLOW_ATTR_NORMAL);
	add_spec(&r, &ipv4, sizeof(ipv4));
	add_spec(&r, &ipv6, sizeof(ipv6));
	expect_refusal(a.qp, r, EINVAL);
	r = rule_of(IBV_FLOW_ATTR_NORMAL);
	eth.val.ether_type = htons(0x86dd);
	eth.mask.ether_type = 0xffff;
	add_spec(&r, &eth, sizeof(eth));
	add_spec(&r, &ipv4, sizeof(ipv4));
	expect_refusal(a.qp, r, EINVAL);
	r = rule_of(IBV_FLOW_ATTR_NORMAL);
	add_spec(&r, &esp, sizeof(esp));
	expect_refusal(a.qp, r, EOPNOTSUPP);
	r = rule_of(IBV_FLOW_ATTR_NORMAL);
	ipv4.size--;
	add_spec(&r, &ipv4, sizeof(ipv4));
	expect_refusal(a.qp, r, EINVAL);
	r = rule_of(IBV_FLOW_ATTR_NORMAL);
	add_tag(&r, 0x1000000);
	expect_refusal(a.qp, r, EINVAL);

	rc = (struct ibv_qp_init_attr){
		.send_cq = ibv_cq_ex_to_cq(a.cq),
		.recv_cq = ibv_cq_ex_to_cq(a.cq),
		.cap = {1, 1, 1, 1, 0},
		.qp_type = IBV_QPT_RC,
	};
	other = ibv_create_qp(a.pd, &rc);
	assert_non_null(other);
	expect_refusal(other, good, EINVAL);
	assert_int_equal(ibv_destroy_qp(other), 0);
	close_end(&a);
}

static void queue_pairs_check_their_arguments(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE};
	struct ibv_qp_init_attr_ex init;
	struct ibv_qp_init_attr plain;
	struct ibv_device_attr_ex device;
	struct spread s;
	struct end a;

	open_base(&a, devices[0]);
	assert_int_equal(ibv_query_device_ex(a.context, NULL, &device), 0);
	assert_true(device.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING);
	assert_true(device.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM);
	assert_int_equal(device.tso_caps.supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	init = init_of(&a);
	init.max_tso_header = 513;
	assert_null(ibv_create_qp_ex(a.context, &init));
	assert_int_equal(errno, EINVAL);
	init = init_of(&a);
	init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	init.create_flags = IBV_QP_CREATE_SCATTER_FCS; /* not among raw_packet_caps */
	assert_null(ibv_create_qp_ex(a.context, &init));
	assert_int_equal(errno, EOPNOTSUPP);
	init = init_of(&a);
	a.qp = ibv_create_qp_ex(a.context, &init);
	assert_non_null(a.qp);
	/* Linux: a port and nothing else. */
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), EINVAL);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX),
			 EINVAL);
	to_rts(a.qp);
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	close_end(&a);

	open_spread(&s);
	assert_int_equal(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EOPNOTSUPP);
	assert_int_equal(ibv_query_qp(s.qp, &attr, 0, &plain), EOPNOTSUPP);
	wr.opcode = IBV_WR_SEND;
	assert_int_equal(ibv_post_send(s.qp, &wr, &bad), EINVAL);
	init = rss_of(&s);
	init.rx_hash_conf.rx_hash_key_len = 39;
	assert_null(ibv_create_qp_ex(s.base.context, &init));
	assert_int_equal(errno, EINVAL);
	init = rss_of(&s);
	init.rx_hash_conf.rx_hash_fields_mask |= IBV_RX_HASH_SRC_IPV6;
	assert_null(ibv_create_qp_ex(s.base.context, &init));
	assert_int_equal(errno, EINVAL);
	init = rss_of(&s);
	init.rx_hash_conf.rx_hash_function = 2;
	assert_null(ibv_create_qp_ex(s.base.context, &init));
	assert_int_equal(errno, EOPNOTSUPP);
	init = rss_of(&s);
	init.comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_RX_HASH;
	assert_null(ibv_create_qp_ex(s.base.context, &init));
	assert_int_equal(errno, EINVAL);
	close_spread(&s);
}

static void work_queues_check_their_arguments(void **state)
{
	struct ibv_wq_attr attr = {0};
	struct ibv_rwq_ind_table_init_attr table = {.log_ind_tbl_size = 10};
	struct ibv_wq *wq;
	struct end a;

	open_base(&a, devices[0]);
	assert_null(make_wq(&a, IBV_WQ_FLAGS_SCATTER_FCS));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(make_wq(&a, IBV_WQ_FLAGS_RESERVED));
	assert_int_equal(errno, EINVAL);
	wq = make_wq(&a, IBV_WQ_FLAGS_CVLAN_STRIPPING);
	assert_non_null(wq);
	assert_int_equal(wq->state, IBV_WQS_RESET);
	assert_int_equal(ibv_modify_wq(wq, &attr), EINVAL);
	attr = (struct ibv_wq_attr){.attr_mask = IBV_WQ_ATTR_RESERVED};
	assert_int_equal(ibv_modify_wq(wq, &attr), EINVAL);
	attr = (struct ibv_wq_attr){
		.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE,
		.wq_state = IBV_WQS_RDY,
		.curr_wq_state = IBV_WQS_ERR,
	};
	assert_int_equal(ibv_modify_wq(wq, &attr), EINVAL);
	assert_int_equal(move_wq(wq, IBV_WQS_ERR), EINVAL);
	assert_int_equal(move_wq(wq, IBV_WQS_UNKNOWN), EINVAL);
	assert_int_equal(wq->state, IBV_WQS_RESET);
	table.ind_tbl = &wq;
	assert_null(ibv_create_rwq_ind_table(a.context, &table));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_wq(wq), 0);
	close_end(&a);
}

/* Closing a device takes rules, tables and queues with it; their shells refuse. */
static void a_closed_device_leaves_shells(void **state)
{
	struct rule r = rule_of(IBV_FLOW_ATTR_NORMAL);
	struct ibv_flow *flow;
	struct spread s;

	open_spread(&s);
	add_eth(&r, group, 0);
	flow = create(s.qp, &r);
	assert_non_null(flow);
	assert_int_equal(ibv_close_device(s.base.context), 0);
	assert_int_equal(post_wq(&s.base, s.wqs[0], 0, 64), EIO);
	drop(flow);
	assert_int_equal(ibv_destroy_qp(s.qp), 0);
	assert_int_equal(ibv_destroy_rwq_ind_table(s.table), 0);
	for (uint32_t i = 0; i < WQS; i++)
		assert_int_equal(ibv_destroy_wq(s.wqs[i]), 0);
	ibv_dereg_mr(s.base.mr);
	ibv_destroy_cq(ibv_cq_ex_to_cq(s.base.cq));
	ibv_dealloc_pd(s.base.pd);
	munmap(s.base.buffer, s.base.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_arrives_whole),
		cmocka_unit_test(checksums_are_filled_in_and_looked_at),
		cmocka_unit_test(long_data_is_cut_into_segments),
		cmocka_unit_test(lengths_have_their_limits),
		cmocka_unit_test(too_short_a_buffer_is_an_error),
		cmocka_unit_test(a_tag_can_be_matched_and_stripped),
		cmocka_unit_test(the_first_rule_has_the_frame),
		cmocka_unit_test(default_rules_have_the_rest),
		cmocka_unit_test(the_switch_keeps_what_is_for_others),
		cmocka_unit_test(one_hears_oneself),
		cmocka_unit_test(loopback_brings_it_once),
		cmocka_unit_test(the_kernel_is_a_peer),
		cmocka_unit_test(rules_drop_and_count),
		cmocka_unit_test(a_hash_chooses_the_queue),
		cmocka_unit_test(a_queue_that_fails_stops_alone),
		cmocka_unit_test(without_the_capability_it_is_refused),
		cmocka_unit_test(rules_check_their_arguments),
		cmocka_unit_test(queue_pairs_check_their_arguments),
		cmocka_unit_test(work_queues_check_their_arguments),
		cmocka_unit_test(a_closed_device_leaves_shells),
	};
	const char *topology = getenv("VB_EDGE_TOPOLOGY");
	int count = 0, failed;

	wire = topology && strcmp(topology, "wire") == 0;
	enter_namespace();
	devices = ibv_get_device_list(&count);
	if (!devices || count != 3)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ibv_free_device_list(devices);
	return failed;
}
