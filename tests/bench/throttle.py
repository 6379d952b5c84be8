"""The overhead limit: whole programs whose every function is measured, without a limit and under
5 %, beside other tools that instrument every function. The times are those of the programs: from
their first instruction to their end, without the time in which a tool prepares them."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from measure import fail
from series import header

LIMIT = "5%"
# Without a limit, ipath takes up to a hundred times as long. After this time it is killed.
LONGEST = 120
CALLS = 1_000_000_000
ROUNDS = 267


def built(bench, name, compiler):
    source = Path(__file__).with_name(name)
    program = os.path.join(bench.scratch, source.stem)
    subprocess.run([compiler, "-O2", "-g", str(source), "-o", program], check=True)
    return program


def words(bench):
    path = os.path.join(bench.scratch, "words")
    with open(path, "w") as file:
        for n in range(200_000):
            file.write(f"{n * 0x9E3779B97F4A7C15 % 2**64 >> 20:x}\n")
    return path


def ran(command, env=None):
    """The elapsed seconds and the output of a command. None if it takes too long."""
    begin = time.monotonic()
    try:
        done = subprocess.run(command, env=env, capture_output=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return None
    return time.monotonic() - begin, done.stdout


def plain(_, command, __):
    return ran(command)


def by_ipath(limit):
    def run(bench, command, functions):
        file = os.path.join(bench.scratch, "throttle.json")
        options = ["-f", functions, "--yes", "-q", "-o", file, *limit]
        done = ran([bench.ipath, "run", *options, "--", *command])
        if done is None:
            return None
        with open(file) as text:
            profile = json.load(text)
        return profile["session"]["elapsed_ns"] / 1e9, done[1]

    return run


def by_uftrace(bench, command, _):
    data = os.path.join(bench.scratch, "uftrace.data")
    done = ran(["uftrace", "record", "-P.", "-d", data, *command])
    shutil.rmtree(data, ignore_errors=True)
    return done


def by_callgrind(bench, command, _):
    out = f"--callgrind-out-file={bench.scratch}/callgrind"
    return ran(["valgrind", "--tool=callgrind", "-q", out, *command])


WAYS = {
    "plain": (plain, None),
    "ipath": (by_ipath([]), None),
    f"ipath {LIMIT}": (by_ipath(["--max-overhead", LIMIT]), None),
    "uftrace -P.": (by_uftrace, "uftrace"),
    "callgrind": (by_callgrind, "valgrind"),
}


def throttle(bench):
    print("\nthrottle: programs whose every function is measured; elapsed seconds, the least")
    header(("program", 24), *((way, 14) for way in WAYS))
    tiny, templates = built(bench, "tiny.c", "cc"), built(bench, "templates.cc", "c++")
    programs = {
        "a function of 2 ns": ([tiny, str(CALLS)], "tiny!tiny"),
        "sort, all of libc": (["sort", words(bench)], "libc.so*!*"),
        "C++ on 131,071 paths": ([templates, str(ROUNDS)], "templates!*"),
    }
    rows = []
    for name, (command, functions) in programs.items():
        times = {}
        expected = None
        for number in range(min(3, bench.rounds)):
            for way, (run, needs) in WAYS.items():
                is_slow = way not in ("plain", f"ipath {LIMIT}")
                if needs and not shutil.which(needs) or is_slow and number > 0:
                    continue
                done = run(bench, command, functions)
                if done is None:
                    times[way] = None
                    continue
                elapsed, text = done
                expected = expected or text
                if text != expected:
                    fail(f"{name} under {way}: other output")
                times[way] = min(elapsed, times.get(way) or elapsed)
        rows.append({"program": name, "seconds": times})
        cells = [f"{'-':>14}" if way not in times else
                 f"{f'over {LONGEST}':>14}" if times[way] is None else f"{times[way]:14.3f}"
                 for way in WAYS]
        print(f"{name:>24}", *cells, sep="")
    return rows
