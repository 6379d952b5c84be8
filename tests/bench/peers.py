"""Other tools on the same target. The output of each must show that it has seen every call."""

import json
import os
import re
import shutil
import subprocess
import sys

from measure import Case, Shape, Times, Unavailable, fail, merged, output, run

DEPTH = 20
POINTERS = "with"
PACKAGES = ["bpftrace", "uftrace", "libunwind-dev", "linux-perf"]
# Packages for the series of programs.
PROGRAMS = ["redis-server", "redis-tools", "sqlite3", "python3.11", "openmpi-bin", "libopenmpi-dev"]
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
VENV = os.path.join(CACHE, "ipath-bench", "frida")

BPFTRACE = {
    "uprobe: count": "uprobe:PROGRAM:tiny { @entered = count(); }",
    "uprobe, uretprobe: count": """
        uprobe:PROGRAM:tiny { @entered = count(); }
        uretprobe:PROGRAM:tiny { @left = count(); }""",
    "the same: time by ustack": """
        uprobe:PROGRAM:tiny { @from[tid] = nsecs; @entered = count(); }
        uretprobe:PROGRAM:tiny {
            @time[ustack] = sum(nsecs - @from[tid]);
            @left[ustack] = count();
        }
        END { clear(@from); }""",
}


def install():
    """Installs missing packages. Prints failures; the table then lacks the tool."""
    attempt(["apt-get", "update"])
    attempt(["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES, *PROGRAMS])
    if frida_python() is None and attempt(["python3", "-m", "venv", VENV]):
        attempt([os.path.join(VENV, "bin", "python"), "-m", "pip", "install", "frida"])


def attempt(command):
    try:
        # Install servers without starting them.
        quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        done = run(command, env={**os.environ, **quiet})
        reason = done.stderr.strip() if done.returncode != 0 else None
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    if reason is not None:
        print(f"bench: {' '.join(command)}: {reason}", file=sys.stderr)
    return reason is None


def frida_python():
    for python in [os.path.join(VENV, "bin", "python"), "python3"]:
        if shutil.which(python) and run([python, "-c", "import frida"]).returncode == 0:
            return python
    return None


def need(program):
    if shutil.which(program) is None:
        raise Unavailable("not installed")


def peer_output(command):
    try:
        done = run(command)
    except subprocess.TimeoutExpired:
        raise Unavailable("does not end") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().split("\n")
        raise Unavailable(f"exit status {done.returncode}: {lines[-1]}")
    return done.stdout


def counted(peer, found, shape):
    """Fails if the peer has missed calls: then it is fast for the wrong reason."""
    if found != shape.all_calls():
        fail(f"{peer}: says {found} calls, expected {shape.all_calls()}")


def bpftrace(bench, name):
    need("bpftrace")
    shape, times = Shape(DEPTH, calls=2_000, rounds=5), Times()
    program = bench.programs[POINTERS]
    script = BPFTRACE[name].replace("PROGRAM", program)
    child = " ".join([program, *shape.arguments()])
    maps = {}
    for line in peer_output(["bpftrace", "-f", "json", "-e", script, "-c", child]).split("\n"):
        if line.startswith("{"):
            found = json.loads(line)
            if found["type"] == "map":
                maps.update(found["data"])
        elif line:
            times.take(line)
    counted(f"bpftrace, {name}", maps.get("@entered", 0), shape)
    left = maps.get("@left")
    if isinstance(left, dict):
        times_by_path = maps["@time"]
        # The walk by frame pointers does not reach clone3. At a return probe it starts at the
        # caller.
        if len(left) != 1 or len(next(iter(left)).strip().split("\n")) < DEPTH - 2:
            fail(f"bpftrace, {name}: the paths are {list(left)}")
        if list(times_by_path) != list(left) or min(times_by_path.values()) <= 0:
            fail(f"bpftrace, {name}: the times are {times_by_path}")
        left = sum(left.values())
    if left is not None:
        counted(f"bpftrace, {name}, returns", left, shape)
    return times


def uftrace(bench, _):
    need("uftrace")
    shape, times = Shape(DEPTH, calls=5_000, rounds=10), Times()
    data = os.path.join(bench.scratch, "uftrace")
    command = ["uftrace", "record", "--no-libcall", "-P", "tiny", "-d", data]
    line = peer_output([*command, bench.programs[POINTERS], *shape.arguments()]).strip()
    times.take(line.split("\n")[-1])
    report = peer_output(["uftrace", "report", "--no-pager", "-d", data])
    found = re.search(r"(\d+)\s+tiny$", report, re.MULTILINE)
    counted("uftrace", int(found.group(1)) if found else 0, shape)
    return times


def frida(bench, _):
    python = frida_python()
    if python is None:
        raise Unavailable("not installed")
    shape, times = Shape(DEPTH, calls=10_000, rounds=20), Times()
    program = bench.programs[POINTERS]
    symbols = [line.split() for line in output(["nm", program]).strip().split("\n")]
    address = next(words[0] for words in symbols if words[-1] == "tiny")
    peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "frida_peer.py")
    lines = peer_output([python, peer, f"0x{address}", program, *shape.arguments(), "wait"])
    line, result = lines.strip().split("\n")
    times.take(line)
    entered, left, frames, ns = map(int, result.split())
    counted("Frida", entered, shape)
    counted("Frida, returns", left, shape)
    if frames < DEPTH - 2 or ns <= 0:
        fail(f"Frida: {frames} frames, {ns} ns")
    return times


PEERS = {
    **{f"bpftrace, {name}": (bpftrace, name) for name in BPFTRACE},
    "uftrace record -P, no path": (uftrace, None),
    "Frida CModule: time, path": (frida, None),
}


def peers(bench):
    print(f"\npeers: depth {DEPTH}, {POINTERS} frame pointers; added ns a call")
    reasons = {}
    [ways] = bench.measure([Case(Shape(DEPTH), bench.metrics, POINTERS)])
    for _ in range(min(3, bench.rounds)):
        for name, (peer, argument) in PEERS.items():
            if name in reasons:
                continue
            try:
                found = peer(bench, argument)
            except Unavailable as reason:
                reasons[name] = str(reason)
                ways.pop(name, None)
            except (KeyError, StopIteration, ValueError) as error:
                reasons[name] = f"unexpected output ({error!r})"
                ways.pop(name, None)
            else:
                ways[name] = least(ways.get(name, found), found)
    figures = merged(ways)
    print(f"{'two rdtsc':36}{figures['two_rdtsc_ns']:10.1f}")
    for name in [*bench.metrics, *PEERS]:
        if name in reasons:
            print(f"{name:36}{'-':>10}  {reasons[name]}")
        else:
            shown = name if name in PEERS else f"ipath {name}"
            print(f"{shown:36}{figures['added_ns'][name]:10.1f}{figures['ratio'][name]:9.2f}x")
    return {**figures, "unavailable": reasons}


def least(one, other):
    return Times(*(min(getattr(one, name), getattr(other, name)) for name in Times.NAMES))
