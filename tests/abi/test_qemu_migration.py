# SPDX-License-Identifier: BSD-2-Clause
"""A guest of QEMU moves from one process to another over RDMA, and goes on there.

The guest is 64 KiB of firmware that fills some memory once, and then says letter after letter on its serial
port and writes them into page after page.
"""
import array
import contextlib
import itertools
import json
import socket
import subprocess

import pytest

import hosts

FILLED, FILLED_END = 0x10000, 0x80000
FIRMWARE = f"""
	.code16
start:	cli
	mov $0x1000, %ax		/* from 0x10000 on, each word: its offset XOR its segment */
1:	mov %ax, %es
	xor %di, %di
2:	mov %di, %bx
	xor %ax, %bx
	mov %bx, %es:(%di)
	add $2, %di
	jnz 2b
	add $0x1000, %ax
	cmp ${FILLED_END >> 4:#x}, %ax
	jne 1b
	mov %ax, %es
	mov $0x3f8, %dx
3:	mov $'A', %al			/* then for ever the alphabet */
4:	out %al, (%dx)
	mov %al, %es:(%di)
	add $4096, %di
	mov $10000, %cx
	loop .
	inc %al
	cmp $'Z' + 1, %al
	jne 4b
	jmp 3b
	.org 0xfff0			/* the reset vector */
	jmp start
	.org 0x10000
"""


@pytest.fixture(scope="session")
def firmware(tmp_path_factory):
    folder = tmp_path_factory.mktemp("firmware")
    subprocess.run(["as", "--32", "-o", folder / "rom.o", "-"], input=FIRMWARE, text=True, check=True)
    subprocess.run(["objcopy", "-O", "binary", folder / "rom.o", folder / "rom"], check=True)
    return folder / "rom"


class Qemu:
    """One QEMU process: what its guest said, and its monitor."""

    def __init__(self, folder, name):
        self.serial, self.path, self.memory = folder / f"{name}.serial", folder / f"{name}.qmp", folder / name

    def command(self, firmware, *more):
        return ("qemu-system-x86_64", "-machine", "pc,accel=tcg", "-m", 16, "-nodefaults", "-display", "none",
                "-bios", firmware, "-serial", f"file:{self.serial}", "-qmp", f"unix:{self.path},server=on,wait=off", *more)

    def said(self):
        return hosts.read(self.serial)

    @contextlib.contextmanager
    def monitor(self, program):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(hosts.DEFAULT_LIMIT)
            program.wait_until(lambda: connection.connect_ex(str(self.path)) == 0, "listening")
            with connection.makefile("rw") as self.lines:
                self.lines.readline()  # the greeting
                self.ask("qmp_capabilities")
                yield self

    def ask(self, command, **arguments):
        self.lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.lines.flush()
        while True:
            answer = json.loads(self.lines.readline())
            if "event" not in answer:  # those come in between
                assert "return" in answer, answer
                return answer["return"]

    def filled_memory(self):
        self.ask("pmemsave", val=FILLED, size=FILLED_END - FILLED, filename=str(self.memory))
        return array.array("H", self.memory.read_bytes())


def migration_ended(source):
    """Whether it has: then it must have succeeded."""
    state = source.ask("query-migrate")
    assert state.get("status") not in ("failed", "cancelled"), state
    return state.get("status") == "completed"


def migrate(pair, firmware, folder, pin_all):
    url = f"rdma:{pair[0].reach}:{hosts.free_port()}"  # QEMU takes no IPv6 address on RoCE
    source, target = Qemu(folder, "source"), Qemu(folder, "target")
    with contextlib.ExitStack() as stack:
        sending = stack.enter_context(pair[1].start(*source.command(firmware)))
        stack.enter_context(source.monitor(sending))
        receiving = stack.enter_context(pair[0].start(*target.command(firmware, "-incoming", "defer")))
        stack.enter_context(target.monitor(receiving))
        for end in (source, target):
            end.ask("migrate-set-capabilities", capabilities=[{"capability": "rdma-pin-all", "state": pin_all}])
        target.ask("migrate-incoming", uri=url)
        sending.wait_until(lambda: len(source.said()) > 100, "through its first 100 letters")
        source.ask("migrate", uri=url)
        sending.wait_until(lambda: migration_ended(source), "migrated")
        receiving.wait_until(lambda: len(target.said()) > 100, "through 100 letters more")
        expected = array.array("H", (offset ^ segment for segment in range(FILLED >> 4, FILLED_END >> 4, 0x1000)
                                     for offset in range(0, 0x10000, 2)))
        assert target.filled_memory() == expected
        said = source.said() + target.said()
    assert all(ord(after) == ord("A") + (ord(letter) - ord("A") + 1) % 26 for letter, after in itertools.pairwise(said))


def test_a_guest_moves(pair, firmware, tmp_path):
    """Its memory is registered chunk by chunk, as it is sent."""
    migrate(pair, firmware, tmp_path, pin_all=False)


def test_a_guest_moves_with_its_memory_pinned(loopback, firmware, tmp_path):
    migrate(loopback, firmware, tmp_path, pin_all=True)
