/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * golden.h - reads the RoCEv2 packets out of a capture of tests/golden.
 *
 * Classic pcap, little-endian, Ethernet. Every frame that is UDP to port 4791 over IPv4 (without
 * options, not fragmented) or IPv6 is a RoCE packet; the rest (ARP, TCP of the tools) is passed
 * over.
 */
#ifndef VB_TESTS_GOLDEN_H
#define VB_TESTS_GOLDEN_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/cursor.h"
#include "wire/icrc.h"
#include "wire/packet.h"

struct golden_file {
	uint8_t *bytes;
	size_t size, at;
};

struct golden_packet {
	struct vb_icrc_ip ip;
	bool ipv6;
	const uint8_t *data; /* BTH up to and with the ICRC */
	size_t size;
};

static inline bool golden_open(struct golden_file *file, const char *name)
{
	char path[4096];
	FILE *f;
	long size;

	memset(file, 0, sizeof(*file));
	snprintf(path, sizeof(path), "%s/%s", VB_GOLDEN_DIR, name);
	f = fopen(path, "rb");
	if (!f)
		return false;
	if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) >= 24 && fseek(f, 0, SEEK_SET) == 0) {
		file->size = (size_t)size;
		file->bytes = malloc(file->size);
		if (file->bytes && fread(file->bytes, 1, file->size, f) != file->size) {
			free(file->bytes);
			file->bytes = NULL;
		}
	}
	fclose(f);
	file->at = 24;
	return file->bytes && memcmp(file->bytes, "\xd4\xc3\xb2\xa1", 4) == 0;
}

static inline void golden_close(struct golden_file *file)
{
	free(file->bytes);
}

static inline uint32_t golden_le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline bool golden_parse(struct golden_packet *packet, const uint8_t *frame, size_t size)
{
	const uint8_t *ip = frame + 14;
	const uint8_t *udp;

	memset(packet, 0, sizeof(*packet));
	if (size < 14 + 40 + 8)
		return false;
	if (vb_load_be16(frame + 12) == 0x86dd) {
		if (ip[6] != IPPROTO_UDP)
			return false;
		packet->ipv6 = true;
		memcpy(&packet->ip.src, ip + 8, 16);
		memcpy(&packet->ip.dst, ip + 24, 16);
		udp = ip + 40;
	} else if (vb_load_be16(frame + 12) == 0x0800) {
		uint16_t fragment = vb_load_be16(ip + 6);

		if (ip[0] != 0x45 || ip[9] != IPPROTO_UDP || fragment & 0x3fff)
			return false;
		packet->ip.ip_id = vb_load_be16(ip + 4);
		packet->ip.dont_fragment = fragment & 0x4000;
		memcpy(&packet->ip.src, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
		memcpy(&packet->ip.dst, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
		memcpy(&packet->ip.src.s6_addr[12], ip + 12, 4);
		memcpy(&packet->ip.dst.s6_addr[12], ip + 16, 4);
		udp = ip + 20;
	} else {
		return false;
	}
	packet->ip.src_port = vb_load_be16(udp);
	packet->ip.dst_port = vb_load_be16(udp + 2);
	packet->data = udp + 8;
	packet->size = (size_t)vb_load_be16(udp + 4) - 8;
	return packet->ip.dst_port == VB_ROCE_PORT && packet->size <= size &&
	       packet->data + packet->size <= frame + size;
}

/* golden_next - the next RoCE packet; false at the end of the capture. */
static inline bool golden_next(struct golden_file *file, struct golden_packet *packet)
{
	while (file->size - file->at >= 16) {
		size_t captured = golden_le32(file->bytes + file->at + 8);
		const uint8_t *frame = file->bytes + file->at + 16;

		if (captured > file->size - file->at - 16)
			return false;
		file->at += 16 + captured;
		if (golden_parse(packet, frame, captured))
			return true;
	}
	return false;
}

#endif
