"""Rounds of attaching to a process, each of which must leave the process as it was."""

import json
import os
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IPATH = os.environ.get("IPATH", f"{ROOT}/target/release/ipath")
LIMIT = 120.0


class Failed(Exception):
    """A round has not done what it should."""


def ipath(*arguments, user=None):
    """Runs the command: exit status, standard output and standard error."""
    done = subprocess.run(
        [IPATH, *map(str, arguments)], capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL,
        user=user, group=user, extra_groups=[] if user else None, cwd="/")
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def done(*arguments):
    """Runs the command, which must succeed."""
    status, out, err = ipath(*arguments)
    if status != 0:
        raise Failed(f"ipath {' '.join(map(str, arguments))}: {status}: {err.strip()}")
    return out


def selection(functions):
    return [word for function in functions for word in ("-f", function)]


def traces(pid):
    """What of ipath a process has: mappings by name, and tracers."""
    with open(f"/proc/{pid}/maps") as file:
        lines = [line.strip() for line in file if "ipath" in line]
    with open(f"/proc/{pid}/status") as file:
        return lines + [line.strip() for line in file if line.startswith("TracerPid") and line.split()[1] != "0"]


def calls(profile):
    """Calls counted, by function's name; those that were missed are an error."""
    if profile["losses"]["missed"]:
        raise Failed(f"missed {profile['losses']['missed']} calls")
    counts = {}
    for function in profile["functions"]:
        counts[function["name"]] = counts.get(function["name"], 0) + function["totals"]["count"]
    return counts


def left_nothing(pid):
    if found := traces(pid):
        raise Failed(f"left in {pid}: {found}")


def attach(pid, functions, duration="100ms"):
    """One session from beginning to end: its profile."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/profile.json"
        done("attach", pid, *selection(functions), "--duration", duration, "--no-tui", "--yes", "-o", out)
        left_nothing(pid)
        with open(out) as file:
            return json.load(file)


def changed(pid, functions, pause=0.05):
    """One session that is kept, added to, removed from, looked at and taken out: its last profile."""
    first, rest = functions[:1], functions[1:]
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/profile.json"
        done("attach", pid, *selection(first), "--duration", "20ms", "--no-tui", "--keep")
        try:
            for function in rest:
                done("add", pid, "-f", function)
            time.sleep(pause)
            done("snapshot", pid, "-o", out)
            if rest:
                done("remove", pid, "-f", rest[0])
        finally:
            done("detach", pid, "-o", out)
        left_nothing(pid)
        with open(out) as file:
            return json.load(file)


def series(name, number, one_round):
    """Makes rounds; how many have failed. A round gives calls by function; each must be counted at least once."""
    failures, totals, began = 0, {}, time.monotonic()
    for index in range(number):
        try:
            for function, count in one_round(index).items():
                totals[function] = totals.get(function, 0) + count
        except Exception as error:
            failures += 1
            print(f"{name}: round {index}: {type(error).__name__}: {error}", flush=True)
    never = [function for function, count in totals.items() if count == 0]
    if never:
        failures += 1
        print(f"{name}: never counted: {', '.join(never)}", flush=True)
    spent = time.monotonic() - began
    print(f"{name}: {number} rounds, {failures} failures, {sum(totals.values())} calls, {spent:.0f} s", flush=True)
    return failures
