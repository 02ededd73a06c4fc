# SPDX-License-Identifier: BSD-2-Clause
"""peers.py - what people use where there is no RDMA, and the machine's own limits, as jobs."""
import json
import re
import tempfile

import hosts
import stand
from figures import KIB, MIB, size_text
from perftest import times
from stand import Job, serving

LIMIT = 60


def limit_key(limit, size=8):
    return limit if limit == "ping_pong" else f"{limit} {size_text(size)}"


def limits(limit, sizes, latency=False):
    """One of bench_limits, in GB/s or us. The name of a latency's key says so."""
    ending = " latency" if latency and limit != "ping_pong" else ""
    names = {size: limit_key(limit, size) + ending for size in sizes}
    unit = "us" if latency else "GB/s"

    def run():
        command = (stand.PROGRAMS / "bench_limits", f"{limit}:{','.join(map(str, sizes))}")
        with hosts.Host("").start_plain(*command) as program:
            taken = re.findall(r"^\w+ (\d+) ([\d.]+) us$", program.succeed(LIMIT), re.M)
        return {names[int(size)]: float(us) if latency else int(size) / float(us) / 1e3 for size, us in taken}

    return Job(limit, {name: unit for name in names.values()}, run)


def ucx_key(test, size):
    return f"UCX {test} {size_text(size)}"


def ucx(host, latencies, bandwidths):
    """ucx_perftest over shared memory: all its tests on one connection."""
    tests = [("tag_lat", size) for size in latencies] + [("tag_bw", size) for size in bandwidths]
    units = {ucx_key(test, size): "us" if test == "tag_lat" else "GB/s" for test, size in tests}
    units |= {ucx_key("tag_bw", size) + ", messages": "M/s" for size in bandwidths}

    def run():
        with tempfile.NamedTemporaryFile("w", prefix="verbena-ucx-") as batch:
            for test, size in tests:
                n = times("ucx_lat" if test == "tag_lat" else "ucx_bw", size)
                batch.write(f"{test}_{size} -t {test} -s {size} -n {n} -w {max(n // 10, 10)}\n")
            batch.flush()
            port = hosts.free_port()
            command = ("ucx_perftest", "-b", batch.name, "-f", "-v", "-p", port)
            settings = {"UCX_TLS": "posix,cma", "UCX_LOG_LEVEL": "warn"}
            with serving(host, port, *command, **settings) as server:
                with host.start_plain(*command, host.reach, **settings) as client:
                    _, output = hosts.succeed_both(server, client, LIMIT)
        return ucx_figures(output)

    return Job("ucx_perftest", units, run)


def ucx_figures(output):
    """{key: number} of lines that read NAME,iterations,latency of the middle, average, overall, MiB/s twice,
    messages/s twice."""
    found = {}
    for test, size, numbers in re.findall(r"^(tag_\w+)_(\d+),(?:Final:)? *(.*)$", output, re.M):
        columns, name = [float(word) for word in numbers.split(",")], ucx_key(test, int(size))
        if test == "tag_lat":
            found[name] = columns[1]
        else:
            found[name], found[f"{name}, messages"] = columns[5] * MIB / 1e9, columns[7] / 1e6
    return found


def fi_key(what, size):
    return f"fi_pingpong {what} {size_text(size)}"


def fi_pingpong(host, sizes):
    """libfabric's shared-memory provider."""
    units = {fi_key("latency", size): "us" for size in sizes} | {fi_key("bandwidth", size): "GB/s" for size in sizes}

    def run():
        port = hosts.free_port()
        command = ("fi_pingpong", "-p", "shm", "-e", "rdm", "-I", 200, "-S", "all")
        with serving(host, port, *command, "-B", port) as server:
            with host.start_plain(*command, "-P", port, host.reach) as client:
                _, output = hosts.succeed_both(server, client, LIMIT)
        found = fi_figures(output)
        return {name: found[name] for name in units}

    return Job("fi_pingpong", units, run)


def fi_figures(output):
    """{key: number} of rows: bytes, sent, acknowledged, total, seconds, MB/s, microseconds one way."""
    found = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) == 8 and re.fullmatch(r"\d+[km]?", words[0]):
            scale = {"k": KIB, "m": MIB}.get(words[0][-1], 1)
            size = int(words[0].rstrip("km")) * scale
            found[fi_key("latency", size)] = float(words[6])
            found[fi_key("bandwidth", size)] = size / float(words[6]) / 1e3 if float(words[6]) else 0.0
    return found


def iperf3(place, pair):
    name = f"{place}: iperf3 TCP"

    def run():
        server_host, client_host = pair()
        port = hosts.free_port()
        with serving(server_host, port, "iperf3", "-s", "-1", "-p", port) as server:
            with client_host.start_plain("iperf3", "-c", server_host.reach, "-p", port, "-t", 1, "-J") as client:
                report = json.loads(client.succeed(LIMIT))
            server.succeed(LIMIT)
        return {name: report["end"]["sum_received"]["bits_per_second"] / 8e9}

    return Job(name, {name: "GB/s"}, run)


def sockperf(place, pair):
    """UDP ping-pong; both sides poll."""
    name = f"{place}: sockperf UDP"

    def run():
        server_host, client_host = pair()
        port = hosts.free_port()
        where = ("-i", server_host.reach, "-p", port, "--nonblocked")
        with serving(server_host, port, "sockperf", "server", *where, ready=hosts.Program.binds):
            with client_host.start_plain("sockperf", "ping-pong", *where, "-t", 1, "-m", 14) as client:
                output = client.succeed(LIMIT)
        return {name: float(re.search(r"percentile 50\.000 = *([\d.]+)", output)[1])}

    return Job(name, {name: "us"}, run)


def udp_key(place, word, size, block=False):
    return f"{place}: UDP {'blocking ' if block else ''}{word} {size_text(size)}"


def udp(place, pair, word, sizes, block=False):
    """bench_udp's ping-pong, or its plain loop of sendto; the latter in messages and in bytes a second."""
    names = {size: udp_key(place, word, size, block) for size in sizes}
    units = {name: "us" for name in names.values()}
    if word == "flood":
        units = {name: "GB/s" for name in names.values()} | {f"{name}, messages": "M/s" for name in names.values()}

    def run():
        server_host, client_host = pair()
        port, flags = hosts.free_port(), ("--block",) if block else ()
        program = stand.PROGRAMS / "bench_udp"
        with serving(server_host, port, program, "serve", *flags, server_host.reach, port, ready=hosts.Program.binds):
            with client_host.start_plain(program, word, *flags, server_host.reach, port, *sizes) as client:
                found = re.findall(rf"^{word} (\d+) ([\d.]+) \S+$", client.succeed(LIMIT), re.M)
        figures = {}
        for size, number in ((int(size), float(number)) for size, number in found):
            figures[names[size]] = number if word == "ping" else number * size / 1e9
            if word == "flood":
                figures[f"{names[size]}, messages"] = number / 1e6
        return figures

    return Job(f"{place}: UDP {word}", units, run)
