# SPDX-License-Identifier: BSD-2-Clause
"""The verbena command itself: run, settings, the sentences for what cannot be done."""
import os
import re
import subprocess

import pytest

import hosts

LIBRARIES = ("libibverbs.so.1", "libibverbs.so")


def verbena(*arguments, **environment):
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith("VERBENA_") and name != "LD_LIBRARY_PATH"}
    variables.update(environment)
    return subprocess.run([hosts.VERBENA, *arguments], capture_output=True, text=True, env=variables,
                          timeout=hosts.DEFAULT_LIMIT)


def environment_of(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_run_sets_the_library_path_and_nothing_else():
    plain = subprocess.run(["env", "-i", "KEPT=1", "env"], capture_output=True, text=True, check=True)
    ours = subprocess.run(["env", "-i", "KEPT=1", hosts.VERBENA, "run", "--", "/usr/bin/env"],
                          capture_output=True, text=True, check=True)
    before, after = environment_of(plain.stdout), environment_of(ours.stdout)
    folder = after.pop("LD_LIBRARY_PATH")
    assert after == before
    assert all(os.path.exists(os.path.join(folder, name)) for name in LIBRARIES)


def test_run_keeps_a_library_path_behind_its_own():
    path = environment_of(verbena("run", "env", LD_LIBRARY_PATH="/one:/two").stdout)["LD_LIBRARY_PATH"]
    assert path.split(":")[1:] == ["/one", "/two"]


def test_run_with_an_empty_library_path_does_not_add_the_working_directory():
    path = environment_of(verbena("run", "env", LD_LIBRARY_PATH="").stdout)["LD_LIBRARY_PATH"]
    assert path and ":" not in path


def test_run_becomes_the_program():
    done = verbena("run", "--", "sh", "-c", "echo $$; exit 7")
    assert done.returncode == 7
    shell = subprocess.Popen([hosts.VERBENA, "run", "--", "sh", "-c", "echo $$"], stdout=subprocess.PIPE, text=True)
    assert int(shell.communicate()[0]) == shell.pid


@pytest.mark.parametrize("arguments, status, sentence", [
    (("run", "no-such-program"), 127, 'there is no program "no-such-program" in PATH'),
    (("run", "/no/such"), 127, 'there is no program "/no/such"'),
    (("run", "/etc/passwd"), 126, '"/etc/passwd" cannot be executed'),
    (("run",), 125, "run needs a program"),
    (("run", "-x", "ls"), 125, 'run has no option "-x"'),
    (("demo", "now"), 2, 'demo takes no argument "now"'),
    (("settings", "all"), 2, 'settings takes no argument "all"'),
    (("jump",), 2, 'there is no command "jump"'),
    (("help", "jump"), 2, 'there is no command "jump"'),
])
def test_what_cannot_be_done_is_said(arguments, status, sentence):
    done = verbena(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("verbena: ") and sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "demo", "settings"])
def test_every_command_teaches_itself(command):
    done = verbena(command, "-h")
    assert done.returncode == 0 and done.stdout.startswith(f"verbena {command}")
    assert verbena("help", command).stdout == done.stdout
    assert f"  verbena {command} " in verbena("help").stdout


def printed_settings():
    """{name: (meaning, default, allowed)} as the command prints them."""
    table, name, label = {}, None, None
    for line in verbena("settings").stdout.splitlines():
        if re.match(r"[A-Z]", line):
            name, label = line, "meaning"
            table[name] = {}
        elif line.strip():
            label = line[:12].strip() or label
            table[name][label] = (table[name].get(label, "") + " " + line[12:].strip()).strip()
    return {name: (row["meaning"], row["default"], row["allowed"]) for name, row in table.items()}


def manual_settings():
    """The same from the table of the manual page."""
    source = (hosts.ROOT / "man" / "verbena.1").read_text()
    table = source.split(".TS\n")[1].split(".TE\n")[0].split("Allowed\n", 1)[1]
    table = table.replace(".ad l\n", "").replace(".nh\n", "")
    # A text block keeps its line breaks; outside of one, a line is a row.
    table = re.sub(r"T\{\n(.*?)\nT\}", lambda block: block[1].replace("\n", " ").replace(";", "\0"), table, flags=re.S)
    rows = [[cell.replace("\0", ";") for cell in line.split(";")] for line in table.splitlines()]
    return {name: (meaning, default, allowed) for name, meaning, default, allowed in rows}


def test_the_manual_page_and_the_command_have_the_same_settings():
    assert manual_settings() == printed_settings()
    assert "VERBENA_ADDR" in printed_settings()


def test_settings_shows_the_value_of_now():
    done = verbena("settings", VERBENA_ADDR="127.0.0.9")
    assert done.returncode == 0 and "current   127.0.0.9\n" in done.stdout


WRONG = [
    ("VERBENA_ADDR", "nonsense"), ("VERBENA_ADDR", "127.0.0.1,"), ("VERBENA_ADDR", "0.0.0.0"),
    ("VERBENA_ADDR", "224.0.0.1"), ("VERBENA_ADDR", "::"), ("VERBENA_ADDR", "fe80::1%nowhere"),
    ("VERBENA_ADDR", ",".join(["127.0.0.1"] * 17)), ("VERBENA_ADDR", "1" * 5000),
    ("VERBENA_EQUAL_KEYS", "yes"), ("VERBENA_LID", "0x2"), ("VERBENA_LOCAL", "2"), ("VERBENA_DIRECT", "-1"),
    ("VERBENA_SHARE", "yes"), ("VERBENA_RING", "2"),
]


@pytest.mark.parametrize("name, value", WRONG, ids=lambda text: text[:24])
def test_a_wrong_setting_is_refused_with_what_is_allowed(name, value):
    """By the command, and by any program that looks for devices."""
    allowed = printed_settings()[name][2]
    shown = verbena("settings", **{name: value})
    assert shown.returncode == 1 and "(refused" in shown.stdout
    done = verbena("run", "ibv_devinfo", **{"VERBENA_ADDR": "127.0.0.9", name: value})
    sentences = [line for line in done.stderr.splitlines() if line.startswith(f"verbena: {name}=")]
    assert len(sentences) == 1, done.stderr
    assert f"allowed is {allowed}." in sentences[0]
    assert done.returncode > 0, "ibv_devinfo found a device all the same"
    assert "PORT_ACTIVE" not in done.stdout


def test_an_address_that_is_not_ours_is_refused():
    """Not of this machine: TEST-NET-1 (RFC 5737)."""
    done = verbena("run", "ibv_devinfo", VERBENA_ADDR="192.0.2.1")
    assert "verbena: VERBENA_ADDR=" in done.stderr and "allowed is " in done.stderr
    assert done.returncode > 0 and "PORT_ACTIVE" not in done.stdout
