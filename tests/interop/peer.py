# SPDX-License-Identifier: BSD-2-Clause
"""peer.py - a Linux kernel with Soft-RoCE on the same wire as Verbena.

         network namespace, ours (nobody else's, gone with the tests)
      +-----------------------------------------------------------+
      |  verbena run ...          bridge br0           tap0 ======|=== QEMU: eth0, rxe0
      |  10.77.0.1  fd77::1       packets are lost here           |    10.77.0.11  fd77::11
      +-----------------------------------------------------------+

    Network        the namespace and the bridge; loses packets on request
    OurHost        Verbena's side
    Guest          the kernel in QEMU; like hosts.Host it starts programs
    GuestProgram   one of them; like hosts.Program
"""
import contextlib
import ipaddress
import pathlib
import re
import shlex
import socket
import subprocess
import tempfile

import hosts
import image

OURS = ("10.77.0.1", "fd77::1")
GUESTS = ("10.77.0.11", "fd77::11")
OUR_MAC = "02:77:00:00:00:01"
GUEST_MAC = "02:77:00:00:00:11"
SHELL_PORT = 7777
MTU = 4200  # room for a path MTU of 4096 and all headers
BOOT_SECONDS = 90.0
DEATH_SECONDS = 5.0  # from a panic to the end of QEMU
ANSWER_SECONDS = 10.0  # in which a guest that lives runs a program
CONSOLE_SHOWN = 8000  # characters

ONE_IN_50 = "numgen random mod 50 == 0"

CM_ATTRIBUTES = {"REQ": 0x10, "MRA": 0x11, "REJ": 0x12, "REP": 0x13, "RTU": 0x14, "DREQ": 0x15, "DREP": 0x16,
                 "SIDR_REQ": 0x17, "SIDR_REP": 0x18}


def first_of(message):
    """The rule that loses the first message of this kind of the connection manager: the destination QPN is
    1, and the MAD behind BTH and DETH has this attribute."""
    return f"@th,104,24 1 @th,352,16 {CM_ATTRIBUTES[message]} numgen inc mod 1000000 == 0"


class OurHost(hosts.Host):
    """Verbena's side. own() is the address that a server there binds to, other() its peer's as a client
    there names it."""
    mover = hosts.BUILD / "bin" / "mover"
    is_guest = False

    def own(self, family):
        return {"ipv4": OURS[0], "ipv6": OURS[1], "link-local": f"{link_local(OUR_MAC)}%br0"}[family]

    def other(self, family):
        return {"ipv4": GUESTS[0], "ipv6": GUESTS[1], "link-local": f"{link_local(GUEST_MAC)}%br0"}[family]


def link_local(mac):
    """The address that the kernel makes of a MAC address (EUI-64)."""
    b = bytes.fromhex(mac.replace(":", ""))
    words = bytes([b[0] ^ 2, b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]]).hex(":", 2)
    return str(ipaddress.ip_address(f"fe80:0:0:0:{words}"))


class Network(hosts.Veth):
    """A namespace with a bridge instead of one end of a pair."""

    def build(self, mtu):
        self.pids = (self.maker.pid,)
        self.make("PATH=$PATH:/usr/sbin:/sbin",  # where others than root may not look for nft
                  "ip link set lo up",
                  "ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
                  f"ip link set br0 address {OUR_MAC}",
                  "echo 0 >/proc/sys/net/ipv6/conf/br0/accept_dad",
                  "ip tuntap add tap0 mode tap",
                  f"ip link set tap0 mtu {mtu} txqueuelen 20000 master br0 up",
                  f"ip link set br0 mtu {mtu} up",
                  f"ip addr add {OURS[0]}/24 dev br0",
                  f"ip addr add {OURS[1]}/64 dev br0 nodad")

    def host(self):
        return OurHost(OURS[0], enter=self.enter(0))

    def set_mtu(self, mtu):
        self.make(f"ip link set br0 mtu {mtu}")

    @contextlib.contextmanager
    def losing(self, *matches):
        """Loses what matches (a rule of nft without its verdict), in each direction by a count of its
        own. Yields a function that tells how many packets each rule lost, first those to the guest.
        Trains are cut before the bridge, so that single packets are lost."""
        rules = [f"add rule bridge loss {chain} udp dport 4791 {match} counter drop"
                 for chain in ("out", "in") for match in matches]
        table = ["add table bridge loss",
                 "add chain bridge loss out { type filter hook output priority 0; }",
                 "add chain bridge loss in { type filter hook input priority 0; }"]
        self.make("ip link set br0 gso_max_segs 1", "nft -f - <<END\n" + "\n".join(table + rules) + "\nEND\n")
        try:
            yield lambda: [int(n) for n in re.findall(r"counter packets (\d+)", self.make("nft list table bridge loss"))]
        finally:
            self.make("nft delete table bridge loss", "ip link set br0 gso_max_segs 65535")


class Guest:
    """The kernel in QEMU. As a host of a test: `reach` is where TCP reaches it."""

    reach = GUESTS[0]
    mover = "mover"
    is_guest = True

    def __init__(self, network, processors=1, files=None):
        """files: {name in the guest: a file of ours}, beside those of the image."""
        self.network = network
        self.processors = processors
        self.files = files or {}
        self.boot()

    def boot(self):
        """Starts it, or starts another in the place of one that has died."""
        made = image.build()
        initrd = tempfile.NamedTemporaryFile(prefix="verbena-initrd-")
        image.with_program(made.initrd, hosts.BUILD / "bin" / "mover", initrd)
        more = image.Archive(initrd)
        for name, path in self.files.items():
            more.file(name, path.read_bytes())
        more.close()
        initrd.flush()
        self.console = tempfile.NamedTemporaryFile(prefix="verbena-guest-", suffix=".log")
        self.monitor = f"{self.console.name}.monitor"
        # With one processor this QEMU's translator leaves out the guest's memory barriers, which virtio needs
        # between the guest and QEMU's own thread: so there are two, and the kernel starts as many as wanted.
        command = f"""qemu-system-x86_64 -name verbena-peer -machine pc -accel tcg,thread=multi -cpu max
            -smp {max(self.processors, 2)} -m 512M -nodefaults -no-user-config -display none -no-reboot
            -monitor unix:{self.monitor},server=on,wait=off -kernel {made.kernel} -initrd {initrd.name}
            -netdev tap,id=n0,ifname=tap0,script=no,downscript=no
            -device virtio-net-pci,netdev=n0,mac={GUEST_MAC},host_mtu={MTU} -serial file:{self.console.name}""".split()
        arguments = ("console=ttyS0 quiet panic=-1 nokaslr mitigations=off audit=0 random.trust_cpu=on "
                     f"maxcpus={self.processors} unknown_nmi_panic softlockup_panic=1 "
                     f"ip4={GUESTS[0]}/24 ip6={GUESTS[1]}/64")
        self.qemu = hosts.Program([*self.network.enter(0), *command, "-append", arguments], None)
        try:
            with initrd:
                self.qemu.wait_until(lambda: "init: ready" in self.log(), "ready", BOOT_SECONDS)
        except hosts.Failed as fault:
            self.close()
            raise OSError(f"{fault}\n--- console:\n{self.log()}") from None

    def own(self, family):
        return {"ipv4": GUESTS[0], "ipv6": GUESTS[1], "link-local": f"{link_local(GUEST_MAC)}%eth0"}[family]

    def other(self, family):
        return {"ipv4": OURS[0], "ipv6": OURS[1], "link-local": f"{link_local(OUR_MAC)}%eth0"}[family]

    def set_mtu(self, mtu):
        self.shell(f"/usr/bin/ip link set eth0 mtu {mtu}")

    def rdma_listeners(self, space, port):
        """As hosts.Host has it; here the lines that the kernel shows. It shows a listener some moments before
        requests find it, so that one counts that is there at a second look."""
        def look():
            shown = self.run("rdma", "resource", "show", "cm_id")
            return {line for line in shown.splitlines()
                    if re.search(rf" state LISTEN ps {space.upper()} .*:{port}\b", line)}

        first = look()
        return first and first & look()

    def cm_received(self, message):
        """How many messages of this kind the guest's connection manager has taken."""
        return int(self.run("cat", f"/sys/class/infiniband/rxe0/ports/1/cm_rx_msgs/{message}"))

    def log(self):
        return hosts.read(self.console.name)

    @property
    def died(self):
        """A kernel that panics ends its QEMU (panic=-1, -no-reboot)."""
        return self.qemu.process.poll() is not None

    def answers(self):
        """Whether it still runs what it is asked to."""
        try:
            self.run("true", limit=ANSWER_SECONDS)
            return True
        except hosts.Failed:
            return False

    def stop(self):
        """Has a kernel that hangs panic, so that its console shows where: an NMI reaches it anywhere."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired), socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(self.monitor)
            monitor.sendall(b"nmi\n")
            self.qemu.process.wait(DEATH_SECONDS)
        self.close()

    def last_words(self):
        """Why it died: the end of its console, and what QEMU said."""
        return (f"the guest has died (QEMU's status {self.qemu.process.returncode}): {self.qemu.output()}\n"
                f"--- console:\n{self.log()[-CONSOLE_SHOWN:]}")

    def close(self):
        self.qemu.end()
        pathlib.Path(self.monitor).unlink(missing_ok=True)

    def start(self, *command, **environment):
        settings = [f"{name}={value}" for name, value in environment.items()]
        return GuestProgram(self, "env", *settings, *command) if settings else GuestProgram(self, *command)

    def run(self, *command, limit=hosts.DEFAULT_LIMIT):
        with self.start(*command) as program:
            return program.succeed(limit)

    def shell(self, text, limit=hosts.DEFAULT_LIMIT):
        """Runs lines in the guest's shell; they must succeed. Returns what they print."""
        return self.run("sh", "-ec", text, limit=limit)


class GuestProgram(hosts.Program):
    """A program in the guest: a shell there starts it, over a connection of its own, and tells in lines
    that begin with == its number, when it listens, and its exit status."""

    def __init__(self, guest, *command):
        self.guest = guest
        self.command = ["guest:", *map(str, command)]
        self.file = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*guest.network.enter(0), "busybox", "nc", guest.reach, str(SHELL_PORT)],
                                        stdin=subprocess.PIPE, stdout=self.file, stderr=subprocess.STDOUT)
        self.tell(f"exec 2>&1; {shlex.join(self.command[1:])} </dev/null & p=$!; echo ==pid $p")

    def tell(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # who waits for the answer sees that there is none

    def told(self, what):
        """What the shell has told: the text behind ==what, or None."""
        found = re.search(rf"^=={what}(.*)$", super().output(), re.M)
        return found[1].strip() if found else None

    def output(self):
        return re.sub(r"^==.*\n", "", super().output(), flags=re.M)

    @property
    def pid(self):
        raise NotImplementedError("its number means nothing here")

    @property
    def returncode(self):
        return self.told("status")

    def wait(self, limit=hosts.DEFAULT_LIMIT):
        self.tell("wait $p; s=$?; echo; echo ==status $s; exit")
        super().wait(limit)
        if self.told("status") is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.guest.qemu.process.wait(DEATH_SECONDS)
            raise self.failed(self.guest.last_words() if self.guest.died else "the guest's shell has gone")
        return int(self.told("status"))

    def listens(self, port=None):
        if self.told("listening") is None and not self.asked:
            self.asked = True
            self.tell(f"until grep -q ':{port:04X} [0-9A-F]*:0000 0A' /proc/$p/net/tcp /proc/$p/net/tcp6; do "
                      "grep -q '^State:.[^ZX]' /proc/$p/status || exit; usleep 5000; done; echo ==listening")
        return self.told("listening") is not None

    asked = False

    def kill(self):
        """kill -9. The shell there is asked by another one, because it may be waiting for the program."""
        number = self.told("pid")
        if number is not None:
            with GuestProgram(self.guest, "kill", "-9", number) as killer:
                killer.wait()
        super().kill()

    def end(self):
        if self.process.poll() is None:
            self.kill()
        self.process.stdin.close()
