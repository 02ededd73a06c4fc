# SPDX-License-Identifier: BSD-2-Clause
"""verbena run --namespace: scripts and programs that know nothing of libibverbs find our devices."""
import os
import re
import signal
import subprocess
import time

import pytest

import hosts

IB = "/sys/class/infiniband/verbena0"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def command(*words):
    return hosts.VERBENA, "run", "--namespace", "--", *words


def start(host, *words, **environment):
    return host.start_plain(*command(*words), **environment)


def run(host, *words, **environment):
    with start(host, *words, **environment) as program:
        return program.succeed()


@pytest.fixture(params=("as root", "as a user"))
def host(request, mount_namespaces):
    """Root makes a mount namespace alone, others a user namespace too: both ways, if we are root."""
    first, second = request.getfixturevalue("loopback")
    if request.param == "as root":
        return first
    if os.geteuid() != 0:  # cannot become another user, and is one
        pytest.skip("root's way, as root, is the other one; this run is a user's already")
    # A tree below a home that is closed to others: nothing there can be run as nobody.
    if subprocess.run([*NOBODY, "test", "-x", hosts.VERBENA]).returncode:
        pytest.skip(f"not run: another user cannot reach {hosts.VERBENA}")
    hosts_of_nobody = second.address.rpartition(".")[0] + ".9"
    return hosts.Host(hosts_of_nobody, enter=NOBODY)


def test_ibstatus(host):
    text = run(host, "ibstatus")
    assert "Infiniband device 'verbena0' port 1 status:" in text
    assert dict(re.findall(r"^\t([\w ]+):\t+ *(\S.*)$", text, re.M)) == {
        "default gid": re.search(r"default gid:\t (fe80:\S+)", text)[1],
        "base lid": "0x0", "sm lid": "0x0", "state": "4: ACTIVE", "phys state": "5: LinkUp",
        "rate": "100 Gb/sec (4X EDR)", "link_layer": "Ethernet"}


def test_a_shell_finds_the_files(host):
    text = run(host, "sh", "-ec", f"""
        ls /sys/class/infiniband /sys/class/infiniband_verbs /sys/class/infiniband_mad
        ls {IB}/device/net/ ; ls /dev/infiniband
        test -c /dev/infiniband/uverbs0 && test -r /dev/infiniband/uverbs0 && test -w /dev/infiniband/uverbs0
        readlink -f {IB} ; cat {IB}/ports/1/gid_attrs/types/0 {IB}/ports/1/pkeys/0""")
    assert text.split() == [
        "/sys/class/infiniband:", "verbena0", "/sys/class/infiniband_mad:", "abi_version", "umad0",
        "/sys/class/infiniband_verbs:", "abi_version", "uverbs0", "lo", "rdma_cm", "umad0", "uverbs0",
        "/sys/devices/verbena/verbena0:00.0/infiniband/verbena0", "RoCE", "v2", "0xffff"]


def test_everything_else_is_as_it_was(host):
    look = """
        ls /sys/class /sys/devices | grep -v -e infiniband -e verbena
        ls /dev | grep -v infiniband
        ls -lL /sys/class/net/lo/ | sed "s/^.*:..//"
        readlink -f /sys/class/net/lo /sys/class/mem/null ; cat /sys/class/net/lo/mtu
        ls -ld /dev/null /dev/zero /dev/shm | cut -c1-10 ; echo x > /dev/null ; readlink /dev/stdin"""
    with host.start_plain("sh", "-c", look) as program:
        outside = program.succeed()
    assert run(host, "sh", "-c", look) == outside


def test_the_user_is_who_it_was(host):
    with host.start_plain("sh", "-c", "id -u; id -g; grep CapEff /proc/self/status") as program:
        outside = program.succeed()
    assert run(host, "sh", "-c", "id -u; id -g; grep CapEff /proc/self/status") == outside


def test_nothing_gets_out(host):
    run(host, "true")
    assert not os.path.exists("/sys/devices/verbena") and not os.path.exists("/sys/class/infiniband/verbena0")
    assert "verbena" not in hosts.read("/proc/self/mounts")


def test_programs_of_the_libraries_inside(host, monkeypatch):
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert "State: Active" in run(host, "ibstat")
    verbs = run(host, "ibv_devinfo", "-v")
    guid = run(host, "cat", f"{IB}/node_guid").strip()
    assert re.search(rf"node_guid:\s+{guid}\n", verbs)
    # inside both ways lead to the same
    assert run(host, "/usr/bin/python3", "-c", f"""
import ctypes
ctypes.CDLL("libibverbs.so.1")
print(open("{IB}/node_guid").read(), end="")""").strip() == guid


def test_traffic_between_inside_and_outside(host):
    port = hosts.free_port()
    with start(host, "ib_write_bw", "-F", "-p", port, "-s", "65536", "-n", "100") as server:
        server.wait_until(lambda: listens_below(server, port), "listening")
        with host.start("ib_write_bw", "-F", "-p", port, "-s", "65536", "-n", "100", host.reach) as client:
            hosts.succeed_both(server, client)


def listens_below(wrapper, port):
    """The program is a child of the command."""
    table = hosts.read(f"/proc/{wrapper.pid}/net/tcp") + hosts.read(f"/proc/{wrapper.pid}/net/tcp6")
    return re.search(rf":{port:04X} \S+ 0A ", table)


def test_counters_move(host):
    counter = f"{IB}/ports/1/counters/port_xmit_packets"
    script = f"""
        before=$(cat {counter}); echo ready
        while [ $(cat {counter}) = $before ]; do sleep 0.02; done
        echo moved"""
    # who holds the device open keeps what was counted
    with host.start("ibv_asyncwatch") as holder, start(host, "sh", "-c", script) as watcher:
        holder.wait_until(lambda: "async event" in holder.output(), "holding the device")
        watcher.wait_until(lambda: "ready" in watcher.output(), "ready")
        hosts.run_pair(host, host, "ib_send_bw", "-F", "-s", "1000", "-n", "100")
        watcher.succeed()
        assert watcher.output() == "ready\nmoved\n"


def test_the_exit_status_is_the_programs(host):
    with start(host, "sh", "-c", "exit 7") as program:
        assert program.wait() == 7
    with start(host, "sh", "-c", "kill -USR2 $$") as program:
        assert program.wait() == -signal.SIGUSR2
    with start(host, "/no/such") as program:
        assert program.wait() == 127
        assert 'there is no program "/no/such"' in program.output()


def test_signals_reach_the_program(host):
    trap = 'trap "echo got it; exit 3" TERM; echo ready; while :; do sleep 0.02; done'
    with start(host, "sh", "-c", trap) as program:
        program.wait_until(lambda: "ready" in program.output(), "ready")
        program.process.send_signal(signal.SIGTERM)
        assert program.wait() == 3
        assert program.output() == "ready\ngot it\n"


def test_the_program_ends_with_the_command(host):
    with start(host, "sh", "-c", 'echo $$; exec sleep 60') as program:
        program.wait_until(lambda: program.output().endswith("\n"), "running")
        pid = int(program.output())
        program.kill()
        deadline = time.monotonic() + hosts.DEFAULT_LIMIT
        while re.search(r"State:\t[^ZX]", hosts.read(f"/proc/{pid}/status")):
            assert time.monotonic() < deadline, f"process {pid} lives on"
            time.sleep(hosts.LOOK_SECONDS)


# Not as an ordinary user: the program under test changes its user id, which only root may. CI is root.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_program_that_became_another_user_ends_with_the_command(mount_namespaces, loopback):
    with start(loopback[0], *NOBODY, "sh", "-c", 'echo $$; exec sleep 60') as program:
        program.wait_until(lambda: program.output().endswith("\n"), "running")
        pid = int(program.output())
        program.kill()
        deadline = time.monotonic() + hosts.DEFAULT_LIMIT
        while re.search(r"State:\t[^ZX]", hosts.read(f"/proc/{pid}/status")):
            assert time.monotonic() < deadline, f"process {pid} lives on"
            time.sleep(hosts.LOOK_SECONDS)


def test_the_command_leaves_no_process_behind(host):
    """Its guard is reaped before it ends: an orphan would be a zombie in a container without init."""
    script = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans come to us
subprocess.run(sys.argv[1:], check=True)
try:
    print(os.waitpid(-1, 0))
except ChildProcessError:
    print("none")"""
    with host.start_plain("/usr/bin/python3", "-c", script, *map(str, command("true"))) as program:
        assert program.succeed() == "none\n"


def test_the_program_has_no_children_that_it_did_not_start(host):
    text = """
import os
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("none")"""
    assert run(host, "/usr/bin/python3", "-c", text) == "none\n"


def test_where_it_is_forbidden(mount_namespaces, loopback):
    """A user namespace that allows no others, and a root in it without the right to mount."""
    forbid = 'echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin "$@"'
    with loopback[0].start_plain("unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh",
                                 *command("echo", "ran")) as program:
        assert program.wait() == 125
        text = program.output()
    assert "verbena: --namespace: no namespace: No space left on device" in text
    assert "user.max_user_namespaces" in text and "without --namespace" in text
    assert "ran" not in text


def test_two_devices(mount_namespaces, loopback):
    both = hosts.Host(f"{loopback[0].address},{loopback[1].address}")
    text = run(both, "sh", "-c", "cat /sys/class/infiniband/*/node_guid; ls /dev/infiniband")
    first, second, *devices = text.split()
    assert first != second
    assert devices == ["rdma_cm", "umad0", "umad1", "uverbs0", "uverbs1"]
