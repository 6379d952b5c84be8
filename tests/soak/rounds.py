"""Rounds of attaching to a process. Each must leave nothing in the process."""

import json
import os
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IPATH = os.environ.get("IPATH", f"{ROOT}/target/release/ipath")
LIMIT = 120.0


class Failed(Exception):
    """A round failed."""


def ipath(*arguments, user=None):
    """Runs the command and returns its exit status, standard output and standard error."""
    done = subprocess.run(
        [IPATH, *map(str, arguments)], capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL,
        user=user, group=user, extra_groups=[] if user else None, cwd="/")
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def done(*arguments):
    """Runs the command and returns its standard output. `Failed` if it does not succeed."""
    status, out, err = ipath(*arguments)
    if status != 0:
        raise Failed(f"ipath {' '.join(map(str, arguments))}: {status}: {err.strip()}")
    return out


def selection(functions):
    return [word for function in functions for word in ("-f", function)]


def traces(pid):
    """The traces of ipath in a process: mappings with its name, and a tracer."""
    with open(f"/proc/{pid}/maps") as file:
        lines = [line.strip() for line in file if "ipath" in line]
    with open(f"/proc/{pid}/status") as file:
        return lines + [line.strip() for line in file if line.startswith("TracerPid") and line.split()[1] != "0"]


def calls(profile):
    """The number of calls by function name. `Failed` if calls were missed."""
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
    """Runs one session from start to end and returns its profile."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/profile.json"
        done("attach", pid, *selection(functions), "--duration", duration, "--no-tui", "--yes", "-o", out)
        left_nothing(pid)
        with open(out) as file:
            return json.load(file)


def changed(pid, functions, pause=0.05):
    """Keeps a session, adds and removes functions, and detaches. Returns its last profile."""
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
    """Runs rounds and returns the number of failures.

    A round returns calls by function. Each function must be counted at least once in all rounds.
    """
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
