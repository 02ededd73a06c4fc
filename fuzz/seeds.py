#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""seeds.py - writes fuzz/corpus: the inputs that the fuzz targets begin with, and that every `make test` runs.

headers    one captured packet of each opcode (tests/golden), opcodes that no capture has, odd ones
rx         lists of packets for one NIC (fuzz_rx.c)
cm_message messages of the connection manager, captured and full
endpoints  programs of steps for two NICs and the wire between them (fuzz_endpoints.c)
cm         programs of steps for a connection manager; messages from the captures (fuzz_cm.c)

rsocket_wire  private data and headers of rsockets (fuzz_rsocket_wire.c)

An input that a fuzzer found and that must never fail again goes into the same folders by hand, under a
name that says what it is; this script writes its own files only.
"""
import glob
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "tests", "golden")


def write(target, inputs):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    for name, data in inputs.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    print(f"{target}: {len(inputs)} inputs, {sum(map(len, inputs.values()))} bytes")


# --- packets ---------------------------------------------------------------------------------------

OPERATIONS = (
    "send_first send_middle send_last send_last_imm send_only send_only_imm write_first write_middle "
    "write_last write_last_imm write_only write_only_imm read_request read_response_first "
    "read_response_middle read_response_last read_response_only ack atomic_ack cmp_swp fetch_add - "
    "send_last_inv send_only_inv"
).split()


def opcode_name(opcode):
    return {0: "rc", 1: "uc", 3: "ud"}[opcode >> 5] + "_" + OPERATIONS[opcode & 31]


def bth(opcode, psn=0, pad=0, ack=1, qpn=0):
    return bytes([opcode, pad << 4, 0xFF, 0xFF]) + struct.pack(">II", qpn, ack << 31 | psn)


def reth(va, length, rkey=7):
    return struct.pack(">QII", va, rkey, length)


def atomic(va, swap=1, compare=2, rkey=7):
    return struct.pack(">QIQQ", va, rkey, swap, compare)


def deth(qkey=0, qpn=9):
    return struct.pack(">II", qkey, qpn)


IMM = b"\0\0\0\7"


def roce_packets():
    """BTH up to and with the pad, of every RoCE packet of the captures."""
    for path in sorted(glob.glob(os.path.join(GOLDEN, "*.pcap"))):
        with open(path, "rb") as f:
            data = f.read()
        at = 24
        while at < len(data):
            size = struct.unpack_from("<I", data, at + 8)[0]
            frame = data[at + 16 : at + 16 + size]
            at += 16 + size
            for ethertype, protocol, udp in ((b"\x08\x00", 23, 34), (b"\x86\xdd", 20, 54)):
                if (
                    frame[12:14] == ethertype
                    and frame[protocol] == 17
                    and frame[udp + 2 : udp + 4] == b"\x12\xb7"
                ):
                    length = struct.unpack_from(">H", frame, udp + 4)[0]
                    yield frame[udp + 8 : udp + length - 4]


def headers():
    out = {}
    shortest = {}
    for packet in roce_packets():
        known = shortest.get(packet[0])
        if known is None or len(packet) < len(known):
            shortest[packet[0]] = packet
        if packet[0] == 0x11 and packet[12] == 0x60:
            out["rc_ack_nak_sequence"] = packet
        if packet[1] & 0x30:
            out["rc_send_only_pad2"] = packet[:12] + packet[-4:]
    for opcode, packet in shortest.items():
        out[opcode_name(opcode)] = packet[:64]
    for opcode, rest in {
        0x03: IMM, 0x05: IMM, 0x16: IMM, 0x17: IMM, 0x23: IMM, 0x24: b"", 0x25: IMM, 0x29: IMM,
        0x2A: reth(4096, 4), 0x2B: reth(4096, 4) + IMM,
    }.items():  # fmt: skip
        out[opcode_name(opcode)] = bth(opcode) + rest + b"abcd"
    out.update(
        odd_empty=b"",
        odd_one_byte=b"\x04",
        odd_eleven_bytes=bth(4)[:11],
        odd_bth_only=bth(4),
        odd_pad_beyond_end=bth(4, pad=3) + b"\0\0",
        odd_pad_all_of_payload=bth(4, pad=3) + b"\0\0\0",
        odd_unknown_rd=bth(0x44),
        odd_unknown_15=bth(0x15) + b"abcd",
        odd_unknown_vendor=bth(0xFF) + b"abcd",
        odd_reserved_bits=bytes.fromhex("64ff0000ff010203ff04050601020304ff070809") + b"pad",
        odd_reth_cut=bth(0x0A) + reth(4096, 4)[:15],
        odd_atomic_cut=bth(0x13) + b"\x11" * 27,
        odd_fecn_becn=bth(4)[:4] + b"\xc0" + bth(4)[5:] + b"abcd",
    )
    return out


# --- fuzz_cm_message.c -------------------------------------------------------------------------------

CM_MESSAGES = "req mra rej rep rtu dreq drep sidr_req sidr_rep".split()


def cm_messages():
    """A first byte that names the attribute, a second that is odd where the header is to be made."""
    out = dict(odd_empty=b"", odd_short=b"\0\0" + b"\1" * 100)
    for packet in roce_packets():
        mad = packet[20:276]
        if packet[0] == 0x64 and packet[5:8] == b"\0\0\1" and len(mad) == 256:
            out.setdefault(CM_MESSAGES[mad[17] - 0x10], b"\0\0" + mad)
    out["odd_lap"] = out["req"][:19] + b"\x19" + out["req"][20:]
    out["odd_class"] = out["req"][:3] + b"\x03" + out["req"][4:]
    for i, name in enumerate(CM_MESSAGES):
        out["full_" + name] = bytes([i, 1]) + b"\xff" * 232
        out["cut_" + name] = bytes([i, 1]) + bytes(range(10, 50))
    out["rej_ari"] = b"\2\1" + b"\0" * 8 + bytes([0x80, 8 << 1, 0, 4]) + b"\1" * 16
    out["sidr_rep_info"] = b"\x08\1" + b"\0" * 4 + bytes([1, 72]) + b"\2" * 100
    return out


# --- the world's configuration: draw_config() in world.c ---------------------------------------------


def config(srq=0, sig_all=0, direct=0, forgetful=0, small_cq=0, access=None, psn=None, segment=0,
           window=0, mtu_256=1, sizes=0xFC, timeout_14=1, retry=6, rnr=7, rd_atomic=0x48):  # fmt: skip
    bits = srq | sig_all << 1 | direct << 2 | forgetful << 3 | small_cq << 4
    bits |= (access is not None) << 5 | (psn is not None) << 6
    out = bytes([bits, segment | window << 2 | mtu_256 << 3, sizes, timeout_14 | retry & 6 | rnr << 5,
                 rd_atomic, 1])  # fmt: skip
    if access is not None:
        out += bytes([access])
    if psn is not None:
        out += struct.pack("<I", psn)
    return out


# --- fuzz_rx.c ---------------------------------------------------------------------------------------

AS_IT_IS, ANSWER, KEYS, WRONG_SOURCE, RUN, DEADLINE, POST, LONG = (1 << i for i in range(8))
REQUEST = KEYS | RUN


def packet(data, control=REQUEST):
    size = struct.pack("<H", len(data)) if len(data) > 255 else bytes([len(data)])
    return bytes([control | (LONG if len(data) > 255 else 0)]) + size + data


def answer(opcode, psn, syndrome=0x1F, rest=b"", control=REQUEST | ANSWER):
    return packet(bth(opcode, psn, ack=0) + bytes([syndrome, 0, 0, 1]) + rest, control)


def rx():
    full = b"\xab" * 256
    c = config()
    known = headers()
    p = packet
    out = dict(
        rc_send=p(bth(0) + full) + p(bth(1) + full) + p(bth(2, pad=2) + b"abcd") + p(bth(4) + full[:8])
        + p(bth(5) + IMM + b"abcd", REQUEST | POST),
        rc_send_last_imm=p(bth(0) + full) + p(bth(3) + IMM + b"abcd"),
        rc_write=p(bth(6) + reth(0, 516) + full) + p(bth(7) + full) + p(bth(8) + b"abcd")
        + p(bth(10) + reth(100, 4) + b"abcd") + p(bth(11) + reth(7, 0) + IMM),
        rc_write_last_imm=p(bth(6) + reth(0, 260) + full) + p(bth(9) + IMM + b"abcd"),
        rc_read_atomic=p(bth(12) + reth(0, 1000)) + p(bth(12) + reth(0, 0), KEYS)
        + p(bth(0x13) + atomic(8)) + p(bth(0x14) + atomic(16)) + p(bth(0x14, psn=7) + atomic(16)),
        rc_duplicates=p(bth(12) + reth(0, 1000)) + p(bth(12, psn=0xFFFFFC) + reth(0, 1000), AS_IT_IS)
        + p(bth(4) + b"abcd") + p(bth(4, psn=0xFFFFFD) + b"abcd", AS_IT_IS),
        rc_gap=p(bth(4, psn=2) + b"abcd") + p(bth(4, psn=1) + b"abcd") + p(bth(4) + b"abcd"),
        rc_wrong_order=p(bth(0) + full) + p(bth(7) + full),
        rc_middle_first=p(bth(1) + full),
        rc_short_first=p(bth(0) + b"abcd"),
        rc_write_beyond=p(bth(10) + reth(8190, 8) + b"abcdefgh"),
        rc_write_longer=p(bth(6) + reth(0, 260) + full) + p(bth(7) + full),
        rc_read_beyond=p(bth(12) + reth(8000, 1000)),
        rc_atomic_unaligned=p(bth(0x13) + atomic(9)),
        rc_invalidate=p(bth(0x17) + IMM + b"abcd"),
        rc_acks=answer(17, 0) + answer(13, 0, rest=full) + p(bth(14) + full, REQUEST | ANSWER)
        + answer(15, 0, rest=full + full[:100]),
        rc_answers=answer(17, 0) + answer(16, 0, rest=b"\1" * 100) + answer(18, 0, rest=b"\0" * 8)
        + answer(17, 2, control=REQUEST | ANSWER | POST),
        rc_naks=answer(17, 0, 0x60) + answer(17, 0, 0x2C, control=REQUEST | ANSWER | DEADLINE)
        + answer(17, 0, 0x60) + answer(17, 0, 0x62),
        rc_implied_nak=answer(17, 5) * 2,
        rc_nak_reserved=answer(17, 0, 0x7F) + answer(17, 0, 0x40) + answer(17, 0, 0x61),
        rc_timeouts=p(bth(4) + b"abcd", REQUEST | DEADLINE) * 9,
        uc=p(bth(0x20) + full) + p(bth(0x21) + full) + p(bth(0x22) + b"abcd") + p(bth(0x24) + b"abcd")
        + p(bth(0x26) + reth(0, 260) + full) + p(bth(0x29) + IMM + b"abcd")
        + p(bth(0x2B) + reth(0, 4) + IMM + b"abcd"),
        uc_gap=p(bth(0x20) + full) + p(bth(0x22, psn=1) + b"abcd") + p(bth(0x24) + b"abcd"),
        uc_write_beyond=p(bth(0x2A) + reth(8190, 8) + full[:8]) + p(bth(0x24) + b"abcd"),
        ud=p(bth(0x64) + deth() + b"abcd") + p(bth(0x65) + deth() + IMM + b"abcd")
        + p(bth(0x64) + deth() + b"abcd", RUN) + p(bth(0x64) + deth() + full),
        wrong_source=p(bth(4) + b"abcd", KEYS | WRONG_SOURCE),
        malformed=b"".join(p(known[n], AS_IT_IS) for n in sorted(known) if n.startswith("odd")),
        kernel_requests=b"".join(p(known[n]) for n in sorted(known) if not n.startswith("odd")),
        kernel_answers=b"".join(p(known[n], REQUEST | ANSWER) for n in sorted(known)
                                if "ack" in n or "response" in n),
    )  # fmt: skip
    out = {name: c + data for name, data in out.items()}
    out["ud_srq"] = config(srq=1) + p(bth(0x64) + deth() + b"abcd", KEYS | POST) + p(bth(0x64) + deth())
    out["small_cq"] = config(small_cq=1, sizes=0xF0) + answer(17, 0) + p(bth(4) + b"abcd") * 2
    return out


# --- fuzz_endpoints.c --------------------------------------------------------------------------------

STEPS = (
    "run deliver send recv poll time lose repeat swap corrupt forge forge_wrong_source state connect "
    "recreate region srq arm resize unblock"
).split()
RC, UC, UD = range(3)
WRITE, WRITE_IMM, SEND, SEND_IMM, READ, CAS, FAA, LOCAL_INV, FLUSH, ATOMIC_WRITE, BIND, SEND_INV = range(12)
FENCE, SIGNALED, SOLICITED, INLINE = 1, 2, 4, 8
SET_RTS, SET_SQD, SET_ERR = 0x30, 0x40, 0x60
WRONG_KEY, READ_ONLY = 5, 1
WINDOW_1, WINDOW_2 = 6, 7


def step(name, side=0, more=0):
    return bytes([STEPS.index(name) | more << 5 | side << 7])


def length(n):
    """draw_length() in requests.c"""
    if n < 0xC0:
        return bytes([n])
    return bytes([0xC0 + n // 512, min(n % 512, 255)])


def sge_list(sges):
    out = bytes([len(sges)])
    for sge in sges:
        offset, n, key = (*sge, 0)[:3]
        out += struct.pack("<H", offset) + length(n) + bytes([key])
    return out


def send(side, kind, op, flags=SIGNALED, sges=((0, 100),), va=0, key=0, value=5):
    out = step("send", side) + bytes([kind, op, flags]) + sge_list(sges)
    if kind != UD and op not in (SEND, SEND_IMM):
        out += struct.pack("<H", va) + bytes([key, value])
    return out


def recv(side, kind, sges=((0, 3584),)):
    return step("recv", side) + bytes([kind]) + sge_list(sges)


def srq(side, sges=((0, 3584),)):
    return step("srq", side) + sge_list(sges)


def run(side):
    return step("run", side)


def deliver(side, more=3):
    return step("deliver", side, more)


def poll(side):
    return step("poll", side, 3)


def lose(side, place=0):
    return step("lose", side) + bytes([place])


def deadline():
    return step("time") + b"\1"


def flow(times=2):
    return (run(0) + deliver(0) + run(1) + deliver(1)) * times


def forge(side, kind, op, psn=0, n=0, syndrome=0x1F):
    return (step("forge", side) + bytes([kind, op, 1, 0]) + struct.pack("<H", 0) + bytes([psn])
            + length(n) + bytes([syndrome, 1]))  # fmt: skip


BIG = ((0, 3500), (0, 3500))
POLLS = poll(0) + poll(1)


def all_ops():
    return (recv(1, RC) * 2 + send(0, RC, SEND) + send(0, RC, WRITE, sges=((0, 1000),))
            + send(0, RC, READ, sges=((0, 1500),)) + send(0, RC, FAA, sges=((8, 8),))
            + send(0, RC, CAS, sges=((16, 8),), va=8)
            + send(0, RC, SEND_IMM, SIGNALED | SOLICITED, sges=((0, 700), (2000, 10))))  # fmt: skip


bind_1, bind_2 = (send(1, RC, BIND, sges=(), va=6, value=value) + run(1) for value in (4, 0x80))


def write_by(key):
    return send(0, RC, WRITE, sges=((0, 50),), va=6, key=key) + flow(1)


def rc_programs():
    c = config()
    ops = all_ops()
    write, read = send(0, RC, WRITE, sges=((0, 3000),)), send(0, RC, READ, sges=((0, 3000),))
    return dict(
        rc_all_ops=c + ops + flow(4) + POLLS,
        rc_write_imm=c + recv(1, RC) + send(0, RC, WRITE_IMM, sges=((3, 901),), va=7) + recv(1, RC)
        + send(0, RC, WRITE_IMM, sges=()) + flow(3) + poll(1),
        rc_both_ways=c + recv(0, RC) + recv(1, RC) + send(0, RC, SEND, sges=((0, 1200),))
        + send(1, RC, SEND, sges=((0, 1200),)) + send(1, RC, READ, sges=((0, 2000),)) + flow(4) + POLLS,
        rc_lose_first=c + ops + run(0) + lose(0) + deliver(0) + run(1) + deliver(1) + flow(3)
        + deadline() + flow(3),
        rc_lose_answers=c + ops + run(0) + deliver(0) + run(1) + lose(1) * 9 + deadline() + flow(2)
        + lose(1, 1) * 3 + deadline() + flow(4),
        rc_swap_repeat=c + ops + run(0) + step("swap") + b"\3" + step("repeat") + b"\2" + deliver(0)
        + run(1) + step("swap", 1) + b"\2" + step("repeat", 1) + b"\0" + deliver(1) + flow(3),
        rc_rnr=c + send(0, RC, SEND) + send(0, RC, SEND, sges=((0, 600),)) + flow(2) + recv(1, RC)
        + deadline() + flow(1) + recv(1, RC) + deadline() + flow(2),
        rc_rnr_exhausted=config(rnr=1) + send(0, RC, SEND) + (flow(1) + deadline()) * 3 + poll(0),
        rc_retry_exhausted=config(retry=2) + send(0, RC, SEND) + (run(0) + lose(0) + deadline()) * 5
        + poll(0),
        rc_bad_lkey=c + recv(1, RC) + send(0, RC, SEND) + send(0, RC, SEND, sges=((0, 10, WRONG_KEY),))
        + send(0, RC, SEND) + flow(2) + poll(0),
        rc_bad_rkey=c + send(0, RC, WRITE, key=WRONG_KEY) + send(0, RC, READ) + flow(2) + POLLS,
        rc_window_invalidated=c + bind_2 + write_by(WINDOW_2) + recv(1, RC) + send(0, RC, SEND_INV, key=WINDOW_2)
        + flow(2) + bind_2 + write_by(WINDOW_2) + send(1, RC, LOCAL_INV, sges=(), value=0x80) + run(1) + write_by(WINDOW_2) + POLLS,
        rc_window_bound_again=c + bind_1 + write_by(WINDOW_1) + bind_1 + write_by(WINDOW_1)
        + send(1, RC, BIND, sges=(), va=6, value=16) + run(1) + write_by(WINDOW_1) + POLLS,
        rc_invalidate_a_region=c + recv(1, RC) + send(0, RC, SEND_INV) + flow(2) + POLLS,
        rc_read_only_region=c + send(0, RC, WRITE, key=READ_ONLY) + flow(2) + poll(0),
        rc_range=c + send(0, RC, READ, sges=((0, 1000),), va=8000) + flow(2) + poll(0),
        rc_too_long=c + recv(1, RC, ((0, 50),)) + send(0, RC, SEND, sges=((0, 600),)) + flow(2) + POLLS,
        rc_no_rights=config(access=0) + send(0, RC, READ) + flow(2) + poll(0),
        rc_no_rd_atomic=config(rd_atomic=0) + send(0, RC, READ) + send(0, RC, WRITE) + flow(2) + poll(0),
        rc_atomic_unaligned=c + send(0, RC, FAA, va=3) + flow(2) + poll(0),
        rc_inline_fence=c + recv(1, RC) + send(0, RC, READ)
        + send(0, RC, SEND, SIGNALED | INLINE | FENCE, ((0, 40), (100, 40))) + flow(3),
        rc_unsignalled=c + b"".join(recv(1, RC) + send(0, RC, SEND, SIGNALED if i == 5 else 0)
                                    for i in range(6)) + flow(2) + POLLS,
        rc_small_cq=config(small_cq=1, sizes=0xFD) + recv(1, RC) * 4 + send(0, RC, SEND) * 4 + flow(3)
        + POLLS,
        rc_small_cq_acks=config(small_cq=1, sizes=0xF0) + send(0, RC, WRITE) * 6 + send(0, RC, READ)
        + flow(3),
        rc_srq=config(srq=1) + srq(1) * 3 + send(0, RC, SEND) + send(0, RC, SEND, sges=((0, 900),))
        + flow(3) + poll(1),
        rc_direct=config(direct=1) + recv(1, RC) + send(0, RC, SEND) + write + read
        + send(0, RC, WRITE, key=WRONG_KEY) + flow(4) + poll(0),
        rc_direct_forgetful=config(direct=1, forgetful=1) + recv(1, RC) + write + send(0, RC, SEND)
        + read + write + flow(5) + poll(0),
        rc_own_segment=config(segment=2, mtu_256=0) + send(0, RC, WRITE, sges=BIG)
        + send(0, RC, READ, sges=BIG) + flow(4),
        rc_window=config(window=1) + send(0, RC, WRITE, sges=BIG) + send(0, RC, READ, sges=BIG) + flow(6),
        rc_carrier_full=c + send(0, RC, WRITE, sges=BIG) * 5 + run(0) * 2 + deliver(0) + step("unblock")
        + run(0) + flow(3) + step("unblock") + flow(4),
        rc_sqd=c + write + run(0) + step("state") + bytes([SET_SQD]) + send(0, RC, WRITE) + flow(2)
        + step("state") + bytes([SET_RTS]) + flow(2),
        rc_err_and_back=c + recv(1, RC) + send(0, RC, SEND) + run(0) + step("state", 1)
        + bytes([SET_ERR]) + deliver(0) + deadline() + flow(1) + step("connect") + bytes([0x42])
        + recv(1, RC) + send(0, RC, SEND) + flow(2),
        rc_recreate=c + ops + run(0) + deliver(0, 1) + step("recreate", 1) + bytes([0x42]) + flow(2)
        + ops + flow(3),
        rc_region_gone_in_read=c + read + run(0) + deliver(0) + step("region", 1) + b"\0" + run(1)
        + deliver(1) + poll(0),
        rc_region_gone_in_write=c + write + run(0) + deliver(0, 1) + step("region", 1) + b"\0"
        + deliver(0) + flow(1),
        rc_local_region_gone=c + read + run(0) + deliver(0) + step("region") + b"\0" + run(1)
        + deliver(1) + poll(0),
    )  # fmt: skip


def other_programs():
    c = config()
    ops = all_ops()
    wide = config(mtu_256=0, segment=0x40)
    answers = ((17, 0x1F), (13, 0x1F), (16, 0x1F), (18, 0x1F), (17, 0x60), (17, 0x2C), (17, 0x62), (15, 0x1F))
    return dict(
        uc_all_ops=c + recv(1, UC) * 2 + send(0, UC, SEND, sges=((0, 760),))
        + send(0, UC, WRITE, sges=((0, 760),)) + send(0, UC, WRITE_IMM, sges=((0, 760),)) + flow(2)
        + POLLS,
        uc_loss=c + recv(1, UC) * 2 + send(0, UC, SEND, sges=((0, 1600),))
        + send(0, UC, WRITE_IMM, sges=((0, 760),)) + run(0) + lose(0, 2) + deliver(0) + poll(1),
        uc_sqe=c + send(0, UC, SEND, sges=((0, 10, WRONG_KEY),)) + send(0, UC, SEND) + flow(1)
        + step("state") + bytes([SET_RTS + 1]) + send(0, UC, SEND) + flow(1) + poll(0),
        ud_send=wide + recv(1, UD) + recv(1, UD, ((0, 45),)) + send(0, UD, SEND)
        + send(0, UD, SEND_IMM, SIGNALED | SOLICITED, ((0, 190),)) + flow(2) + POLLS,
        ud_other_way=wide + recv(0, UD) + send(1, UD, SEND) + flow(2) + POLLS,
        ud_too_long=c + send(0, UD, SEND, sges=BIG) + flow(1) + poll(0),
        ud_srq_limit=config(srq=1) + srq(1) * 3 + step("resize", 1) + b"\x22" + send(0, UD, SEND) * 2
        + flow(2) + poll(1),
        forge_requests=c + recv(1, RC) + recv(1, UC) + recv(1, UD)
        + b"".join(forge(1, kind, op, n=100) for kind in range(3) for op in range(24)) + flow(1),
        forge_answers=c + ops + run(0)
        + b"".join(forge(0, RC, op, 0x84 + i, syndrome=s) for i, (op, s) in enumerate(answers)) + flow(1),
        forge_ack_of_all=config(small_cq=1, sizes=0xF0) + send(0, RC, WRITE) * 6 + run(0)
        + forge(0, RC, 17, 0xC7) + poll(0),
        corrupt=c + ops + run(0) + step("corrupt") + b"\0\3\0" + step("corrupt") + b"\x0b\1\0"
        + step("corrupt") + b"\1\x40\1\5" + deliver(0) + flow(2),
    )  # fmt: skip


# --- fuzz_cm.c ---------------------------------------------------------------------------------------

KINDS = [*CM_MESSAGES, "lap", "apr"]
CALLS = "req sidr_req rep rtu rej mra dreq drep sidr_rep established destroy".split()
HEADER, IDS, CONTENT = 1, 2, 4
AGAIN, CM_DEADLINE, LISTEN = b"\2", b"\5", b"\6"
REFUSING = 0x80
GUID = bytes.fromhex("027700fffe000011")  # of the peer
HABITS = 0x6A  # 3 retries, 4.2 ms ACK timeout, 8.6 s for the peer
GOLDEN_MADS = {kind: data[2:] for kind, data in cm_messages().items() if kind in CM_MESSAGES}


def raw(mad, control=0, slot=0):
    """As it is; 255 stands for 256 bytes."""
    return bytes([0, control, slot, {256: 255, 257: 254}.get(len(mad), len(mad))]) + mad


def mad(kind, slot=0, control=HEADER | IDS | CONTENT, refusing=0, at=0, other=b""):
    """The data that a kernel sent in such a message, made one of this connection's; with other bytes there."""
    data = GOLDEN_MADS.get(kind, bytes(256))[24:]
    data = (data[:at] + other + data[at + len(other) :]).rstrip(b"\0")
    return bytes([1 | refusing, control | KINDS.index(kind) << 3, slot, len(data)]) + data


def call(name, slot=0, length=5):
    args = b"" if name == "destroy" else bytes([length])
    if name in ("req", "sidr_req"):
        args = bytes([HABITS]) + args
    return bytes([3, slot, CALLS.index(name)]) + args


def some_time(exponent):
    return bytes([4, exponent])


# How slot 0 comes into each state.
CM_STATES = dict(
    idle=call("rtu"),
    req_sent=call("req"),
    rep_rcvd=call("req") + mad("rep"),
    mra_rep_sent=call("req") + mad("rep") + call("mra"),
    active_established=call("req") + mad("rep") + call("rtu"),
    req_rcvd=mad("req"),
    mra_req_sent=mad("req") + call("mra"),
    rep_sent=mad("req") + call("rep"),
    passive_established=mad("req") + call("rep") + mad("rtu"),
    dreq_sent=mad("req") + call("rep") + mad("rtu") + call("dreq"),
    dreq_rcvd=call("req") + mad("rep") + call("rtu") + mad("dreq"),
    timewait=call("req") + mad("rep") + call("rtu") + call("dreq") + mad("drep"),
    sidr_req_sent=call("sidr_req"),
    sidr_req_rcvd=mad("sidr_req"),
    sidr_rep_sent=mad("sidr_req") + call("sidr_rep"),
)


def cm():
    out = {}
    for name, begin in CM_STATES.items():
        end = call("destroy") + CM_DEADLINE
        out["messages_" + name] = b"".join(begin + mad(kind) + end for kind in KINDS)
        out["calls_" + name] = b"".join(begin + call(c) + end for c in CALLS)
        out["deadlines_" + name] = begin + CM_DEADLINE * 20 + some_time(39)
        out["foreign_" + name] = begin + b"".join(mad(kind, control=HEADER | CONTENT) for kind in KINDS)
    for kind, data in GOLDEN_MADS.items():
        out["golden_" + kind] = (raw(data) + AGAIN + raw(data[:-1]) + raw(data + b"\0")
                                         + raw(data[:24]) + raw(data, IDS) + raw(b"\2" + data[1:]))  # fmt: skip
    out["refused"] = mad("req", refusing=REFUSING) + mad("sidr_req", refusing=REFUSING)
    out["nobody_listens"] = LISTEN + mad("req") + mad("sidr_req") + LISTEN + mad("req")
    out["too_many"] = b"".join(mad("req", slot) for slot in range(8)) * 2
    out["stale"] = (mad("req", control=HEADER | IDS) + call("rep") + mad("rtu")
                    + mad("req", 1, HEADER) + call("req", 2) + mad("rep", 2, HEADER | IDS)
                    + call("req", 3) + mad("rep", 3, HEADER | IDS))  # fmt: skip
    for name in ("idle", "rep_rcvd", "req_rcvd", "active_established", "sidr_req_rcvd"):
        out["too_long_" + name] = CM_STATES[name] + b"".join(call(c, 0, 255) for c in CALLS[:9])
    for name in ("req_sent", "rep_sent", "rep_rcvd", "active_established", "passive_established"):
        out["refusals_" + name] = b"".join(
            CM_STATES[name] + mad("rej", at=8, other=bytes([about << 6, 8 << 1, 0, reason]) + GUID)
            + call("destroy") + CM_DEADLINE
            for about in range(3) for reason in (4, 10, 28)
        )  # fmt: skip
    for name in ("req_sent", "rep_sent"):
        out["mra_about_each_" + name] = CM_STATES[name] + b"".join(
            mad("mra", at=8, other=bytes([about << 6, 20 << 3])) + CM_DEADLINE for about in range(4)
        )
    out["dreq_of_another_qp"] = CM_STATES["passive_established"] + mad("dreq", control=HEADER | IDS)
    out["req_odd"] = b"".join(
        mad("req", at=at, other=other) for at, other in ((43, b"\6"), (50, b"\xf0"), (50, b"\0"))
    )
    out["many_deadlines"] = (b"".join(call("req", slot) for slot in range(8)) + call("destroy", 3)
                             + CM_DEADLINE * 9 + call("destroy", 0) + CM_DEADLINE * 30)  # fmt: skip
    out["many_at_once"] = b"".join(
        call("req", slot) + mad("rep", slot) + call("rtu", slot) for slot in range(8)
    ) + b"".join(mad("dreq", slot) for slot in range(8))
    return out


# --- rsockets --------------------------------------------------------------------------------------


def rsocket_wire():
    """What a genuine rsocket said of itself in tests/golden/rxe-rstream.pcap; headers by hand."""
    conn = bytes.fromhex("0102018000000000 0000564e553d0000 0000151e 00000002 00007f03e1677000 000016f9 00080000")
    ipv4, ipv6 = bytes([10, 77, 0, 12]), b"\xfd" + bytes(14) + b"\1"
    tag, qpn = b"UUUU", b"\0\x12\x34\x56"
    return {
        "conn": conn,
        "conn_padded": conn + bytes(156),
        "conn_big_endian": conn[:1] + b"\3" + conn[2:7] + b"\xff" + conn[8:],
        "conn_no_slots": conn[:20] + bytes(4) + conn[24:],
        "conn_version_2": b"\2" + conn[1:],
        "udp_data_ipv4": tag + b"\4\0\x10\0" + qpn + ipv4 + b"data",
        "udp_control_ipv6": tag + b"\6\7\x1c\0" + qpn + ipv6,
        "udp_wrong_length": tag + b"\4\0\x1c\0" + qpn + ipv4,
        "ud_ipv4": b"\4\x08\x1d\x2f" + ipv4 + b"data",
        "ud_ipv6": b"\6\x18\x1d\x2f" + bytes(4) + ipv6,
        "ud_too_short": b"\6\x18\x1d\x2f" + bytes(8),
    }


write("rsocket_wire", rsocket_wire())
write("headers", headers())
write("rx", rx())
write("cm_message", cm_messages())
write("cm", cm())
write("endpoints", {**rc_programs(), **other_programs()})
