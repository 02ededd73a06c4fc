# SPDX-License-Identifier: BSD-2-Clause
"""image.py - the guest: Debian's kernel with Soft-RoCE, and a root file system around this machine's tools.

    kernel   vmlinux, taken out of the package of Debian's current kernel, which is fetched and not
             installed. The plain ELF boots by PVH: that spares the emulator some ten seconds of
             decompression.
    initrd   a cpio archive: busybox, the RDMA programs and libraries that Debian has installed
             here, the modules of that kernel in an order in which they can be loaded, ./init

Both are kept under $XDG_CACHE_HOME/verbena/interop, in a folder named after what went into them;
remove the folder to fetch a newer kernel. Run by itself, this file builds them and prints where
they are.
"""
import dataclasses
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "verbena" / "interop"

PROGRAMS = """
    ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong
    rping ucmatose udaddy rstream rdma ip
    ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat ib_atomic_bw ib_atomic_lat
""".split()
# Loaded while a program runs, so that no program names them: the provider, and what
# pthread_exit() wants.
LIBRARIES = "libibverbs/librxe-rdmav*.so libgcc_s.so.1 libnss_files.so.2".split()
MODULES = "virtio_pci virtio_net crc32_generic ib_uverbs rdma_ucm rdma_rxe".split()


@dataclasses.dataclass
class Image:
    kernel: pathlib.Path
    initrd: pathlib.Path


def build():
    """The image, made when it is not there yet. Raises OSError with a reason a person can act on."""
    folder = CACHE / fingerprint()
    image = Image(folder / "vmlinux", folder / "initrd")
    if image.initrd.exists():
        return image
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        unpacked = unpack(fetch_kernel(pathlib.Path(scratch)))
        made = pathlib.Path(scratch) / "image"
        made.mkdir()
        (made / "vmlinux").write_bytes(elf_of(next((unpacked / "boot").glob("vmlinuz-*")).read_bytes()))
        with open(made / "initrd", "wb") as out:
            fill(Archive(out), unpacked)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return image


def with_program(initrd, program, out):
    """Writes the archive to the file out, and behind it one more that holds a program of our own: the
    kernel unpacks both."""
    with open(initrd, "rb") as first:
        shutil.copyfileobj(first, out)
    second = Archive(out)
    second.file(f"usr/bin/{program.name}", program.read_bytes())
    second.close()
    out.flush()


def fingerprint():
    """Changes with this file, with ./init, and with the versions of the programs."""
    text = pathlib.Path(__file__).read_bytes() + (HERE / "init").read_bytes()
    for package in ("ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "perftest", "iproute2", "busybox-static"):
        text += run("dpkg-query", "-W", "-f", "${Package} ${Version}\n", package)
    return hashlib.sha256(text).hexdigest()[:16]


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def fetch_kernel(folder):
    """Debian's current kernel, as a package file in folder."""
    def current():
        depends = run("apt-cache", "depends", "linux-image-amd64").decode()
        return re.search(r"Depends: (linux-image-\d\S*)", depends)[1]

    try:
        package = current()
        run("apt-get", "download", "-q", package, cwd=folder)
    except (OSError, TypeError):
        # No package lists yet, or old ones, which name what is no longer there.
        run("apt-get", "update", "-q")
        package = current()
        run("apt-get", "download", "-q", package, cwd=folder)
    return next(folder.glob(f"{package}_*.deb"))


def unpack(package):
    folder = package.with_suffix("")
    run("dpkg-deb", "-x", package, folder)
    return folder


def elf_of(image):
    """The ELF file within a compressed kernel: boot protocol, payload_offset and payload_length."""
    setup_sectors = image[0x1f1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[(setup_sectors + 1) * 512 + offset:][:length]
    if not payload.startswith(b"\xfd7zXZ\0"):
        raise OSError(f"this kernel is compressed with something else than xz: {payload[:6]!r}")
    return lzma.LZMADecompressor().decompress(payload)


class Archive:
    """A cpio archive of the kind that the kernel unpacks: newc, everything root's."""

    def __init__(self, out):
        self.out = out
        self.known = set()

    def add(self, name, mode, data=b"", device=(0, 0)):
        if name in self.known:
            return
        self.known.add(name)
        if "/" in name:
            self.folder(name.rpartition("/")[0])
        fields = (len(self.known), mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        self.write(b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0")
        self.write(data)

    def write(self, data):
        self.out.write(data + bytes(-len(data) % 4))

    def folder(self, name):
        self.add(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o755):
        self.add(name, stat.S_IFREG | mode, data)

    def link(self, name, target):
        self.add(name, stat.S_IFLNK | 0o777, target.encode())

    def close(self):
        self.add("TRAILER!!!", 0)


def fill(archive, kernel):
    for name in "dev proc sys tmp run root etc/libibverbs.d".split():
        archive.folder(name)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.file("init", (HERE / "init").read_bytes())
    archive.file("etc/passwd", b"root:x:0:0::/root:/bin/sh\n")
    archive.file("etc/hosts", b"127.0.0.1 localhost\n")
    archive.file("etc/libibverbs.d/rxe.driver", b"driver rxe\n")
    add_programs(archive)
    add_modules(archive, kernel)
    archive.close()


def add_programs(archive):
    # The name of the folder differs by architecture, this kernel does not.
    libraries = pathlib.Path("/usr/lib/x86_64-linux-gnu")
    files = [pathlib.Path(find(name)) for name in PROGRAMS]
    files += [file for pattern in LIBRARIES for file in libraries.glob(pattern)]
    for program in files[:len(PROGRAMS)]:
        archive.file(f"usr/bin/{program.name}", program.read_bytes())
    for library in files[len(PROGRAMS):]:
        archive.file(str(library)[1:], library.read_bytes())
    # The system's libraries, not those of a LD_LIBRARY_PATH: the peer must be the genuine one.
    needed = run("ldd", *files, env={"PATH": os.environ["PATH"]}).decode()
    for path in sorted(set(re.findall(r"(?:=> )?(/\S+) \(0x", needed))):
        archive.file(path[1:], pathlib.Path(path).read_bytes())
    busybox = find("busybox")
    archive.file("bin/busybox", pathlib.Path(busybox).read_bytes())
    for applet in run(busybox, "--list").decode().split():
        if applet not in PROGRAMS:
            archive.link(f"bin/{applet}", "busybox")


def find(program):
    path = shutil.which(program, path="/usr/bin:/usr/sbin:/bin:/sbin")
    if path is None:
        raise OSError(f"{program} is not installed; scripts/setup.sh installs it")
    return path


def add_modules(archive, kernel):
    """The modules, each behind those that it needs, numbered so: init loads them in order."""
    files = {file.name.split(".")[0].replace("-", "_"): file for file in (kernel / "lib" / "modules").rglob("*.ko*")}
    ordered = []

    def load(name):
        if name in ordered or name not in files:  # what has no file is in the kernel itself
            return
        for other in filter(None, re.search(rb"\0depends=([^\0]*)\0", contents(name))[1].decode().split(",")):
            load(other.replace("-", "_"))
        ordered.append(name)

    def contents(name):
        data = files[name].read_bytes()
        return lzma.decompress(data) if files[name].suffix == ".xz" else data

    for name in MODULES:
        load(name)
    for number, name in enumerate(ordered):
        archive.file(f"lib/modules/{number:02}-{name}.ko", contents(name))


if __name__ == "__main__":
    try:
        made = build()
        print(f"{made.kernel}\n{made.initrd}")
    except OSError as reason:
        sys.exit(f"image: {reason}")
