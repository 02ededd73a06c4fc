#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""bench.py - speed and memory, beside what this machine can do without RDMA in the same run.

A number alone says little: machines differ, and so does the load of one machine. So each target is a
ratio to a limit measured a moment before or after. Every figure is the median of a few short runs.
"""
import argparse
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests" / "lib"))

import hosts  # noqa: E402

MIB = 1 << 20
RUNS = 3


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def named_values(text):
    """{name: value} of lines that read "name value unit"."""
    return {name: float(value) for name, value in re.findall(r"^(\w+) ([\d.]+) \S+$", text, re.M)}


def perftest(pair, program, *arguments, **environment):
    """The median of the column that counts: GB/s of *_bw, microseconds of *_lat."""
    values = []
    for i in range(RUNS):
        progress(f"{program} {' '.join(arguments)}, run {i + 1} of {RUNS}")
        _, output = hosts.run_pair(*pair, program, "-F", "-x", "1", *arguments, limit=60, **environment)
        row = hosts.perftest_rows(output)[-1]
        values.append(row[3] * MIB / 1e9 if program.endswith("_bw") else row[4])
    return statistics.median(values)


def iperf3(pair):
    values = []
    for i in range(RUNS):
        progress(f"iperf3, run {i + 1} of {RUNS}")
        port = hosts.free_port()
        with pair[0].start_plain("iperf3", "-s", "-1", "-p", port) as server:
            server.wait_listening(port)
            with pair[1].start_plain("iperf3", "-c", pair[0].reach, "-p", port, "-t", 2, "-J") as client:
                values.append(json.loads(client.succeed())["end"]["sum_received"]["bits_per_second"] / 8e9)
            server.succeed()
    return statistics.median(values)


class Table:
    def __init__(self):
        self.rows = []

    def add(self, what, value, unit, against="", reference=None, target="", ok=None):
        ratio = value / reference if reference else None
        self.rows.append((what, f"{value:.2f} {unit}" if unit != "B" else f"{value:.0f} B", against,
                          "" if reference is None else f"{ratio:.2f}", target,
                          "" if ok is None else "ok" if ok(value if ratio is None else ratio) else "BELOW"))

    def show(self):
        rows = [("what", "measured", "against", "ratio", "target", ""), *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        for row in rows:
            print("  ".join(cell.rjust(width) if i in (1, 3) else cell.ljust(width)
                            for i, (cell, width) in enumerate(zip(row, widths))).rstrip())
        return all(row[5] != "BELOW" for row in self.rows)


def measure_local(table, host, limits):
    pair = (host, host)
    big = ("-s", str(MIB), "-n", "3000")
    table.add("local ib_write_bw 1 MiB", perftest(pair, "ib_write_bw", *big), "GB/s",
              "process_vm_writev 1 MiB", limits["process_vm_writev_1MiB"], ">= 0.5", lambda r: r >= 0.5)
    table.add("local ib_read_bw 1 MiB", perftest(pair, "ib_read_bw", *big), "GB/s",
              "process_vm_writev 1 MiB", limits["process_vm_writev_1MiB"])
    table.add("local ib_send_bw 1 MiB", perftest(pair, "ib_send_bw", *big), "GB/s",
              "memcpy 64 KiB", limits["memcpy_64KiB"])
    table.add("local ib_send_lat 8 B", perftest(pair, "ib_send_lat", "-s", "8", "-n", "20000"), "us",
              "shared-memory ping-pong", limits["shared_memory_one_way"], "<= 5", lambda r: r <= 5)
    table.add("local ib_write_lat 8 B", perftest(pair, "ib_write_lat", "-s", "8", "-n", "5000"), "us",
              "process_vm_writev 8 B", limits["process_vm_writev_8B_latency"])
    table.add("local ib_atomic_lat", perftest(pair, "ib_atomic_lat", "-n", "5000"), "us")


def measure_wire(table, pair, limits, where):
    big = ("-s", str(MIB), "-n", "2000")
    tcp = iperf3(pair)
    table.add("wire ib_write_bw 1 MiB", perftest(pair, "ib_write_bw", *big), "GB/s",
              f"iperf3 TCP, {where}", tcp, ">= 0.5", lambda r: r >= 0.5)
    table.add("wire ib_read_bw 1 MiB", perftest(pair, "ib_read_bw", *big), "GB/s",
              f"iperf3 TCP, {where}", tcp)
    table.add("wire ib_send_bw 1 MiB", perftest(pair, "ib_send_bw", *big), "GB/s",
              "UDP stream on loopback", limits["udp_loopback_stream"])
    table.add("wire ib_send_lat 8 B", perftest(pair, "ib_send_lat", "-s", "8", "-n", "5000"), "us",
              "UDP on loopback", limits["udp_loopback_one_way"])


def measure_connections(table, pair, where, program):
    """Reliable connections through librdmacm, from the address to established, 64 at a time."""
    values = []
    for i in range(RUNS):
        progress(f"2000 connections {where}, run {i + 1} of {RUNS}")
        output = pair[0].run(program, "--rounds", "2", pair[0].address, pair[1].address, limit=120)
        values.append(named_values(output)["connections_per_second"])
    table.add(f"connections a second, {where}", statistics.median(values), "1/s", target=">= 2000",
              ok=lambda v: v >= 2000)


def measure_idle(table, host, program):
    progress("1000 idle queue pairs for 10 s")
    idle = named_values(host.run(program, "1000", "10", limit=60))
    table.add("an idle RC QP, resident", idle["idle_qp_resident"], "B", target="<= 8192", ok=lambda v: v <= 8192)
    table.add("an idle RC QP, allocated", idle["idle_qp_allocated"], "B")
    table.add("1000 idle QPs for 10 s", idle["idle_ticks"], "ticks", target="0", ok=lambda v: v < 1)


def show_limits(limits):
    """What the ratios are to."""
    print("this machine, without RDMA:")
    for name, value in limits.items():
        if name.startswith("process_vm_writev_8B") and not name.endswith("latency"):
            continue
        unit = "us" if name.endswith(("latency", "one_way")) else "GB/s"
        print(f"  {name.replace('_', ' '):36} {value:8.3f} {unit}")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    build = parser.parse_args().build.absolute()
    hosts.VERBENA = build / "bin" / "verbena"

    first, second = (hosts.Host(address) for address in hosts.loopback_pair())
    table, veth = Table(), None
    progress("this machine's limits")
    limits = named_values(first.start_plain(build / "bench" / "bench_limits").succeed(60))
    try:
        measure_local(table, first, limits)
        try:
            veth = hosts.Veth()
            measure_wire(table, veth.hosts(4), limits, "veth 9000")
        except OSError as reason:
            print(f"wire on loopback: {reason}", file=sys.stderr)
            measure_wire(table, (first, second), limits, "loopback")
        connector = build / "bin" / "connector"
        measure_connections(table, (first, first), "one host", connector)
        measure_connections(table, (first, second), "two hosts", connector)
        measure_idle(table, first, build / "bench" / "bench_idle")
    finally:
        progress("")
        if veth:
            veth.close()
    show_limits(limits)
    met = table.show()
    print("\nEvery target is met." if met else "\nNot every target is met.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
