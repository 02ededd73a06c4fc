#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""arrows.py - holds what docs/architecture.md says about who may include and call whom.

    includes   a quoted #include below src names "part/file.h", and the part may be used from here
    calls      the archives of the parts without I/O ask for nothing but memory and comparison
    licence    every file of ours begins with its SPDX line
    paths      no file names a directory of the machine that it was written on

`--self-test` builds a small tree that breaks each rule once and expects each to be reported.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# Whose headers a part may include, beside its own.
MAY_INCLUDE = {
    "base": set(),
    "wire": {"base"},
    "core": {"base", "wire"},
    "cm": {"base", "wire", "core"},
    "registry": {"base"},
    "carrier": {"base", "wire", "registry"},
    "host": {"base", "wire", "core", "cm", "carrier", "registry"},
    # The kernel's files about our devices; and a program's looks at some paths, sent to others.
    "sysfs": {"base", "core", "host", "registry"},
    "redirect": {"base"},
    "sim": {"base", "wire", "core", "cm"},
    # The faces see the host; the core's objects (struct vb_qp, ...) are what the host hands out.
    "verbs": {"base", "core", "host", "redirect", "sysfs"},
    "rdmacm": {"base", "core", "cm", "host"},
    "rspreload": set(),
    "umad": {"base", "wire", "core", "cm", "host"},
    "tools": {"base", "host", "sysfs"},
}

# The parts that own no time, no sockets, no threads: what their sources may not even include ...
SANS_IO = ("base", "wire", "core", "cm")
IO_HEADERS = {
    "fcntl.h", "poll.h", "pthread.h", "signal.h", "sys/epoll.h", "sys/eventfd.h", "sys/mman.h",
    "sys/socket.h", "sys/time.h", "sys/timerfd.h", "threads.h", "time.h", "unistd.h",
}
IO_EXEMPT = {"base/assert.c"}  # writes one line and aborts

# ... and what their archives may ask for.
MAY_CALL = {
    "wire": {"memcpy", "memmove", "memset", "memcmp", "crc32_gzip_refl"},
    "core": {
        "memcpy", "memmove", "memset", "memcmp",
        "malloc", "calloc", "realloc", "free", "posix_memalign",  # when objects are created
        "__errno_location",
    },
    "cm": {
        "memcpy", "memmove", "memset", "memcmp",
        "malloc", "calloc", "realloc", "free",  # when a connection or listener begins or ends
        "__errno_location",
    },
}
# Which the compiler brings along.
COMPILER = {
    "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_", "__memcpy_chk", "__memmove_chk", "__memset_chk",
}

SOURCE_SUFFIXES = {".c", ".h", ".py", ".sh", ".cmake", ".map", ".1"}
SOURCE_NAMES = {"CMakeLists.txt", "Makefile", "run"}
SKIP_DIRECTORIES = {".git", "__pycache__", ".pytest_cache", "golden", "corpus"}
ABSOLUTE = re.compile(r"(?<![\w.$}])/(?:work|home)/")

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def check_includes(root):
    for path in sorted(root.glob("src/*/*.[ch]")):
        part = path.parent.name
        name = f"{part}/{path.name}"
        if part not in MAY_INCLUDE:
            yield f"src/{part} is not a part that arrows.py knows"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, header = match.groups()
            where = f"src/{name}:{number}"
            if quote == "<":
                if part in SANS_IO and name not in IO_EXEMPT and header in IO_HEADERS:
                    yield f"{where}: <{header}> belongs to I/O, and src/{part} does none"
                continue
            target, slash, _ = header.partition("/")
            if not slash:
                yield f'{where}: "{header}" does not say which part it is of'
            elif not (root / "src" / header).exists():
                yield f'{where}: there is no src/{header}'
            elif target != part and target not in MAY_INCLUDE[part]:
                yield f"{where}: src/{part} may not include {target} ({header})"


def symbols(archive, undefined):
    option = "-u" if undefined else "--defined-only"
    out = subprocess.run(["nm", "-P", option, str(archive)], check=True, capture_output=True, text=True)
    for line in out.stdout.splitlines():
        fields = line.split()
        if len(fields) >= 2 and len(fields[1]) == 1:
            yield fields[0]


def check_calls(archives):
    defined = {name for archive in archives.values() for name in symbols(archive, False)}
    for part, allowed in MAY_CALL.items():
        if part not in archives:
            continue
        for name in sorted(set(symbols(archives[part], True)) - defined - allowed - COMPILER):
            yield f"src/{part} calls {name}, which is not on its list"


def files_of_ours(root):
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        parts = relative.parts
        if SKIP_DIRECTORIES & set(parts) or parts[0].startswith("build") or not path.is_file():
            continue
        yield path, relative


def check_files(root):
    for path, relative in files_of_ours(root):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path.suffix in SOURCE_SUFFIXES or path.name in SOURCE_NAMES:
            if "SPDX-License-Identifier: BSD-2-Clause" not in "\n".join(text.splitlines()[:3]):
                yield f"{relative}: no SPDX line at its head"
        for number, line in enumerate(text.splitlines(), 1):
            if ABSOLUTE.search(line) and "ABSOLUTE" not in line:
                yield f"{relative}:{number}: names a directory of one machine: {line.strip()}"


def check(root, archives):
    return [*check_includes(root), *check_calls(archives), *check_files(root)]


def self_test():
    spdx = "/* SPDX-License-Identifier: BSD-2-Clause */\n"
    tree = {
        "src/base/list.h": spdx,
        "src/core/qp.h": spdx + '#include "base/list.h"\n#include "host/host.h"\n',
        "src/core/clock.c": spdx + "#include <time.h>\n#include <string.h>\n"
                            "int vb_clock(void);\nint vb_clock(void) { return (int)time(NULL); }\n",
        "src/host/host.h": spdx + '#include "core/qp.h"\n#include "gone/gone.h"\n#include "qp.h"\n',
        "src/wire/bare.c": "int vb_bare;\n",
        "docs/note.md": "see /wo" + "rk/elsewhere and $HOME/wo" + "rk/here\n",
    }
    expected = {
        "src/core/qp.h:3: src/core may not include host (host/host.h)",
        "src/core/clock.c:2: <time.h> belongs to I/O, and src/core does none",
        "src/host/host.h:3: there is no src/gone/gone.h",
        'src/host/host.h:4: "qp.h" does not say which part it is of',
        "src/core calls time, which is not on its list",
        "src/wire/bare.c: no SPDX line at its head",
        "docs/note.md:1: names a directory of one machine: see /wo" + "rk/elsewhere and $HOME/wo" + "rk/here",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        build = root / "build"
        build.mkdir()
        subprocess.run(["cc", "-c", root / "src/core/clock.c", "-o", build / "clock.o"], check=True)
        subprocess.run(["ar", "rc", build / "core.a", build / "clock.o"], check=True)
        found = set(check(root, {"core": build / "core.a"}))
    for line in sorted(expected - found):
        print(f"not reported: {line}")
    for line in sorted(found - expected):
        print(f"reported without cause: {line}")
    return found == expected


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path)
    parser.add_argument("--archive", action="append", default=[], metavar="PART=FILE")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return 0 if self_test() else 1
    archives = dict(pair.split("=", 1) for pair in arguments.archive)
    faults = check(arguments.root, archives)
    for fault in faults:
        print(fault)
    print(f"arrows: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
