#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""symbols.py OURS GENUINE - every name that the distribution's library exports is in ours.

Compared are the name, its version node, whether that version is the default one, and whether it is
a function or data. More names of ours are allowed; inner ones only at a node of their own. Skipped
(77) where the genuine library is missing.
"""
import os
import subprocess
import sys

SKIP = 77
PRIVATE_NODES = (25, 33, 34, 57, 59, 64, 65)
INNER_NODE = "VERBENA_0"  # what the three libraries share


def exported(library):
    """{(name, node): (is default, kind)}; nodes themselves are left out."""
    text = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library],
                          check=True, capture_output=True, text=True).stdout
    symbols = {}
    for line in text.splitlines():
        kind, versioned = line.split()[-2:]
        name, at, node = versioned.partition("@")
        if kind == "A":
            continue
        if not at:
            sys.exit(f"{library}: {name} has no version")
        symbols[name, node.lstrip("@")] = (node.startswith("@"), "T" if kind in "TWi" else "D")
    return symbols


def find(soname):
    for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                      "/usr/lib", "/lib"):
        path = os.path.join(directory, soname)
        if os.path.exists(path):
            return path
    return None


def main():
    ours = exported(sys.argv[1])
    path = find(sys.argv[2])
    faults = []
    if sys.argv[2].startswith("libibverbs"):
        # Of every release, not only of the one installed here: what providers' constructors call.
        for node in PRIVATE_NODES:
            for name in (f"verbs_register_driver_{node}", "ibv_query_gid_type",
                         "verbs_allow_disassociate_destroy"):
                if (name, f"IBVERBS_PRIVATE_{node}") not in ours:
                    faults.append(f"missing: {name}@IBVERBS_PRIVATE_{node}")
    for (name, node) in ours:
        if name.startswith("vb_") and node != INNER_NODE:
            faults.append(f"an inner name is exported: {name}@{node}")
        if node == INNER_NODE and not sys.argv[2].startswith("libibverbs"):
            faults.append(f"only libibverbs shares inner names: {name}@{node}")
    if path is None and not faults:
        # there is nothing to compare with: a machine may have ours alone
        print(f"{sys.argv[2]} is not installed")
        return SKIP
    genuine = exported(path) if path else {}
    for key, value in sorted(genuine.items()):
        if key not in ours:
            faults.append("missing: %s@%s" % key)
        elif ours[key] != value:
            faults.append("%s@%s: default and kind are %s, genuine %s" % (*key, ours[key], value))
    print("\n".join(faults) or f"{len(genuine)} names of {path} are there, {len(ours)} in all")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
