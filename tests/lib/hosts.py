# SPDX-License-Identifier: BSD-2-Clause
"""hosts.py - virtual hosts for tests, and programs on them.

    Host      an address, and the network namespace it is in (or this one)
    Program   one process that a test started: its output, its end, its listening port
    Veth      two namespaces joined by a pair of interfaces

A test waits for events (a port that listens, a process that ends), each with a bound, never for
a time. Only processes started here are signalled, through Popen, which knows whether they were
reaped.
"""
import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("VERBENA_BUILD", ROOT / "build")).absolute()
VERBENA = BUILD / "bin" / "verbena"

# Where a server and a client may be; the fixture `pair` makes them.
TOPOLOGIES = ("one-host", "two-hosts", "namespaces-ipv4", "namespaces-ipv6")

PORT_SPACES = ("ipoib", "tcp", "udp", "ib")  # as src/registry/ports.c has them
LISTENING = 1 << 16

LOOK_SECONDS = 0.003  # between two looks at a table of the kernel's
DEFAULT_LIMIT = 20.0  # seconds that any program of a test may take


class Failed(AssertionError):
    """A program of a test did not do what it should; says all that it said."""


@dataclasses.dataclass
class Host:
    """A host of a test: `address` names it (VERBENA_ADDR), `reach` is where TCP reaches it."""
    address: str
    reach: str = ""
    enter: tuple = ()  # the command that enters its namespaces
    environment: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.reach = self.reach or self.address.split(",")[0]

    def start(self, *command, **environment):
        """Starts a program on Verbena, on this host; keyword arguments are VERBENA_... settings."""
        return self.start_plain(VERBENA, "run", "--", *command, **environment)

    def start_plain(self, *command, **environment):
        """The same without Verbena's libraries."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("VERBENA_")}
        variables.update(self.environment, VERBENA_ADDR=self.address, **environment)
        variables = {name: value for name, value in variables.items() if value is not None}
        return Program([*self.enter, *map(str, command)], variables)

    @functools.cached_property
    def namespace(self):
        link = subprocess.run([*self.enter, "readlink", "/proc/self/ns/net"], capture_output=True, text=True, check=True)
        return re.search(r"\d+", link.stdout)[0]

    def registry(self):
        """The folders of its registry. In a namespace of its own the folder's name may be another
        address of the same interface."""
        user = pathlib.Path(f"/dev/shm/verbena-{os.geteuid()}")
        addresses = ["*"] if self.enter else self.address.split(",")
        return [folder for address in addresses for folder in user.glob(f"{self.namespace}-{address}")]

    def shared_files(self):
        """What this host's processes have in their registry (the table itself stays there). Any process
        of this machine may take away the folder of a host that nobody is on."""
        files = []
        for folder in self.registry():
            with contextlib.suppress(FileNotFoundError):
                files += [str(file) for file in folder.iterdir() if file.name != "reg"]
        return files

    def rdma_listeners(self, space, port):
        """Who listens on an RDMA port: words of the registry's table of ports, of which each process
        writes others. Those of processes that were killed stay."""
        words = set()
        for folder in self.registry():
            for family in range(2):
                index = (PORT_SPACES.index(space) * 2 + family) * 65536 + port
                with contextlib.suppress(OSError, struct.error), open(folder / "ports", "rb") as table:
                    words.update(struct.unpack("Q", os.pread(table.fileno(), 8, 4096 + index * 8)))
        return {word for word in words if word & LISTENING}

    def run(self, *command, limit=DEFAULT_LIMIT, **environment):
        """Runs a program to its end, which must be a success; returns what it printed."""
        with self.start(*command, **environment) as program:
            return program.succeed(limit)


class Program:
    """A process, its output in a file of its own. As a context manager it is ended at the end."""

    def __init__(self, command, environment):
        self.command = command
        self.file = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.file,
                                        stderr=subprocess.STDOUT, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.file.close()

    @property
    def pid(self):
        return self.process.pid

    def output(self):
        size = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), size, 0).decode(errors="replace")

    def wait(self, limit=DEFAULT_LIMIT):
        """The exit status; Failed when it does not end in time."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.end()
            raise self.failed(f"did not end in {limit} s") from None

    def succeed(self, limit=DEFAULT_LIMIT):
        status = self.wait(limit)
        if status != 0:
            raise self.failed(f"exit status {status}")
        return self.output()

    def failed(self, what):
        return Failed(f"{' '.join(self.command)}: {what}\n{self.output()}")

    def kill(self):
        """kill -9, and reaped."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            self.kill()

    def is_running(self):
        return self.process.poll() is None

    def wait_until(self, condition, what, limit=DEFAULT_LIMIT):
        """Until condition() holds; Failed when the program ends before, or it takes too long."""
        deadline = time.monotonic() + limit
        while not condition():
            if not self.is_running():
                raise self.failed(f"ended before {what}")
            if time.monotonic() > deadline:
                self.end()
                raise self.failed(f"not {what} within {limit} s")
            time.sleep(LOOK_SECONDS)

    def wait_listening(self, port):
        self.wait_until(lambda: self.listens(port), f"listening on TCP port {port}")

    def listens(self, port=None):
        """Whether a TCP socket of this very process listens on port (or on any)."""
        return self.has_socket(("tcp", "tcp6"), "0A", port)

    def binds(self, port):
        """Whether it has an unconnected UDP socket on port."""
        return self.has_socket(("udp", "udp6"), "07", port)

    def has_socket(self, tables, state, port):
        found = set()
        for table in tables:
            for line in read(f"/proc/{self.pid}/net/{table}").splitlines()[1:]:
                fields = line.split()
                if fields[3] == state and port in (None, int(fields[1].rpartition(":")[2], 16)):
                    found.add(f"socket:[{fields[9]}]")
        return bool(found) and not found.isdisjoint(self.descriptors())

    def descriptors(self):
        """What its descriptors point to."""
        links = []
        try:
            for entry in os.scandir(f"/proc/{self.pid}/fd"):
                try:
                    links.append(os.readlink(entry.path))
                except OSError:
                    pass
        except OSError:
            pass
        return links

    def cpu_ticks(self):
        """Clock ticks of processor time that it has used."""
        fields = read(f"/proc/{self.pid}/stat").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])


def read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


# Outside of the range that the kernel gives to outgoing connections, so that no client takes one
# between our look and the server's bind; different runs begin at different places.
_ports = itertools.cycle(range(10000, 32000))
for _ in range(os.getpid() * 61 % 22000):
    next(_ports)


def free_port():
    """A TCP port that nothing in this namespace uses now, and that we have not given out lately."""
    for port in _ports:
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::", port))
                return port
            except OSError:
                continue


def loopback_pair():
    """Two addresses of 127.0.0.0/8 that only this run uses: several may run on one machine."""
    pid = os.getpid()
    return f"127.{64 + pid % 128}.{pid // 128 % 256}.2", f"127.{64 + pid % 128}.{pid // 128 % 256}.3"


def run_pair(server_host, client_host, program, *arguments, limit=DEFAULT_LIMIT,
             **environment):
    """Runs program as a server and as a client that connects to it; both must succeed. Returns what
    the server and the client printed."""
    port = free_port()
    with server_host.start(program, "-p", port, *arguments, **environment) as server:
        server.wait_listening(port)
        with client_host.start(program, "-p", port, *arguments, server_host.reach,
                               **environment) as client:
            return succeed_both(server, client, limit)


@contextlib.contextmanager
def rdma_server(host, space, port, *command, **environment):
    """A program that listens on an RDMA port of its host, from when it does."""
    before = host.rdma_listeners(space, port)
    with host.start(*command, **environment) as server:
        server.wait_until(lambda: host.rdma_listeners(space, port) - before,
                          f"listening on RDMA port {port} ({space})")
        yield server


def succeed_both(server, client, limit=DEFAULT_LIMIT):
    """Waits for a client and its server, which must end well; a fault shows both sides."""
    try:
        client.succeed(limit)
        server.succeed(limit)
    except Failed as fault:
        other = client if fault.args[0].startswith(" ".join(server.command)) else server
        other.end()
        raise Failed(f"{fault}\n--- the other side: {' '.join(other.command)}: "
                     f"status {other.process.returncode}\n{other.output()}") from None
    return server.output(), client.output()


class Veth:
    """Two network namespaces joined by a veth pair of MTU 9000; IPv4 and IPv6. Raises OSError with
    the reason when this machine does not let us make them."""

    IPV4 = ("10.91.0.1", "10.91.0.2")
    IPV6 = ("fd91::1", "fd91::2")

    def __init__(self, mtu=9000):
        # One shell, in the first namespace, makes everything; the namespaces end with its input.
        user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
        self.maker = subprocess.Popen(["unshare", *user, "--net", "sh"], stdin=subprocess.PIPE, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            self.build(mtu)
        except BaseException:
            self.close()
            raise

    def build(self, mtu):
        second = self.make("unshare --net sleep infinity </dev/null >/dev/null 2>&1 & trap 'kill $!' EXIT; echo $!")
        self.pids = (self.maker.pid, int(second))
        first = os.readlink(f"/proc/{self.pids[0]}/ns/net")
        self.wait(lambda: os.readlink(f"/proc/{second}/ns/net") != first, "no second namespace")
        self.make(f"ip link add veth0 mtu {mtu} type veth peer name veth0 mtu {mtu} netns {second}")
        for i in range(2):
            self.make("echo 0 >/proc/sys/net/ipv6/conf/veth0/accept_dad",
                      f"ip addr add {self.IPV4[i]}/24 dev veth0",
                      f"ip addr add {self.IPV6[i]}/64 dev veth0 nodad",
                      "ip link set lo up", "ip link set veth0 up", namespace=i)
        self.wait(lambda: all(self.is_ready(i) for i in range(2)), "veth0 got no link-local address")

    def wait(self, condition, otherwise):
        deadline = time.monotonic() + DEFAULT_LIMIT
        while not condition():
            if time.monotonic() > deadline:
                raise OSError(otherwise)
            time.sleep(LOOK_SECONDS)

    def is_ready(self, i):
        """Whether the kernel has given veth0 its link-local address, which it does some time later."""
        return self.make("ip -6 addr show dev veth0 scope link -tentative", namespace=i) != ""

    def make(self, *lines, namespace=0):
        """Runs lines with the right to change the namespaces; returns what they print."""
        text = " && ".join(lines)
        if namespace:
            text = f"nsenter --target {self.pids[1]} --net -- sh -ec '{text}'"
        try:
            self.maker.stdin.write(text + "\necho \"done $?\"\n")
            self.maker.stdin.flush()
        except BrokenPipeError:
            pass  # why is in its output
        output = []
        for line in self.maker.stdout:
            if line.startswith("done "):
                if line != "done 0\n":
                    break
                return "".join(output).strip()
            output.append(line)
        raise OSError(f"cannot make network namespaces: {''.join(output).strip()}")

    def enter(self, i):
        """The command that runs another in namespace i."""
        user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        return ("nsenter", "--target", str(self.pids[i]), *user, "--net", "--")

    def hosts(self, family):
        addresses = self.IPV4 if family == 4 else self.IPV6
        # Some programs reach their server over IPv4 only, whichever GID they then use.
        return tuple(Host(addresses[i], reach=self.IPV4[i], enter=self.enter(i)) for i in range(2))

    def close(self):
        try:
            self.maker.stdin.close()
        except BrokenPipeError:
            pass
        self.maker.wait()
        self.maker.stdout.close()


def perftest_rows(output):
    """The rows of numbers of a perftest program's table."""
    rows, inside = [], False
    for line in output.splitlines():
        if "#bytes" in line:
            inside = True
        elif inside and re.match(r"^\s*\d", line):
            # what goes to standard error may stand behind the last number
            rows.append([float(word) for word in re.match(r"[\d.\s]+", line)[0].split()])
    return rows
