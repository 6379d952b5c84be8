"""Checks the paths of random programs against their code.

    tests/soak/net.py [PROGRAMS [SEED]]

csmith (a Debian package) writes PROGRAMS C programs, 500 by default. Each is built with the linkers
bfd, gold, lld and mold, alternately by gcc and clang at each optimization level. It runs with all of
its own functions counted. Its output must not change, and no path may be contradicted. Prints a
table of the shares of calls by verdict, one row per linker and compiler. IPATH is the command to
test; the default is target/release/ipath.
"""

import collections
import json
import os
import subprocess
import sys
import tempfile

import rounds

LINKERS = ["bfd", "gold", "lld", "mold"]
COMPILERS = ["gcc", "clang"]
LEVELS = ["-O0", "-O1", "-O2", "-O3", "-Os"]
VERDICTS = ["proven", "explained", "possible", "contradicted"]
# A random program may run forever.
LIMIT = 2


def run(command, limit=LIMIT, folder=None):
    """The exit status and the output of a command. None if it exceeds `limit` seconds."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit, stdin=subprocess.DEVNULL, cwd=folder)
    except subprocess.TimeoutExpired:
        return None
    return done.returncode, done.stdout


def build(source, program, compiler, linker, level):
    command = [compiler, level, "-w", f"-fuse-ld={linker}", "-I/usr/include/csmith", "-o", program, source]
    if compiler == "gcc" and level != "-O0":
        command += ["-fno-inline-small-functions"]
    done = run(command, 60)
    return done is not None and done[0] == 0


def contradictions(profile):
    """Yields the pairs of frames that the code contradicts, as text."""
    def name(index):
        frame = profile["frames"][index]
        return f"{frame['function']}+{frame['offset'] or frame['address']:#x}"

    for path in profile["paths"]:
        at = path.get("contradicted")
        if at is not None:
            below = name(path["stack"][at - 1]) if at else profile["functions"][path["function"]]["name"]
            yield f"{name(path['stack'][at])} -> {below}"


def main():
    programs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    sums = collections.defaultdict(collections.Counter)
    failures = 0
    with tempfile.TemporaryDirectory(prefix="ipath-net-") as folder:
        source, program, profile = (os.path.join(folder, name) for name in ("p.c", "p", "p.json"))
        for seed in range(first, first + programs):
            options = ["--seed", str(seed), "--max-funcs", "12", "--no-volatiles"]
            written = run(["csmith", *options, "-o", source], 30, folder)
            if written is None or written[0] != 0:
                continue
            for place, linker in enumerate(LINKERS):
                compiler = COMPILERS[(seed + place) % len(COMPILERS)]
                level = LEVELS[(seed + place) % len(LEVELS)]
                if not build(source, program, compiler, linker, level):
                    continue
                plain = run([program])
                if plain is None:
                    break
                command = [rounds.IPATH, "run", "--yes", "-m", "count", "-f", "p!*", "-o", profile, "--quiet", "--", program]
                ours = run(command, 120)
                what = f"seed {seed}, {compiler} {level} {linker}"
                if ours != plain:
                    print(f"{what}: {ours} instead of {plain}")
                    failures += 1
                    continue
                with open(profile) as file:
                    found = json.load(file)
                row = sums[linker, compiler]
                row["programs"] += 1
                row["paths"] += len(found["paths"])
                row["incomplete"] += found["losses"]["incomplete"]
                row.update({verdict: found["exactness"][verdict] for verdict in VERDICTS})
                for pair in contradictions(found):
                    print(f"{what}: {pair}")
                    failures += 1
    print("| linker | compiler | programs | paths | calls | " + " | ".join(VERDICTS) + " |")
    print("| --- " * (5 + len(VERDICTS)) + "|")
    for (linker, compiler), row in sorted(sums.items()):
        calls = sum(row[verdict] for verdict in VERDICTS)
        shares = " | ".join(f"{100 * row[verdict] / max(calls, 1):.2f} %" for verdict in VERDICTS)
        print(f"| {linker} | {compiler} | {row['programs']} | {row['paths']} | {calls} | {shares} |")
    print("passed" if failures == 0 else f"FAILED: {failures}")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
