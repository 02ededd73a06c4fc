# SPDX-License-Identifier: BSD-2-Clause
"""What programs look at beside the libraries: Debian's python as the program, whose looks at the
kernel's files find our devices there."""
import glob
import ipaddress
import json
import os
import re
import shutil
import tempfile
import textwrap
import time

import pytest

import hosts

IB = "/sys/class/infiniband/verbena0"
LOADED = 'import ctypes, json, os\nctypes.CDLL("libibverbs.so.1")\n'


def python(host, text, **environment):
    """What a program prints that has libibverbs loaded."""
    return host.run("/usr/bin/python3", "-c", LOADED + textwrap.dedent(text), **environment)


def read(host, *paths):
    lines = python(host, f"print(json.dumps([open(path).read() for path in {paths!r}]))")
    return json.loads(lines)


def test_the_files_agree_with_ibv_devinfo(pair):
    verbs = dict(re.findall(r"^\s*([\w\[\] ]+?):\s*(\S.*?)\s*$", pair[0].run("ibv_devinfo", "-v"), re.M))
    guid, firmware, state, physical, lid, gid, pkey, kind = read(pair[0], *(f"{IB}/{name}" for name in (
        "node_guid", "fw_ver", "ports/1/state", "ports/1/phys_state", "ports/1/lid", "ports/1/gids/0",
        "ports/1/pkeys/0", "ports/1/gid_attrs/types/0")))
    assert guid.strip() == verbs["node_guid"]
    assert firmware.strip() == verbs["fw_ver"]
    assert (state, physical) == ("4: ACTIVE\n", "5: LinkUp\n")
    assert int(lid, 0) == int(verbs["port_lid"])
    assert int(gid.replace(":", ""), 16) == int(ipaddress.IPv6Address(verbs["GID[  0]"].partition(",")[0]))
    assert (pkey, kind) == ("0xffff\n", "RoCE v2\n")


def test_the_interface_is_the_devices(pair):
    text = python(pair[0], f"""
        names = os.listdir("{IB}/device/net")
        print(json.dumps([names, open("{IB}/ports/1/gid_attrs/ndevs/1").read(),
                          os.readlink("{IB}/device/net/" + names[0])]))""")
    names, ndev, link = json.loads(text)
    assert names == [ndev.strip()] == ["veth0" if pair[0].enter else "lo"]
    assert link == f"/sys/class/net/{names[0]}"


def test_links_lead_where_the_kernels_do(loopback):
    text = python(loopback[0], f"""
        print(json.dumps([os.path.realpath("{IB}"), os.path.realpath("{IB}/device"),
            os.path.basename(os.readlink("{IB}/device/driver")),
            os.path.realpath("/sys/class/infiniband_verbs/uverbs0/device"),
            open("/sys/class/infiniband_verbs/uverbs0/ibdev").read(), open("/sys/class/infiniband_verbs/abi_version").read(),
            open("/sys/class/infiniband_mad/umad0/ibdev").read(), sorted(os.listdir("/dev/infiniband"))]))""")
    adapter = "/sys/devices/verbena/verbena0:00.0"
    assert json.loads(text) == [f"{adapter}/infiniband/verbena0", adapter, "verbena", adapter, "verbena0\n", "6\n",
                                "verbena0\n", ["rdma_cm", "umad0", "uverbs0"]]


def test_ways_in_and_out(loopback):
    """".." goes up from where links have led, out of our directories and into them."""
    host = loopback[0]
    with open("/sys/class/net/lo/address") as file:
        address = file.read()
    guid, *_ = read(host, f"{IB}/node_guid")
    assert read(host, "/sys/class/infiniband/../net/lo/address", f"{IB}/../../../../../class/net/lo/address",
                "/sys/class/net/../infiniband/verbena0/node_guid", f"{IB}/ports/../node_guid",
                f"{IB}/device/../verbena0:00.0/infiniband/verbena0/node_guid", f"{IB}/subsystem/verbena0/node_guid",
                f"{IB}/device/net/lo/address") == [address, address, guid, guid, guid, guid, address]
    text = python(host, f"""
        import stat
        print(stat.S_ISCHR(os.stat("/dev/infiniband/../zero").st_mode), sorted(os.listdir("/dev/infiniband/")))
        for path in "{IB}/node_guid/", "{IB}/ports/1/state/", "/dev/infiniband/uverbs0/", "{IB}/node_guid/../hca_type":
            try:
                open(path)
            except OSError as error:
                print(error.strerror)
        print(os.path.realpath("{IB}/../../../bus/verbena/.."), os.path.realpath("/sys/class/infiniband/../net"),
              os.path.realpath("/dev/infiniband/./uverbs0"), os.path.realpath("{IB}/subsystem"))""")
    assert text.splitlines() == [
        "True " + repr(["rdma_cm", "umad0", "uverbs0"]), *["Not a directory"] * 4,
        "/sys/devices/verbena/bus /sys/class/net /dev/infiniband/uverbs0 /sys/class/infiniband"]


def test_from_a_directory_s_descriptor(loopback):
    """What moves is as fresh as by its path; ".." leads out."""
    text = python(loopback[0], f"""
        directory = os.open("/sys/class/infiniband", os.O_RDONLY | os.O_DIRECTORY)
        ports = os.open("verbena0/ports/1", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
        def say(name, base):
            file = os.open(name, os.O_RDONLY, dir_fd=base)
            print(os.read(file, 100), os.readlink("/proc/self/fd/%d" % file).startswith("/memfd:"))
        say("verbena0/ports/1/state", directory)
        say("state", ports)
        print(os.stat("../net/lo/mtu", dir_fd=directory).st_size == os.stat("/sys/class/net/lo/mtu").st_size)
        os.chdir("/sys/class")
        print(open("infiniband/verbena0/ports/1/state").read(), end="")
        print(sorted(name for _, names, _, _ in os.fwalk("/sys/class/infiniband_verbs", follow_symlinks=False)
                     for name in names))""")
    assert text.splitlines() == [repr(b"4: ACTIVE\n") + " True"] * 2 + ["True", "4: ACTIVE", "['uverbs0']"]


def test_character_devices_can_be_opened(loopback):
    text = python(loopback[0], """
        import stat
        for name in "uverbs0", "umad0", "rdma_cm":
            path = "/dev/infiniband/" + name
            print(stat.S_ISCHR(os.stat(path).st_mode), stat.S_ISCHR(os.lstat(path).st_mode),
                  os.access(path, os.R_OK | os.W_OK), os.close(os.open(path, os.O_RDWR)))
        print(os.path.exists("/dev/infiniband/uverbs1"))""")
    assert text == "True True True None\n" * 3 + "False\n"


def eventually(condition):
    deadline = time.monotonic() + hosts.DEFAULT_LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(hosts.LOOK_SECONDS)


# Looks, and prints where its tree is: the directory that one of its descriptors holds.
LOOK = LOADED + f"""
def link(fd):
    try:
        return os.readlink("/proc/self/fd/" + fd)
    except OSError:
        return ""
open("{IB}/node_guid").read()
print(*(link(fd) for fd in os.listdir("/proc/self/fd") if "/sysfs-" in link(fd)), flush=True)
"""


def look(host, text=""):
    tree = host.run("/usr/bin/python3", "-c", LOOK + textwrap.dedent(text)).strip()
    assert re.fullmatch(rf"/dev/shm/verbena-{os.geteuid()}/sysfs-[0-9a-f]{{16}}", tree)
    return tree


def test_nothing_is_left_behind(loopback):
    assert not os.path.exists(look(loopback[0], 'os.system("true")'))


def test_a_child_goes_on_looking_when_its_parent_has_ended(loopback):
    """Without exec, it has its parent's tree, and the last one takes it away."""
    text = LOOK + textwrap.dedent(f"""
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(writing)
            os.read(reading, 1)  # ends with the parent
            print(open("{IB}/fw_ver").read(), end="", flush=True)
            ctypes.CDLL(None).exit(0)""")
    with loopback[0].start("/usr/bin/python3", "-c", text) as parent:
        assert parent.wait() == 0
        eventually(lambda: parent.output().count("\n") == 2)
        tree, version = parent.output().splitlines()
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        eventually(lambda: not os.path.exists(tree))


def test_processes_share_a_tree_that_is_theirs_alone(loopback):
    with loopback[1].start("/usr/bin/python3", "-c", LOOK + "import time; time.sleep(60)") as program:
        program.wait_until(lambda: "\n" in program.output(), "looking")
        tree = program.output().strip()
        assert os.stat(tree).st_mode & 0o777 == 0o700
        assert look(loopback[1]) == tree and os.path.exists(tree)
        assert look(loopback[0]) != tree and os.path.exists(tree)


def test_a_killed_process_leaves_its_tree_to_the_next(loopback):
    with loopback[1].start("/usr/bin/python3", "-c", LOOK + "import time; time.sleep(60)") as program:
        program.wait_until(lambda: "\n" in program.output(), "looking")
        tree = program.output().strip()
        assert os.path.exists(tree)
        program.kill()
    look(loopback[0])  # another host's devices, another tree
    assert not os.path.exists(tree)


def test_a_killed_host_leaves_its_files_to_whoever_opens_a_device(loopback):
    """Nobody ever comes to that host again."""
    def files():
        return glob.glob(f"/dev/shm/verbena-{os.geteuid()}/*-{loopback[1].address}/seg.*")

    with loopback[1].start("ibv_asyncwatch") as holder:
        holder.wait_until(lambda: "async event" in holder.output(), "holding the device")
        assert len(files()) == 1
        loopback[0].run("ibv_devinfo")
        assert len(files()) == 1
        holder.kill()
    for _ in range(64):  # one look is bounded: where others have left very many it takes more
        loopback[0].run("ibv_devinfo")
        if not files():
            break
    assert not files()


def test_the_switch_turns_it_off(loopback):
    text = 'print(os.path.exists("/sys/class/infiniband/verbena0"), os.path.exists("/dev/infiniband/uverbs0"))'
    assert python(loopback[0], text) == "True True\n"
    assert python(loopback[0], text, VERBENA_REDIRECT="0") == "False False\n"


def test_a_program_with_more_rights_than_its_user_is_left_alone(loopback):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(hosts.VERBENA.parent / "privileged", folder)
        with loopback[0].start_plain(program) as plain:
            assert plain.succeed() == "privileged 0, devices 1, beside 1\n"
        if os.geteuid() != 0:
            pytest.skip("the other half is not run: only root makes a program that another user runs as root")
        os.chmod(program, 0o4755)
        with loopback[0].start_plain("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program) as other:
            assert other.succeed() == "privileged 1, devices 1, beside 0\n"


def test_no_file_can_be_written(loopback):
    text = python(loopback[0], f"""
        for path in "{IB}/node_desc", "{IB}/ports/1/counters/port_xmit_data", "{IB}/none":
            try:
                open(path, "w")
            except OSError as error:
                print(error.strerror)""")
    assert text == "Permission denied\n" * 3


def test_an_entry_without_a_gid_cannot_be_asked(loopback):
    text = python(loopback[0], f"""
        for name in "gid_attrs/types/1", "gid_attrs/types/9", "gid_attrs/ndevs/9", "gid_attrs/types/16", "gids/9":
            try:
                print(os.read(os.open("{IB}/ports/1/" + name, os.O_RDONLY), 100))
            except OSError as error:
                print(os.strerror(error.errno))""")
    assert text.splitlines() == ["b'RoCE v2\\n'", "Invalid argument", "Invalid argument", "No such file or directory",
                                 repr(b"0000:" * 7 + b"0000\n")]


def test_counters_move(pair):
    names = ("counters/port_xmit_data", "counters/port_xmit_packets", "counters/port_rcv_packets",
             "hw_counters/sent_pkts", "hw_counters/rcvd_pkts")
    paths = [f"{IB}/ports/1/{name}" for name in names]
    holder = f"""
        paths = {paths!r}
        lib = ctypes.CDLL("libibverbs.so.1")
        lib.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
        lib.ibv_open_device.argtypes = [ctypes.c_void_p]
        lib.ibv_open_device.restype = ctypes.c_void_p
        devices = lib.ibv_get_device_list(None)
        context = lib.ibv_open_device(devices[0])
        def show():
            print(json.dumps([int(open(path).read()) for path in paths]), flush=True)
        show()
        import sys
        sys.stdin = open(sys.argv[1]) ; sys.stdin.readline()
        show()
        lib.ibv_close_device(ctypes.c_void_p(context))"""
    text = LOADED + textwrap.dedent(holder)
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/go")
        with pair[0].start("/usr/bin/python3", "-c", text, f"{folder}/go") as program:
            program.wait_until(lambda: program.output().count("\n") == 1, "holding the device open")
            hosts.run_pair(*pair, "ib_send_bw", "-F", "-s", "1000", "-n", "100", "-x", "1")
            with open(f"{folder}/go", "w") as go:
                go.write("go\n")
            program.succeed()
            before, after = map(json.loads, program.output().splitlines())
    words, sent, received, hw_sent, hw_received = (b - a for a, b in zip(before, after))
    one_host = pair[0] is pair[1]
    # the server sends acknowledgements, and receives 100 messages; on one host the client's count too
    assert received >= 100 and sent >= 1
    assert (hw_sent, hw_received) == (sent, received)
    assert words >= (100 * (12 + 1000 + 4) // 4 if one_host else sent * 5)
