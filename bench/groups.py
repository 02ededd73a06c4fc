# SPDX-License-Identifier: BSD-2-Clause
"""groups.py - what is measured, what it is compared with, and what is to be reached.

    Group    jobs that take turns in each round, the rows of the table and the plots made of them
    Plot     series over the size of a message
"""
import dataclasses
import re

import peers
import perftest
import stand as stands
from figures import KIB, MIB, Row
from perftest import key
from stand import Job

CURVE_SIZES = (8, 256, 4 * KIB, 64 * KIB, MIB)
UDP_SIZES = CURVE_SIZES[:3]  # what one datagram of the larger MTU may hold
MANY = 4096
IDLE_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Plot:
    name: str  # of its file
    title: str
    unit: str
    curves: dict  # {label: {size: key}}; Verbena's first
    flat: dict = dataclasses.field(default_factory=dict)  # {label: key}: what has no size


@dataclasses.dataclass(frozen=True)
class Group:
    name: str
    about: str
    make: object  # of a Stand and whether the curves are wanted: (jobs, rows, plots)
    rounds: int = 0  # when a fixed number is enough
    default: bool = True


def local(stand, curves):
    pair = lambda: (stand.local, stand.local)  # noqa: E731
    bw_sizes = CURVE_SIZES if curves else (8, 64 * KIB, MIB)
    lat_sizes = CURVE_SIZES if curves else (8,)
    own = {program: {size: key("local", program, size) for size in bw_sizes}
           for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw")}
    own |= {program: {size: key("local", program, size) for size in lat_sizes}
            for program in ("ib_send_lat", "ib_write_lat")}
    jobs = [perftest.job(stand, "local", pair, program, size) for program in own for size in own[program]]
    jobs = interleave(jobs, [
        peers.limits("process_vm_writev", bw_sizes), peers.limits("process_vm_writev", lat_sizes, latency=True),
        peers.limits("process_vm_readv", bw_sizes), peers.limits("ping_pong", (8,), latency=True),
        peers.ucx(stand.local, lat_sizes, bw_sizes), peers.fi_pingpong(stand.local, CURVE_SIZES)])
    writev = {size: peers.limit_key("process_vm_writev", size) for size in bw_sizes}
    rows = [
        Row("ib_write_bw 1 MiB", own["ib_write_bw"][MIB], writev[MIB], at_least=0.90),
        Row("ib_read_bw 1 MiB", own["ib_read_bw"][MIB], writev[MIB], at_least=0.90),
        Row("ib_read_bw 1 MiB", own["ib_read_bw"][MIB], peers.limit_key("process_vm_readv", MIB)),
        Row("ib_write_bw 64 KiB", own["ib_write_bw"][64 * KIB], writev[64 * KIB], at_least=0.80),
        Row("ib_read_bw 64 KiB", own["ib_read_bw"][64 * KIB], writev[64 * KIB], at_least=0.80),
        Row("ib_send_bw 1 MiB", own["ib_send_bw"][MIB], writev[MIB], at_least=0.80),
        Row("ib_send_bw 1 MiB", own["ib_send_bw"][MIB], peers.ucx_key("tag_bw", MIB), at_least=1.0),
        Row("ib_send_lat 8 B", own["ib_send_lat"][8], "ping_pong", at_most=2.0),
        Row("ib_send_lat 8 B", own["ib_send_lat"][8], peers.ucx_key("tag_lat", 8), at_most=1.5),
        Row("ib_send_lat 8 B", own["ib_send_lat"][8], peers.fi_key("latency", 8)),
        Row("ib_write_lat 8 B", own["ib_write_lat"][8], peers.limit_key("process_vm_writev") + " latency", at_most=1.3),
        Row("ib_send_bw 8 B, messages", own["ib_send_bw"][8] + ", messages",
            peers.ucx_key("tag_bw", 8) + ", messages", at_least=2.0),
    ]
    if not curves:
        return jobs, rows, []
    return jobs, rows, [
        Plot("local-bandwidth", "Bandwidth on one host", "GB/s",
             {f"Verbena {p}": own[p] for p in ("ib_write_bw", "ib_read_bw", "ib_send_bw")}
             | {"process_vm_writev": writev, "UCX tag_bw": {s: peers.ucx_key("tag_bw", s) for s in CURVE_SIZES},
                "fi_pingpong, shm": {s: peers.fi_key("bandwidth", s) for s in CURVE_SIZES}}),
        Plot("local-latency", "Latency on one host, one way", "us",
             {f"Verbena {p}": own[p] for p in ("ib_send_lat", "ib_write_lat")}
             | {"UCX tag_lat": {s: peers.ucx_key("tag_lat", s) for s in CURVE_SIZES},
                "fi_pingpong, shm": {s: peers.fi_key("latency", s) for s in CURVE_SIZES},
                "process_vm_writev": {s: peers.limit_key("process_vm_writev", s) + " latency" for s in CURVE_SIZES}},
             {"shared-memory ping-pong": "ping_pong"})]


def share(stand, curves):
    pair = lambda: (stand.local, stand.local)  # noqa: E731

    def one(program, size):
        return perftest.job(stand, "local", pair, program, size, how="shared", needs="VERBENA_SHARE", VERBENA_SHARE="1")

    jobs = [one("ib_write_lat", 8), peers.limits("ping_pong", (8,), latency=True), one("ib_atomic_lat", 8),
            peers.limits("shared_copy", (MIB,)), one("ib_write_bw", MIB)]
    return jobs, [
        Row("ib_write_lat 8 B", key("local", "ib_write_lat", 8, "shared"), "ping_pong", at_most=1.5),
        Row("ib_write_bw 1 MiB", key("local", "ib_write_bw", MIB, "shared"), peers.limit_key("shared_copy", MIB),
            at_least=0.8),
        Row("ib_atomic_lat, more by (us)", key("local", "ib_atomic_lat", 8, "shared"), "ping_pong", at_most=0.5,
            by="difference"),
    ], []


def wire(stand, mtu, curves):
    place, pair = f"veth {mtu}", lambda: stand.wire(mtu)
    whole = mtu == 9000  # the small messages, and the curves, are measured once
    bw_sizes = CURVE_SIZES if curves and whole else (MIB,)
    lat_sizes = CURVE_SIZES if curves else (8,)
    udp_sizes = UDP_SIZES if curves else (8,)
    own = {program: {size: key(place, program, size) for size in bw_sizes}
           for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw")}
    theirs = [peers.iperf3(place, pair)]
    if whole:
        own["ib_send_bw"] |= {8: key(place, "ib_send_bw", 8)}
        own |= {program: {size: key(place, program, size) for size in lat_sizes}
                for program in ("ib_send_lat", "ib_write_lat")}
        theirs += [peers.sockperf(place, pair), peers.udp(place, pair, "ping", udp_sizes),
                   peers.udp(place, pair, "flood", udp_sizes)]
    jobs = [perftest.job(stand, place, pair, program, size) for program in own for size in own[program]]
    tcp, bound = theirs[0].name, 2.5 if whole else 1.8
    rows = [Row(f"{program} 1 MiB", own[program][MIB], tcp, at_least=bound)
            for program in ("ib_write_bw", "ib_send_bw", "ib_read_bw")]
    plots = []
    if whole:
        rows += [Row(f"{program} 8 B", own[program][8], theirs[1].name, at_most=1.3)
                 for program in ("ib_send_lat", "ib_write_lat")]
        rows += [Row("ib_send_lat 8 B", own["ib_send_lat"][8], peers.udp_key(place, "ping", 8)),
                 Row("ib_send_bw 8 B, messages", own["ib_send_bw"][8] + ", messages",
                     peers.udp_key(place, "flood", 8) + ", messages", at_least=5.0)]
    if whole and curves:
        plots = [
            Plot("wire-bandwidth", "Bandwidth over veth, MTU 9000", "GB/s",
                 {f"Verbena {p}": own[p] for p in ("ib_write_bw", "ib_read_bw", "ib_send_bw")}
                 | {"UDP, a sendto each": {s: peers.udp_key(place, "flood", s) for s in udp_sizes}},
                 {"TCP, iperf3": tcp}),
            Plot("wire-latency", "Latency over veth, MTU 9000, one way", "us",
                 {f"Verbena {p}": own[p] for p in ("ib_send_lat", "ib_write_lat")}
                 | {"UDP, polling": {s: peers.udp_key(place, "ping", s) for s in udp_sizes}},
                 {"sockperf UDP, 14 B": theirs[1].name})]
    return interleave(jobs, theirs), rows, plots


def events(stand, curves):
    jobs, rows = [], []
    for place, pair in (("local", lambda: (stand.local, stand.local)), ("veth 9000", lambda: stand.wire(9000))):
        own = perftest.job(stand, place, pair, "ib_send_lat", 8, "-e", how="-e")
        udp = peers.udp(place, pair, "ping", (8,), block=True)
        jobs += [own, udp]
        rows.append(Row(f"{place}: ib_send_lat -e 8 B", own.name, peers.udp_key(place, "ping", 8, block=True),
                        at_most=1.5))
    return jobs, rows, []


def named_values(text):
    """{name: value} of lines that read "name value unit"."""
    return {name: float(value) for name, value in re.findall(r"^(\w+) ([\d.]+) \S+$", text, re.M)}


def many(stand, curves):
    jobs, rows = [], []
    for place, settings in (("local", {}), ("by UDP", {"VERBENA_LOCAL": "0"})):
        names = {}
        for count in (1, MANY):
            name = names[count] = f"{place}: {count:,} QP{'s' * (count > 1)}"

            def run(count=count, name=name, settings=settings):
                output = stand.local.run(stands.PROGRAMS / "bench_many", count, 400, limit=60, **settings)
                found = named_values(output)
                return {f"{name}, messages": found["messages_per_second"] / 1e6,
                        f"{name}, empty poll": found["empty_poll"]}

            jobs.append(Job(name, {f"{name}, messages": "M/s", f"{name}, empty poll": "ns"}, run, stand=stand))
        for what, target in (("messages", {"at_least": 0.5}), ("empty poll", {"at_most": 1.25})):
            rows.append(Row(f"{names[MANY]}, {what}", f"{names[MANY]}, {what}", f"{names[1]}, {what}", **target))
    return jobs, rows, []


def connect(stand, curves):
    """Reliable connections through librdmacm, from the address to established, 64 at a time."""
    jobs = []
    for where, server, client in (("one host", stand.local, stand.local), ("two hosts", stand.local, stand.second)):
        name = f"connections, {where}"

        def run(name=name, server=server, client=client):
            program = stands.PROGRAMS.parent / "bin" / "connector"
            output = server.run(program, "--rounds", "2", server.address, client.address, limit=120)
            return {name: named_values(output)["connections_per_second"]}

        jobs.append(Job(name, {name: "1/s"}, run, stand=stand))
    return jobs, [Row(job.name, job.name) for job in jobs], []


def idle(stand, curves):
    units = {"an idle QP, resident": "B", "an idle QP, allocated": "B", f"idle for {IDLE_SECONDS} s": "ticks"}

    def run():
        output = stand.local.run(stands.PROGRAMS / "bench_idle", MANY, IDLE_SECONDS, limit=120)
        found = named_values(output)
        return dict(zip(units, (found["idle_qp_resident"], found["idle_qp_allocated"], int(found["idle_ticks"]))))

    return [Job(f"{MANY:,} idle QPs", units, run, stand=stand)], [
        Row(f"resident memory of {MANY:,} connected QPs, each", "an idle QP, resident", at_most=4096, by="value"),
        Row(f"allocated memory of {MANY:,} connected QPs, each", "an idle QP, allocated", at_most=4096, by="value"),
        Row(f"processor time of {MANY:,} idle QPs", f"idle for {IDLE_SECONDS} s", at_most=0, by="value"),
    ], []


def interleave(ours, theirs):
    """Theirs spread among ours, so that neither has a time of its own."""
    step = max(len(ours) // (len(theirs) or 1), 1)
    mixed, rest = [], list(theirs)
    for i, job in enumerate(ours):
        mixed.append(job)
        if i % step == step - 1 and rest:
            mixed.append(rest.pop(0))
    return mixed + rest


def guest(stand, curves):
    import guest as in_guest  # what it needs is not installed for the other groups
    return in_guest.group(stand)


GROUPS = (
    Group("local", "two programs of one host, beside what shared memory can do", local),
    Group("share", "the same with VERBENA_SHARE=1: pages of memory shared by both", share),
    Group("wire9000", "two network namespaces joined by veth of MTU 9000, beside TCP and UDP",
          lambda stand, curves: wire(stand, 9000, curves)),
    Group("wire1500", "the same with MTU 1500", lambda stand, curves: wire(stand, 1500, curves)),
    Group("events", "completions by event (-e), beside a UDP ping-pong that sleeps", events),
    Group("many", f"{MANY:,} connected RC queue pairs in one process, round-robin", many),
    Group("connect", "connections set up a second, by the connection manager", connect, rounds=3),
    Group("idle", f"memory and processor time of {MANY:,} connected queue pairs that do nothing", idle, rounds=1),
    Group("guest", "Verbena and a kernel's Soft-RoCE in one guest (QEMU, two processors); as root", guest,
          default=False),
)
