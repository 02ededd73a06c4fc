# SPDX-License-Identifier: BSD-2-Clause
"""families.py - the runs that the tests make with and without loss: how a program is called, and what must have come out."""
import re

import hosts

RC_PINGPONGS = ("ibv_rc_pingpong", "ibv_srq_pingpong")
PINGPONGS = (*RC_PINGPONGS, "ibv_uc_pingpong", "ibv_ud_pingpong")

# The same adapter's limit is announced by both sides of a pair that perftest was made for.
# Soft-RoCE's 128 is more than ours, and perftest asks each side for what the other announces.
READS_AT_ONCE = ("-o", 16)


def pingpong_arguments(program, iterations, mtu, size, gid, how):
    """-c: the data of each message is checked. Soft-RoCE's single processor sleeps (-e) better than it
    spins."""
    path = [] if program == "ibv_ud_pingpong" else ["-m", mtu]
    return ["-n", iterations, *path, "-s", size, "-g", gid, "-c", *how.split()]


def check_pingpong(output, iterations, size):
    moved = re.search(r"^(\d+) bytes in [\d.]+ seconds", output, re.M)
    rounds = re.search(r"^(\d+) iters in [\d.]+ seconds", output, re.M)
    assert moved and rounds, output
    assert int(moved[1]) == size * iterations * 2
    assert int(rounds[1]) == iterations
    assert "invalid data" not in output


def pingpong(pair, program, iterations, mtu=1024, size=4096, gid=1, how="-e"):
    for output in hosts.run_pair(*pair, program, *pingpong_arguments(program, iterations, mtu, size, gid, how)):
        check_pingpong(output, iterations, size)


LAST_ACK_LOST_AT_MOST = 3  # runs in a row; once is one in some hundred


def pingpong_with_loss(pair, program, iterations, mtu, size):
    """Who has everything ends, and with him his queue pair. When his last ACK was lost, the other can only
    find that nobody answers; but he too had everything then. Soft-RoCE never finds it (a retry_cnt of 7
    is for ever there): then the run says nothing, and there is another."""
    for _ in range(LAST_ACK_LOST_AT_MOST):
        if try_pingpong_with_loss(pair, program, iterations, mtu, size):
            return
    raise AssertionError(f"{program}: a peer was left waiting {LAST_ACK_LOST_AT_MOST} times")


def wait_for_all(sides):
    """{side: exit status}, None: it did not end, although another one did, well."""
    ended = {}
    for side in sides:
        try:
            ended[side] = side.wait()
        except hosts.Failed:
            ended[side] = None
    assert 0 in ended.values(), "\n---\n".join(side.output() for side in sides)
    return ended


def try_pingpong_with_loss(pair, program, iterations, mtu, size):
    port = hosts.free_port()
    arguments = (program, "-p", port, *pingpong_arguments(program, iterations, mtu, size, 1, "-e"))
    with pair[0].start(*arguments) as server:
        server.wait_listening(port)
        with pair[1].start(*arguments, pair[0].reach) as client:
            ended = wait_for_all((client, server))
            for side, status in ended.items():
                if status == 0:
                    check_pingpong(side.output(), iterations, size)
                elif status is not None:
                    assert "transport retry counter exceeded" in side.output(), side.output()
            return None not in ended.values()


def perftest(pair, program, kind, size, mtu, iterations=10):
    """kind: a transport, or an atomic operation. Both sides' tables must show the size and the
    iterations."""
    arguments = ["-F", "-x", 1, "-m", mtu, "-n", iterations]
    if "atomic" in program:
        arguments += ["-A", kind]
    else:
        arguments += ["-c", kind, "-s", size]
    if "atomic" in program or "read" in program:
        arguments += READS_AT_ONCE
    if not program.startswith("ib_write"):
        arguments.append("-e")
    _, client = hosts.run_pair(*pair, program, *arguments, limit=60)
    rows = hosts.perftest_rows(client)
    assert [row[:2] for row in rows] == [[size, iterations]], client


def perftest_by_time(pair, program, kind, size, mtu, seconds=2):
    """For what may lose messages: the receiver counts what came until the time is over."""
    for output in hosts.run_pair(*pair, program, "-F", "-x", 1, "-m", mtu, "-c", kind, "-s", size, "-D", seconds):
        (row,) = hosts.perftest_rows(output)
        assert row[0] == size and row[1] > 100, output


def mover(pair, *arguments, limit=hosts.DEFAULT_LIMIT):
    """Our own program: every operation, odd lengths up to 1 MiB and a byte, every byte compared. Returns
    the number of transfers."""
    server, client = pair
    port = hosts.free_port()
    with server.start(server.mover, "--port", port, *arguments) as serving:
        serving.wait_listening(port)
        with client.start(client.mover, "--port", port, *arguments, server.reach) as driving:
            try:
                output = driving.succeed(limit)
                serving.succeed(limit)
            except hosts.Failed as fault:
                raise hosts.Failed(f"{fault}\n--- the server:\n{serving.output()}") from None
    summary = re.search(r"^process \d+: (\d+) transfers, 0 failed$", output, re.M)
    assert summary, output
    return int(summary[1])
