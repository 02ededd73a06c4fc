# SPDX-License-Identifier: BSD-2-Clause
"""releases.py - programs of other releases of Debian, unpacked beside the system.

They come by apt from the mirror that this machine uses itself, with lists and packages in folders of their own:
the system's are not touched, and nothing is installed. What was unpacked is kept under
$XDG_CACHE_HOME/verbena/releases; remove the folder to fetch it anew.
"""
import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import hosts

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "verbena" / "releases"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
LOADER = "/lib64/ld-linux-x86-64.so.2"  # this machine's
TRIPLET = "x86_64-linux-gnu"

# The programs, and the libraries beside ours that they want: perftest's are linked with those of vendors. Only a
# newer release needs its own C library.
PACKAGES = {
    "bullseye": "ibverbs-utils perftest ibverbs-providers ucx-utils libucx0".split(),
    "trixie": "libc6 ibverbs-utils perftest ibverbs-providers libpci3 libudev1 zlib1g libkmod2 libcap2 ucx-utils libucx0 "
              "libnuma1 libgomp1".split(),
}


@dataclasses.dataclass
class Release:
    codename: str
    root: pathlib.Path

    def command(self, program, *arguments):
        """The command line that runs a program with its own release's libraries, and Verbena's before all."""
        folders = [hosts.BUILD / "lib", self.root / "usr/lib" / TRIPLET, self.root / "lib" / TRIPLET]
        loader = next(self.root.glob("**/ld-linux-x86-64.so.2"), LOADER)
        return (loader, "--library-path", ":".join(map(str, folders)), self.root / "usr/bin" / program, *arguments)


def get(codename):
    """A release, fetched when it is not there yet. Raises OSError with a reason a person can act on."""
    text = " ".join([codename, *PACKAGES[codename]])
    root = CACHE / f"{codename}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not root.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            unpacked = pathlib.Path(scratch) / "root"
            for package in fetch(codename, pathlib.Path(scratch)):
                run("dpkg-deb", "-x", package, unpacked)
            shutil.rmtree(root, ignore_errors=True)
            unpacked.rename(root)
    return Release(codename, root)


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def mirror():
    """Where this machine has Debian's own packages from."""
    targets = run("apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                  "Created-By: Packages")
    found = re.search(r"^(\S+/debian/?) \S+ main$", targets, re.M)
    if not found:
        raise OSError(f"no mirror of Debian among apt's sources:\n{targets}")
    return found[1]


def fetch(codename, folder):
    """The packages, as files in folder."""
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    (folder / "sources").write_text(f"deb [signed-by={KEYRING}] {mirror()} {codename} main\n")
    (folder / "status").touch()
    options = ["-q"]
    for name, value in {"Dir::Etc::sourcelist": folder / "sources", "Dir::Etc::sourceparts": "-",
                        "Dir::State::lists": folder / "lists", "Dir::State::status": folder / "status",
                        "Dir::Cache": folder / "cache", "Acquire::Languages": "none",
                        "APT::Sandbox::User": "", "APT::Architecture": "amd64"}.items():
        options += ["-o", f"{name}={value}"]
    run("apt-get", *options, "update")
    run("apt-get", *options, "download", *PACKAGES[codename], cwd=folder)
    return sorted(folder.glob("*.deb"))
