# SPDX-License-Identifier: BSD-2-Clause
"""Storage over RDMA: fio's rdma engine, and an iSER target (tgtd) with the clients of libiscsi and QEMU."""
import os
import subprocess

import pytest

import hosts

NAME = "iqn.2026-11.verbena:disk"
INITIATOR = "iqn.2008-11.org.linux-kvm"  # as QEMU calls itself
DISK_BYTES = 32 << 20
MB = 1 << 20


# --- fio: whoever reads is the server -----------------------------------------------------------------


@pytest.mark.parametrize("verb", ["write", "read", "send"])
def test_fio(pair, verb, tmp_path):
    """With SEND the server gets what the client made, and compares its checksums."""
    port = hosts.free_port()
    # fio has a process for each job, which it ends itself when it is told to
    common = ("timeout", "-k", 2, 15, "fio", f"--aux-path={tmp_path}", "--ioengine=rdma",
              f"--port={port}", "--bs=64k", "--size=4m")
    if verb == "send":
        common += ("--verify=crc32c",)
    client = ("--name=client", f"--hostname={pair[0].reach}", f"--verb={verb}", "--rw=write", "--iodepth=16")
    # A SEND that finds no receive ends fio's connection, which allows no retry: the server has one for each.
    server_only = ("--name=server", "--rw=read", "--iodepth=64")
    with hosts.rdma_server(pair[0], "tcp", port, *common, *server_only) as server:
        with pair[1].start(*common, *client) as connecting:
            for output in hosts.succeed_both(server, connecting):
                assert "err= 0" in output, output
            assert "io=4096KiB" in connecting.output(), connecting.output()


# --- iSER ----------------------------------------------------------------------------------------------


class Target:
    """tgtd with one target that has one disk, a file."""

    def __init__(self, host, folder):
        self.port, self.host = hosts.free_port(), host
        self.disk = folder / "disk"
        self.disk.write_bytes(bytes(DISK_BYTES))
        self.environment = {"TGT_IPC_SOCKET": str(folder / "socket")}
        self.url = f"iser://{f'[{host.address}]' if ':' in host.address else host.address}:{self.port}/{NAME}/1"

    def command(self):
        # its iSCSI over TCP listens as well, and needs a port that nobody else has
        return ("tgtd", "-f", "-C", 1, "--iscsi", f"portal={self.host.reach}:{hosts.free_port()}",
                "--iser", f"port={self.port},pool_sz_mb=16")

    def make(self):
        for words in (("target", "new", "-T", NAME), ("logicalunit", "new", "--lun", "1", "--backing-store", self.disk),
                      ("target", "bind", "-I", "ALL"), ("target", "bind", "-Q", INITIATOR)):
            subprocess.run(["tgtadm", "-C", "1", "--lld", "iser", "--mode", words[0], "--op", words[1], "--tid", "1",
                            *words[2:]], env={**os.environ, **self.environment}, check=True, timeout=10)


@pytest.fixture
def target(pair, tmp_path):
    made = Target(pair[0], tmp_path)
    with hosts.rdma_server(pair[0], "tcp", made.port, *made.command(), **made.environment):
        made.make()
        yield made


def test_iser_by_libiscsi(pair, target):
    run = pair[1].run
    assert f"Total size:{DISK_BYTES}" in run("iscsi-readcapacity16", "-i", INITIATOR, target.url)
    assert "Product:VIRTUAL-DISK" in run("iscsi-inq", "-i", INITIATOR, target.url)
    for test in ("Write16", "Read16", "WriteVerify16"):
        output = run("iscsi-test-cu", "-i", INITIATOR, "-d", "-n", "-t", f"SCSI.{test}.Simple", target.url)
        assert "Tests completed with return value: 0" in output and "SKIPPED" not in output, output


def test_iser_by_qemu(pair, target, tmp_path):
    """Its requests over iSER may be 256 KiB long at most, which libiscsi does not tell QEMU."""
    run = pair[1].run
    output = run("qemu-io", "-f", "raw", "-c", "write -P 0x5a 0 64k", "-c", "write -P 0xa5 64k 256k",
                 "-c", "read -P 0x5a 0 64k", "-c", "read -P 0xa5 64k 256k", "-c", "flush", target.url)
    assert "Pattern verification failed" not in output and output.count("65536/65536 bytes") == 2, output
    assert target.disk.read_bytes()[:320 << 10] == b"\x5a" * (64 << 10) + b"\xa5" * (256 << 10)
    data = os.urandom(8 * MB)
    (tmp_path / "in").write_bytes(data)
    run("qemu-img", "dd", "-f", "raw", "-O", "raw", "bs=128k", f"if={tmp_path / 'in'}", f"of={target.url}")
    assert target.disk.read_bytes()[:8 * MB] == data
    run("qemu-img", "dd", "-f", "raw", "-O", "raw", "bs=256k", "count=32", f"if={target.url}",
        f"of={tmp_path / 'out'}")
    assert (tmp_path / "out").read_bytes() == data
